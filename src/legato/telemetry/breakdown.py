"""One ended request's time, cut up: by phase with the delivery set apart, by cause, and by whose prompts it went on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from legato.core.causes import CAUSES, Blame, Cause, CauseTimes, merged
from legato.telemetry.record import RequestRecord

RequestPhase = Literal["load", "queue", "prefill", "decode", "delivery"]
"""Where the time of a request can go. Delivery is taken out of prefill and decode, in which it happens."""

PHASES: tuple[RequestPhase, ...] = get_args(RequestPhase)


@dataclass(frozen=True, slots=True)
class Breakdown:
    """The time of one request. Nothing in it is below zero."""

    phases_ms: dict[RequestPhase, float]
    """All phases; they add up to the time from arrival to end."""
    causes_ms: dict[Cause, float]
    """What the time after admission went into, as far as it was recorded."""
    blamed: list[Blame]
    """Whose prompts were read meanwhile, one entry a request, longest first."""

    @property
    def total_ms(self) -> float:
        """From arrival to end."""
        return sum(self.phases_ms.values())

    @property
    def dominant(self) -> RequestPhase:
        """The phase that took longest, the earlier of equals."""
        return max(PHASES, key=lambda phase: self.phases_ms[phase])

    @property
    def behind_others_ms(self) -> float:
        """Waiting for a place, and for others' work once it had one."""
        return self.phases_ms["queue"] + self.causes_ms["others_prefill"] + self.causes_ms["others_decode"]

    def share(self, ms: float) -> float:
        """A part of the whole, 0 to 1; 0 if nothing took any time."""
        return min(1.0, ms / self.total_ms) if self.total_ms > 0 else 0.0


def breakdown(record: RequestRecord) -> Breakdown:
    """Cut up the time of an ended request."""
    timings = record.timings
    in_prefill = _delivery_ms(timings.prefill_parts, timings.prefill_ms)
    in_decode = _delivery_ms(timings.decode_parts, timings.decode_ms)
    both = [parts for parts in (timings.prefill_parts, timings.decode_parts) if parts is not None]
    return Breakdown(
        phases_ms={
            "load": max(0.0, timings.load_ms),
            "queue": max(0.0, timings.queue_ms),
            "prefill": max(0.0, timings.prefill_ms - in_prefill),
            "decode": max(0.0, timings.decode_ms - in_decode),
            "delivery": in_prefill + in_decode,
        },
        causes_ms={cause: sum(max(0.0, parts.of(cause)) for parts in both) for cause in CAUSES},
        blamed=merged(blame for parts in both for blame in parts.blamed),
    )


def _delivery_ms(parts: CauseTimes | None, phase_ms: float) -> float:
    """The delivery's part of a phase; a delay that was made good later is none."""
    return 0.0 if parts is None else min(max(0.0, parts.delivery_ms), max(0.0, phase_ms))
