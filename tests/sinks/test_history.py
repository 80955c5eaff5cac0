"""Ended requests, kept in a file."""

from __future__ import annotations

import logging
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import textwrap
import threading
import time
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from legato.errors import LegatoError
from legato.sinks.history import History
from legato.sinks.history_file import RARE_ROWS, pack, unpack
from legato.telemetry.record import RequestRecord
from legato.telemetry.summary import Cursor, RequestSummary
from legato.telemetry.verdict import verdict
from tests.telemetry.records import ARRIVED_AT, request_record, stall

ROOT = Path(__file__).parents[2]
YEAR_S = 365 * 86400.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "history.sqlite"


def opened(
    path: Path, *, max_age_s: float | None = None, max_bytes: int | None = None, now: float = ARRIVED_AT
) -> History:
    return History.open(path, max_age_s=max_age_s, max_bytes=max_bytes, clock=lambda: now)


@pytest.fixture
def history(path: Path) -> Iterator[History]:
    history = opened(path)
    yield history
    history.close()


def filled(history: History, records: list[RequestRecord]) -> History:
    for record in records:
        history.add(record)
    assert history.flush()
    return history


def some_records(count: int) -> list[RequestRecord]:
    """As they end: not in the order of their arrival, and some arrived at one instant."""
    return [
        request_record(
            f"chatcmpl-{i:04}",
            arrived_at=ARRIVED_AT + (i * 7 % count) // 2,
            client=("ann", "bob", None)[i % 3],
            model="big" if i % 4 == 0 else "small",
            end="failed" if i % 10 == 0 else "stop",
            queue_ms=1000.0 if i % 9 == 0 else 10.0,
        )
        for i in range(count)
    ]


def all_pages(history: History, limit: int, **filters: object) -> list[RequestSummary]:
    found: list[RequestSummary] = []
    before = None
    while True:
        page = history.page(before=before, limit=limit, **filters)  # type: ignore[arg-type]
        found += page.records
        if page.next is None:
            return found
        assert len(page.records) == limit
        before = Cursor.parse(str(page.next))


def test_a_record_comes_back_whole(history: History) -> None:
    record = request_record(client="ann", stalls=[stall()])
    filled(history, [record])
    assert history.get(record.id) == record
    assert history.get("chatcmpl-none") is None
    assert history.page().records == [RequestSummary.of(record)]


def test_what_a_record_says_of_targets_and_tiers_comes_back(history: History) -> None:
    record = request_record()
    timings = replace(record.timings, gap_target_ms=50.0, raised_gap_target_ms=70.0, raised_at_answers=3, preemptions=2)
    record = msgspec.structs.replace(record, timings=timings, service_tier="flex")
    filled(history, [record])
    assert history.get(record.id) == record


def test_a_record_of_before_there_were_targets_and_tiers_is_read() -> None:
    old = msgspec.to_builtins(request_record())
    del old["service_tier"]
    for name in ("gap_target_ms", "raised_gap_target_ms", "raised_at_answers", "preemptions"):
        del old["timings"][name]
    found = unpack(zlib.compress(msgspec.msgpack.encode((old | {"token_ms": []}, [1000, 2000]))))
    assert (found.service_tier, found.timings.gap_target_ms, found.timings.preemptions) == ("default", None, 0)
    assert found.token_ms == [1.0, 3.0]
    assert verdict(found).sentences


@given(st.lists(st.integers(0, 10**12), max_size=50))
def test_tokens_keep_their_microsecond(instants_us: list[int]) -> None:
    record = request_record(token_ms=[us / 1000 for us in instants_us])
    assert unpack(pack(record)) == record


@pytest.mark.parametrize("limit", [1, 7, 60, 1000])
def test_pages_give_each_record_once_newest_first(history: History, limit: int) -> None:
    records = some_records(60)
    found = all_pages(filled(history, records), limit)
    assert sorted(s.id for s in found) == sorted(r.id for r in records)
    arrivals = [s.arrived_at for s in found]
    assert arrivals == sorted(arrivals, reverse=True)


@pytest.mark.parametrize(
    "filters",
    [
        {"client": "ann"},
        {"model": "big"},
        {"end": "failed"},
        {"text": "chatcmpl-000"},
        {"slower_than_ms": 1000.0},
        {"client": "bob", "model": "small", "end": "stop", "text": "chatcmpl-00", "slower_than_ms": 100},
        {"client": "nobody"},
    ],
)
def test_filters_let_through_what_meets_all_of_them(history: History, filters: dict[str, object]) -> None:
    records = some_records(60)
    expected = {s.id for s in map(RequestSummary.of, records) if _meets(s, filters)}
    found = all_pages(filled(history, records), 4, **filters)
    assert {s.id for s in found} == expected
    assert len(found) == len(expected)


