"""The list of ended requests: its lines, and its pages."""

from __future__ import annotations

from dataclasses import fields

import msgspec

from legato.errors import LegatoError
from legato.telemetry.record import RequestRecord
from legato.telemetry.verdict import verdict


class RequestSummary(msgspec.Struct, frozen=True):
    """One line of the list of ended requests. The fields are those of `RequestRecord` and `Timings`."""

    id: str
    arrived_at: float
    """Unix time, s."""
    client: str | None
    model: str
    endpoint: str
    end: str
    prompt_tokens: int
    cached_tokens: int
    answer_tokens: int
    queue_ms: float
    load_ms: float
    prefill_ms: float
    ttft_ms: float | None
    decode_ms: float
    total_ms: float
    itl_max_ms: float | None
    stalls: int
    verdict: str
    """What the wait was, in one sentence."""

    @classmethod
    def of(cls, record: RequestRecord) -> RequestSummary:
        """The line of a record."""
        timings = record.timings
        known = msgspec.structs.asdict(record) | {field.name: getattr(timings, field.name) for field in fields(timings)}
        known |= {"answer_tokens": timings.decode_tokens, "verdict": verdict(record).sentences[0]}
        return cls(**{name: known[name] for name in cls.__struct_fields__})


class Cursor(msgspec.Struct, frozen=True):
    """A place in the list: just after one request, in the order from new to old."""

    arrived_at: float
    number: int
    """The row, which tells apart requests that arrived at the same instant."""

    def __str__(self) -> str:
        return f"{self.arrived_at!r}_{self.number}"

    @classmethod
    def parse(cls, text: str) -> Cursor:
        """The cursor that `str` made the text of.

        Raises:
            LegatoError: It made no such text.
        """
        arrived_at, _, number = text.partition("_")
        try:
            return cls(float(arrived_at), int(number))
        except ValueError:
            raise LegatoError(f"{text!r} is no place in the history: use the 'next' of the page before.") from None


class Page(msgspec.Struct, frozen=True):
    """A part of the list, newest first."""

    records: list[RequestSummary]
    next: Cursor | None
    """Where the next page begins; None at the end."""
