"""The engine's calls, as its worker reports them: what everything else is derived from."""

from __future__ import annotations

import msgspec


class PrefillChunk(msgspec.Struct, frozen=True, array_like=True):
    """Prompt tokens of one request that one call read."""

    request: int
    """The engine's number of the request."""
    start: int
    """Position of the first of them: how deep in the prompt."""
    tokens: int


class Call(msgspec.Struct, frozen=True, array_like=True):
    """One library call: what was in it and how long it took."""

    begun_s: float
    ended_s: float
    """After sampling."""
    decoded: list[int] = []
    """Requests that got their next token, by the engine's number."""
    chunks: list[PrefillChunk] = []
    predicted_s: float | None = None
    """What the cost model expected it to take; None where nothing was predicted."""

    @property
    def took_s(self) -> float:
        """From its begin to its end, s."""
        return self.ended_s - self.begun_s

    @property
    def prediction_error(self) -> float | None:
        """How far the prediction was off, over what it took: 0 is exact; None where nothing was predicted."""
        if self.predicted_s is None or self.took_s <= 0:
            return None
        return abs(self.predicted_s - self.took_s) / self.took_s
