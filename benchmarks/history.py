"""The history of ended requests at a great age: how fast a page of the list is, and how large the file.

python -m benchmarks.history [--rows 1000000]
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.report import Figure, save
from legato.sinks.history import QUEUE_LIMIT, History
from legato.telemetry.record import RequestRecord
from legato.telemetry.summary import Cursor
from legato.telemetry.timeline import Timeline

ROUNDS = 15
BEGIN_S = 1_700_000_000.0
CLIENTS = ("ann", "bob", "eve", None)
TOKENS = 40
"""Tokens of an answer: a short one, as a million of them take long to make."""
LONG_TOKENS = 8_000


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    save("history", measure(parser.parse_args().rows))


def measure(rows: int) -> list[Figure]:
    """Times of pages in every way of asking, of writing, and the file's size."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "history.sqlite"
        history = History(path, max_age_s=None, max_bytes=None)
        begun = time.perf_counter()
        fill(history, rows)
        history.close()
        took_us = (time.perf_counter() - begun) / rows * 1e6
        size = path.stat().st_size / 2**20
        begun = time.perf_counter()
        history = History(path, max_age_s=None, max_bytes=None)
        open_ms = (time.perf_counter() - begun) * 1000
        figures = [_figure(what, page, "< 50") for what, page in pages(history, rows)]
        figures.append(_figure("one whole record", lambda: history.get(_id(rows // 3))))
        long = _record(0, LONG_TOKENS)
        figures.append(_figure(f"adding one of {LONG_TOKENS} tokens, for the server", lambda: history.add(long)))
        history.close()
    return [
        *figures,
        Figure("opening the file", open_ms, "ms", [open_ms]),
        Figure("making and writing one record, all told", took_us, "us", [took_us]),
        Figure(f"the file with {rows:,} records", size, "MiB", [size]),
    ]


def pages(history: History, rows: int) -> list[tuple[str, Callable[[], object]]]:
    """The ways to ask for a page."""
    middle = Cursor(BEGIN_S + rows / 2, rows // 2)
    return [
        ("the newest page", lambda: history.page()),
        ("a page in the middle", lambda: history.page(before=middle)),
        ("the oldest page", lambda: history.page(before=Cursor(BEGIN_S + 50, 50))),
        ("one client's", lambda: history.page(client="ann", before=middle)),
        ("failed ones", lambda: history.page(end="failed", before=middle)),
        ("one client's failed ones", lambda: history.page(client="ann", end="failed", before=middle)),
        ("the slowest thousandth", lambda: history.page(slower_than_ms=60_000)),
        ("the slowest three thousandths", lambda: history.page(slower_than_ms=20_000)),
        ("the slowest fiftieth", lambda: history.page(slower_than_ms=5_000)),
        ("one client's slowest fiftieth", lambda: history.page(client="eve", slower_than_ms=5_000)),
        ("by the whole id", lambda: history.page(text=_id(rows // 3))),
        ("by the beginning of an id", lambda: history.page(text=_id(rows // 3)[:13])),
        ("by what every id begins with", lambda: history.page(text="chatcmpl-")),
        ("a client that there is not", lambda: history.page(client="nobody")),
    ]


def fill(history: History, rows: int) -> None:
    """Write records, as many at once as may wait."""
    for i in range(rows):
        history.add(_record(i, TOKENS))
        if i % (QUEUE_LIMIT // 2) == 0:
            history.flush(60.0)


def _id(i: int) -> str:
    return f"chatcmpl-{random.Random(i).getrandbits(96):024x}"


def _record(i: int, tokens: int) -> RequestRecord:
    dice = random.Random(i)
    first_s = min(0.2 / (dice.random() + 1e-9) ** 0.8, 200.0)  # few are slow, and very slow
    times = [first_s + k * 0.02 for k in range(tokens)]
    timeline = Timeline(0.0, prompt_tokens=200, admitted_s=0.01, token_times_s=times, ended_s=times[-1])
    return RequestRecord(
        id=_id(i),
        endpoint="chat",
        model="smollm2",
        client=CLIENTS[i % len(CLIENTS)],
        arrived_at=BEGIN_S + i,
        end="failed" if i % 1000 == 0 else "stop",
        error="",
        prompt_tokens=200,
        timings=timeline.timings(),
        token_ms=[round(t * 1000 + dice.random(), 3) for t in times],
    )


def _figure(what: str, do: Callable[[], object], goal: str = "") -> Figure:
    took: list[float] = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        do()
        took.append((time.perf_counter() - begun) * 1000)
    return Figure(what, statistics.median(took), "ms", took, goal)


if __name__ == "__main__":
    main()