def _meets(summary: RequestSummary, filters: dict[str, object]) -> bool:
    text = str(filters.get("text", ""))
    slower = filters.get("slower_than_ms", -1.0)
    assert isinstance(slower, int | float)
    equal = all(getattr(summary, name) == filters[name] for name in ("client", "model", "end") if name in filters)
    return equal and summary.id.startswith(text) and summary.total_ms > slower


def test_percent_and_underscore_in_an_id_are_letters(history: History) -> None:
    filled(history, [request_record("a%b"), request_record("axb"), request_record("a_b")])
    assert [s.id for s in history.page(text="a%").records] == ["a%b"]
    assert [s.id for s in history.page(text="a_").records] == ["a_b"]


def test_a_page_is_kept_while_new_records_come(history: History) -> None:
    records = some_records(20)
    first = filled(history, records).page(limit=10)
    filled(history, [request_record("new", arrived_at=ARRIVED_AT + 10**6)])
    second = history.page(before=first.next, limit=10)
    assert {s.id for s in first.records + second.records} == {r.id for r in records}


def test_a_cursor_that_is_none_says_so() -> None:
    with pytest.raises(LegatoError, match="no place in the history"):
        Cursor.parse("yesterday")


PLANS = [
    ({}, "by_arrival"),
    ({"client": "ann"}, "by_client"),
    ({"model": "small"}, "by_model"),
    ({"end": "stop"}, "by_end"),
    ({"text": "chatcmpl-"}, "by_arrival"),
    ({"slower_than_ms": 1.0}, "by_arrival"),
    ({"client": "ann", "text": "chatcmpl-", "slower_than_ms": 1.0}, "by_client"),
]


@pytest.mark.parametrize(("filters", "index"), PLANS)
@pytest.mark.parametrize("before", [None, Cursor(ARRIVED_AT + 10, 5)])
def test_a_common_filter_is_read_in_order_and_never_sorted(
    large: History, filters: dict[str, object], index: str, before: Cursor | None
) -> None:
    plan = _plan(large, before=before, **filters)
    assert f"USING INDEX {index}" in plan
    assert "TEMP B-TREE" not in plan


@pytest.mark.parametrize(
    ("filters", "index"),
    [
        ({"text": "chatcmpl-00000012"}, "by_id"),
        ({"slower_than_ms": 5000.0}, "by_total"),
        ({"client": "ann", "slower_than_ms": 5000.0}, "by_total"),
        ({"client": "ann", "end": "failed"}, "by_end"),
    ],
)
def test_a_rare_filter_reads_only_its_own_rows(large: History, filters: dict[str, object], index: str) -> None:
    plan = _plan(large, before=None, **filters)
    assert f"SEARCH requests USING INDEX {index}" in plan


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[History]:
    """Enough rows that the common filters are not rare."""
    path = tmp_path_factory.mktemp("large") / "history.sqlite"
    opened(path).close()
    columns = ", ".join(f'"{name}"' for name in RequestSummary.__struct_fields__)
    with sqlite3.connect(path) as file:
        file.execute(
            f"INSERT INTO requests ({columns}) WITH RECURSIVE n(i) AS "
            f"(SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < {RARE_ROWS + 100}) "
            f"SELECT printf('chatcmpl-%08d', i), {ARRIVED_AT} + i, 'ann', 'small', 'chat', "
            "iif(i % 1000 = 0, 'failed', 'stop'), 9, 0, 9, 1, 0, 9, 9, 9, iif(i % 900 = 0, 9999, 99), 9, 0, '' FROM n"
        )
        # The failed ones must not make the others rare.
        file.execute(
            f"INSERT INTO requests ({columns}) SELECT id || 'b', {columns.partition(', ')[2]} FROM requests LIMIT 200"
        )
    file.close()
    history = opened(path)
    yield history
    history.close()


def _plan(history: History, **arguments: object) -> str:
    """How SQLite goes about the list's query."""
    statements: list[str] = []
    history.page(limit=1)  # opens the file
    reader = history._reader
    assert reader is not None
    reader.set_trace_callback(statements.append)
    history.page(**arguments)  # type: ignore[arg-type]
    reader.set_trace_callback(None)
    return "\n".join(row[3] for row in reader.execute(f"EXPLAIN QUERY PLAN {statements[-1]}"))


