"""Where a stretch of time went, by cause."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

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

CAUSES: tuple[Cause, ...] = get_args(Cause)


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

    @property
    def largest(self) -> Cause:
        """The cause that took longest, the earlier of equals."""
        return max(CAUSES, key=self.of)

    def __add__(self, other: CauseTimes) -> CauseTimes:
        ms = {f"{cause}_ms": self.of(cause) + other.of(cause) for cause in CAUSES}
        return CauseTimes(**ms, blamed=merged([*self.blamed, *other.blamed]))

    def rounded(self) -> CauseTimes:
        """All to a microsecond."""
        ms = {f"{cause}_ms": round(self.of(cause), 3) for cause in CAUSES}
        blamed = [Blame(blame.request, blame.tokens, round(blame.ms, 3)) for blame in self.blamed]
        return CauseTimes(**ms, blamed=blamed)


def merged(blamed: Iterable[Blame]) -> list[Blame]:
    """One entry a request, longest first; a time below zero counts as none."""
    sums: dict[str, Blame] = {}
    for blame in blamed:
        before = sums.get(blame.request, Blame("", 0, 0.0))
        sums[blame.request] = Blame(blame.request, before.tokens + blame.tokens, before.ms + max(0.0, blame.ms))
    return sorted(sums.values(), key=lambda blame: -blame.ms)
