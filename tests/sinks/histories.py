"""Histories and their records, for tests."""

from __future__ import annotations

from pathlib import Path

from legato.sinks.history import History
from legato.telemetry.record import RequestRecord
from tests.telemetry.records import ARRIVED_AT, request_record


def opened(
    path: Path, *, max_age_s: float | None = None, max_bytes: int | None = None, now: float = ARRIVED_AT
) -> History:
    return History(path, max_age_s=max_age_s, max_bytes=max_bytes, clock=lambda: now)


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