def test_a_record_that_cannot_be_read_is_none(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    history = filled(opened(path), [request_record("broken"), request_record("strange"), request_record("whole")])
    with sqlite3.connect(path) as file:
        file.execute("UPDATE records SET packed = ? WHERE number = 1", (b"torn",))
        file.execute("UPDATE records SET packed = ? WHERE number = 2", (zlib.compress(b"\x92\x80\x90"),))
    file.close()
    assert history.get("broken") is None
    assert history.get("strange") is None
    assert history.get("whole") is not None
    assert caplog.text.count("cannot be read") == 2
    history.close()


def test_only_this_user_may_read_it(path: Path) -> None:
    history = filled(opened(path), [request_record()])
    try:
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        for file in path.parent.iterdir():
            assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    finally:
        history.close()


def test_it_is_there_after_closing_and_opening(path: Path) -> None:
    filled(opened(path), some_records(5)).close()
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    again = opened(path)
    assert len(again.page().records) == 5
    assert again.problem is None
    again.close()


def test_closing_writes_what_waits(path: Path) -> None:
    history = opened(path)
    for record in some_records(1000):
        history.add(record)
    history.close()
    again = opened(path)
    assert len(again.page(limit=2000).records) == 1000
    again.close()


def test_a_slow_disk_drops_the_oldest_and_counts_them(path: Path) -> None:
    history = History.open(path, max_age_s=None, max_bytes=None, queue_limit=10)
    with sqlite3.connect(path) as other:
        other.execute("BEGIN IMMEDIATE")  # nobody else may write until it ends
        for record in some_records(100):
            history.add(record)
        other.rollback()
    other.close()
    assert history.flush()
    kept = history.page(limit=1000).records
    assert len(kept) + history.dropped == 100
    assert history.dropped >= 80
    assert "chatcmpl-0099" in {s.id for s in kept}
    history.close()


def test_a_killed_writer_leaves_a_whole_file(path: Path) -> None:
    script = textwrap.dedent(
        f"""
        from pathlib import Path
        from legato.sinks.history import History
        from tests.telemetry.records import request_record
        history = History.open(Path({str(path)!r}), max_age_s=None, max_bytes=200_000)
        for i in range(10**9):
            history.add(request_record(f"r{{i}}"))
            if i % 100 == 0:
                history.flush()
                print(i, flush=True)
        """
    )
    process = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    written = 0
    while written < 1000:
        written = int(process.stdout.readline())
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    history = opened(path)
    assert history.problem is None
    assert history.get(f"r{written}") is not None
    history.close()
    file = sqlite3.connect(path)
    assert file.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    file.close()


def test_old_records_go(path: Path) -> None:
    records = [request_record(f"r{day}", arrived_at=ARRIVED_AT - day * 86400) for day in range(10)]
    history = filled(opened(path, max_age_s=5 * 86400), records)
    history.close()
    again = opened(path, max_age_s=5 * 86400)
    again.add(request_record("new"))
    again.flush()
    assert {s.id for s in again.page().records} == {"new", *(f"r{day}" for day in range(6))}
    assert again.get("r9") is None
    assert again.get("r5") is not None
    again.close()


def test_old_records_go_when_it_is_opened(path: Path) -> None:
    filled(opened(path), some_records(5)).close()
    later = opened(path, max_age_s=86400, now=ARRIVED_AT + YEAR_S)
    deadline = time.monotonic() + 10
    while later.page().records and time.monotonic() < deadline:
        time.sleep(0.01)
    assert later.page().records == []
    later.close()


def test_the_file_stays_within_its_size(path: Path) -> None:
    count, limit, slack = 900, 2 << 20, 3 << 20
    history = opened(path, max_bytes=limit)
    largest = 0
    for i in range(count):
        history.add(uneven_record(i))
        if i % 50 == 0:
            assert history.flush()
            largest = max(largest, sum(part.stat().st_size for part in path.parent.iterdir()))
    assert history.flush()
    kept = history.page(limit=2000).records
    history.close()
    assert largest <= limit + slack
    assert path.stat().st_size <= limit
    assert 100 < len(kept) < count
    assert [s.id for s in kept] == [f"r{i}" for i in reversed(range(count - len(kept), count))]


def uneven_record(i: int) -> RequestRecord:
    """One whose tokens' instants compress badly: about 5 KB."""
    gaps_ms = np.random.default_rng(i).integers(20_000, 40_000, 2000) / 1000
    return request_record(f"r{i}", arrived_at=ARRIVED_AT + i, token_ms=gaps_ms.cumsum().round(3).tolist())


def test_lowering_the_limit_shortens_the_file(path: Path) -> None:
    filled(opened(path), [uneven_record(i) for i in range(300)]).close()
    before = path.stat().st_size
    opened(path, max_bytes=before // 2).close()
    assert 0 < path.stat().st_size <= before // 2


@pytest.mark.parametrize("content", [b"not a database at all" * 500, b"SQLite format 3\x00" + b"\xff" * 8000])
def test_a_damaged_file_is_set_aside(path: Path, content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    history = filled(opened(path), [request_record()])
    assert history.problem is not None
    assert "is damaged: it was set aside as history.sqlite.damaged-1" in history.problem
    assert [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING] == [history.problem]
    assert path.with_name("history.sqlite.damaged-1").read_bytes() == content
    assert len(history.page().records) == 1
    assert history.is_on
    history.close()


def test_a_second_damaged_file_has_a_name_of_its_own(path: Path) -> None:
    for _ in range(2):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"no database" * 500)
        opened(path).close()
    assert path.with_name("history.sqlite.damaged-1").exists()
    assert path.with_name("history.sqlite.damaged-2").exists()


def test_a_newer_file_is_set_aside_and_not_touched(path: Path) -> None:
    filled(opened(path), some_records(3)).close()
    with sqlite3.connect(path) as file:
        file.execute("PRAGMA user_version = 99")
    file.close()
    history = opened(path)
    assert history.problem is not None
    assert "newer Legato" in history.problem
    assert history.page().records == []
    history.close()
    with sqlite3.connect(path.with_name("history.sqlite.damaged-1")) as file:
        assert file.execute("SELECT count(*) FROM requests").fetchone() == (3,)
    file.close()


def test_another_programs_file_is_set_aside(path: Path) -> None:
    path.parent.mkdir()
    with sqlite3.connect(path) as file:
        file.execute("CREATE TABLE notes (text)")
    file.close()
    history = opened(path)
    assert history.problem is not None
    assert "not a history" in history.problem
    history.close()


def test_damage_met_while_reading_begins_a_new_file(path: Path) -> None:
    filled(opened(path), [request_record(f"r{i}", arrived_at=ARRIVED_AT + i) for i in range(3000)]).close()
    size = path.stat().st_size
    with path.open("r+b") as raw:
        raw.seek(size // 4)
        raw.write(os.urandom(size // 2))
    history = opened(path)
    history.page(limit=3000)
    deadline = time.monotonic() + 10
    while not path.with_name("history.sqlite.damaged-1").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert history.problem is not None
    filled(history, [request_record("new")])
    assert history.get("new") is not None
    history.close()


def test_a_folder_that_cannot_be_made_turns_it_off(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("in the way")
    history = opened(tmp_path / "file" / "history.sqlite")
    history.add(request_record())
    assert history.flush()
    assert history.problem is not None
    assert "no longer kept" in history.problem
    assert len(caplog.records) == 1
    assert history.dropped == 1
    assert not history.is_on
    assert history.page().records == []
    assert history.get("chatcmpl-1") is None
    history.close()


def test_a_full_disk_turns_it_off_and_adding_goes_on(path: Path) -> None:
    script = textwrap.dedent(
        f"""
        import resource
        from pathlib import Path
        from legato.sinks.history import History
        from tests.telemetry.records import request_record
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
        history = History.open(Path({str(path)!r}), max_age_s=None, max_bytes=None)
        for i in range(20):
            for j in range(100):
                history.add(request_record(f"r{{i}}-{{j}}", tokens=500))
            assert history.flush()
        history.add(request_record())
        assert history.problem and "no longer kept" in history.problem, history.problem
        assert history.dropped > 0
        history.page()
        history.close()
        print("served")
        """
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout == "served\n", done.stderr
    assert done.stderr.count("no longer kept") == 1


def test_it_is_read_while_it_is_written(path: Path) -> None:
    history = opened(path)
    stop = threading.Event()

    def write() -> None:
        for i in range(5000):
            history.add(request_record(f"r{i}", arrived_at=ARRIVED_AT + i))
        stop.set()

    writer = threading.Thread(target=write)
    writer.start()
    while not stop.is_set():
        history.page(limit=20, text="r1")
    writer.join()
    assert history.flush()
    assert history.problem is None
    assert len(history.page(limit=9000).records) + history.dropped == 5000
    history.close()
