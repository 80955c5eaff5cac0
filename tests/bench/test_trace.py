from __future__ import annotations

from pathlib import Path

import pytest

from legato.bench.scenarios.trace import Arrival, load_trace
from legato.errors import LegatoError

HEAD = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
ROWS = "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.6805900,396,109\n2023-11-16 18:15:56.6805900,879,5\n"


def write(folder: Path, text: str) -> Path:
    file = folder / "trace.csv"
    file.write_text(text)
    return file


def test_times_count_from_the_first(tmp_path: Path) -> None:
    arrivals = load_trace(write(tmp_path, HEAD + ROWS)).arrivals
    assert arrivals == (Arrival(0, 374, 44), Arrival(4, 396, 109), Arrival(10, 879, 5))


def test_scales_and_limit(tmp_path: Path) -> None:
    trace = load_trace(write(tmp_path, HEAD + ROWS), rate=2, length=0.1, limit_s=2.0)
    assert trace.arrivals == (Arrival(0, 37, 4), Arrival(2, 40, 11))
    assert trace.options == {"file": "trace.csv", "rate": 2, "length": 0.1, "limit_s": 2.0, "requests": 2}


def test_lengths_stay_above_nothing(tmp_path: Path) -> None:
    trace = load_trace(write(tmp_path, HEAD + ROWS), length=0.0001)
    assert {(one.prompt_tokens, one.answer_tokens) for one in trace.arrivals} == {(1, 1)}


def test_other_columns_and_windows_line_ends(tmp_path: Path) -> None:
    text = "\ufeffKind,GeneratedTokens,TIMESTAMP,ContextTokens\r\nx,5,2023-01-01 00:00:00,7\r\n"
    file = tmp_path / "trace.csv"
    file.write_bytes(text.encode())
    assert load_trace(file).arrivals == (Arrival(0, 7, 5),)


@pytest.mark.parametrize(
    "row",
    [
        "2023-11-16 18:15:57,12",
        "yesterday,1,1",
        "2023-11-16 18:15:57,many,1",
        "2023-11-16 18:15:57,0,1",
        "2023-11-16 18:15:57,5,-1",
        "2023-11-16 18:15:57,1.5,1",
        "2023-11-16 18:15:40,1,1",
        "2023-11-16 18:15:57+01:00,1,1",
    ],
)
def test_malformed_rows_are_named(tmp_path: Path, row: str) -> None:
    with pytest.raises(LegatoError, match=r"^Line 5 of the trace .*malformed"):
        load_trace(write(tmp_path, HEAD + ROWS + row + "\n"))


def test_a_missing_column(tmp_path: Path) -> None:
    with pytest.raises(LegatoError, match=r"Line 1 .* GeneratedTokens"):
        load_trace(write(tmp_path, "TIMESTAMP,ContextTokens\n"))


@pytest.mark.parametrize("text", ["", HEAD])
def test_nothing_in_it(tmp_path: Path, text: str) -> None:
    with pytest.raises(LegatoError, match="trace"):
        load_trace(write(tmp_path, text))


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(LegatoError, match="can't be read"):
        load_trace(tmp_path / "missing.csv")


def test_no_text(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(LegatoError, match="not a CSV text file"):
        load_trace(file)
