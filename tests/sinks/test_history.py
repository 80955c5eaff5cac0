"""The list of ended requests: its pages, its filters, and how they are found."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from legato.errors import LegatoError
from legato.sinks.history import History
from legato.sinks.history_file import RARE_ROWS, connect, filters_of, select
from legato.telemetry.summary import Cursor, RequestSummary
from tests.sinks.histories import filled, opened, some_records
from tests.telemetry.records import ARRIVED_AT, request_record, stall


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
    large: Path, filters: dict[str, Any], index: str, before: Cursor | None
) -> None:
    plan = _plan(large, before, filters)
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
def test_a_rare_filter_reads_only_its_own_rows(large: Path, filters: dict[str, Any], index: str) -> None:
    plan = _plan(large, None, filters)
    assert f"SEARCH requests USING INDEX {index}" in plan


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
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
    return path


def _plan(path: Path, before: Cursor | None, filters: dict[str, Any]) -> str:
    """How SQLite goes about the list's query."""
    statements: list[str] = []
    names = ("client", "model", "end", "text", "slower_than_ms")
    with closing(connect(path)) as file:
        file.set_trace_callback(statements.append)
        select(file, filters_of(*(filters.get(name) for name in names)), before, 50)
        file.set_trace_callback(None)
        return "\n".join(row[3] for row in file.execute(f"EXPLAIN QUERY PLAN {statements[-1]}"))
