"""The file of ended requests: what is in it, how long it may grow, and what becomes of it when something goes wrong."""

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
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from legato.sinks import history_file
from legato.sinks.history import History
from legato.sinks.history_file import UnusableFileError, pack, unpack
from legato.telemetry.record import RequestRecord
from legato.telemetry.verdict import verdict
from tests.sinks.histories import filled, opened, some_records
from tests.telemetry.records import ARRIVED_AT, request_record

ROOT = Path(__file__).parents[2]
YEAR_S = 365 * 86400.0
TEXT, INTEGER, REAL = "TEXT", "INTEGER", "REAL"
COLUMNS_OF_VERSION_2 = [
    ("number", INTEGER, 0),
    ("id", TEXT, 1),
    ("arrived_at", REAL, 1),
    ("client", TEXT, 0),
    ("model", TEXT, 1),
    ("endpoint", TEXT, 1),
    ("end", TEXT, 1),
    ("prompt_tokens", INTEGER, 1),
    ("cached_tokens", INTEGER, 1),
    ("answer_tokens", INTEGER, 1),
    ("queue_ms", REAL, 1),
    ("load_ms", REAL, 1),
    ("prefill_ms", REAL, 1),
    ("ttft_ms", REAL, 0),
    ("decode_ms", REAL, 1),
    ("total_ms", REAL, 1),
    ("itl_max_ms", REAL, 0),
    ("stalls", INTEGER, 1),
    ("verdict", TEXT, 1),
]
"""Names, types, and whether they must have a value. Others would be another version."""


def test_the_columns_are_those_of_the_version(path: Path) -> None:
    opened(path).close()
    with closing(sqlite3.connect(path)) as file:
        assert file.execute("PRAGMA user_version").fetchone() == (2,)
        assert file.execute("SELECT name, type, \"notnull\" FROM pragma_table_info('requests')").fetchall() == (
            COLUMNS_OF_VERSION_2
        )


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
    history = History(path, max_age_s=None, max_bytes=None, queue_limit=10)
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
        history = History(Path({str(path)!r}), max_age_s=None, max_bytes=200_000)
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
        history = History(Path({str(path)!r}), max_age_s=None, max_bytes=None)
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


def test_a_new_file_that_is_damaged_at_once_turns_it_off(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(_path: Path) -> sqlite3.Connection:
        raise UnusableFileError("is damaged")

    monkeypatch.setattr(history_file, "prepared", damaged)
    path.parent.mkdir()
    path.write_bytes(b"in the way")
    history = opened(path)
    assert not history.is_on
    assert history.problem is not None
    assert "no longer kept" in history.problem
    history.close()
