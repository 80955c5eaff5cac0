"""Where a stretch of time went, by cause."""

from __future__ import annotations

from typing import Literal

import msgspec

Cause = Literal["own_decode", "others_decode", "own_prefill", "others_prefill", "engine", "delivery"]
"""What an answer waited for.

own_decode: the library computing this answer's next token, as long as it takes for one answer alone.
others_decode: the longer time that the same call takes because it computes other answers' tokens too, and calls that
    computed only others'.
own_prefill: reading this request's prompt.
others_prefill: reading other requests' prompts.
engine: the engine's loop between calls: planning, sampling, messages.
delivery: from the engine to the network: the server's process, or a client that reads slowly.
"""

CAUSES: tuple[Cause, ...] = (
    "own_decode",
    "others_decode",
    "own_prefill",
    "others_prefill",
    "engine",
    "delivery",
)


class Blame(msgspec.Struct, frozen=True):
    """Time that another request's prompt took."""

    request: str
    """Public id of that request."""
    tokens: int
    """Prompt tokens of it that were read meanwhile."""
    ms: float


class CauseTimes(msgspec.Struct):
    """Where a stretch of time went, by cause, in ms; the parts add up to the stretch. See `Cause`."""

    own_decode_ms: float = 0.0
    others_decode_ms: float = 0.0
    own_prefill_ms: float = 0.0
    others_prefill_ms: float = 0.0
    engine_ms: float = 0.0
    delivery_ms: float = 0.0
    """Below zero where an earlier delay was made good."""
    blamed: list[Blame] = []
    """Whose prompts `others_prefill_ms` was spent on, longest first."""

    def of(self, cause: Cause) -> float:
        """Milliseconds of one cause."""
        value: float = getattr(self, f"{cause}_ms")
        return value

    @property
    def total_ms(self) -> float:
        """All parts together."""
        return sum(self.of(cause) for cause in CAUSES)


class CauseTimesSum:
    """Cause times of many stretches, added up as they come."""

    def __init__(self) -> None:
        self._ms = dict.fromkeys(CAUSES, 0.0)
        self._blamed: dict[str, tuple[int, float]] = {}

    def add(self, parts: CauseTimes) -> None:
        """Add those of one more stretch."""
        for cause in CAUSES:
            self._ms[cause] += parts.of(cause)
        for blame in parts.blamed:
            tokens, ms = self._blamed.get(blame.request, (0, 0.0))
            self._blamed[blame.request] = tokens + blame.tokens, ms + blame.ms

    def total(self) -> CauseTimes:
        """The sums so far."""
        blamed = [Blame(request, tokens, round(ms, 3)) for request, (tokens, ms) in self._blamed.items()]
        blamed.sort(key=lambda blame: blame.ms, reverse=True)
        return CauseTimes(**{f"{cause}_ms": round(ms, 3) for cause, ms in self._ms.items()}, blamed=blamed)
