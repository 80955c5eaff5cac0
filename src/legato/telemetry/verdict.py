"""Why a request took as long as it did: the longest phase, what it went into, whose it was, and what would help."""

from __future__ import annotations

import msgspec

from legato.core.causes import Blame, Cause
from legato.telemetry.advice import ADVICE, Advice, advice
from legato.telemetry.breakdown import RequestPhase, breakdown
from legato.telemetry.record import RequestRecord
from legato.telemetry.sentences import sentences


class CauseShare(msgspec.Struct, frozen=True):
    """Time that went into one cause."""

    cause: Cause
    ms: float
    share: float
    """Of the time from arrival to end, 0 to 1."""


class Verdict(msgspec.Struct, frozen=True):
    """Where the wait came from."""

    dominant: RequestPhase
    """The phase that took longest."""
    share: float
    """Its part of the time from arrival to end, 0 to 1; 0 if nothing took any time."""
    ms: float
    """How long it took."""
    causes: list[CauseShare]
    """What the time after admission went into, longest first, without those that took none."""
    blamed: list[Blame]
    """Whose prompts were read meanwhile, longest first."""
    advice: list[Advice]
    """What would have shortened the wait, as words for programs."""
    sentences: list[str]
    """All of it in plain words; never empty. The advice stands at the end."""


def verdict(record: RequestRecord) -> Verdict:
    """Judge one ended request."""
    times = breakdown(record)
    advised = advice(record, times)
    ms = times.phases_ms[times.dominant]
    longest_first = sorted(times.causes_ms.items(), key=lambda cause_and_ms: -cause_and_ms[1])
    return Verdict(
        dominant=times.dominant,
        share=times.share(ms),
        ms=ms,
        causes=[CauseShare(cause, took_ms, times.share(took_ms)) for cause, took_ms in longest_first if took_ms > 0],
        blamed=times.blamed,
        advice=advised,
        sentences=[*sentences(record, times), *(ADVICE[code] for code in advised)],
    )
