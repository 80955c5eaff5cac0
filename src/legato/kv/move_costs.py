"""What moving KV state takes: out of cells, into cells, from disk; learned like everything else."""

from __future__ import annotations

import statistics
from collections import deque
from typing import Literal

MoveKind = Literal["saving", "loading", "fetching"]
"""Out of cells into memory, from memory into cells, from disk into memory."""

BYTES_PER_S: dict[MoveKind, float] = {"saving": 1.5e9, "loading": 4e9, "fetching": 0.8e9}
"""What is expected of a machine that is not known yet."""
LATEST = 9
"""Moves of a kind whose median counts: one hiccup changes nothing."""


class MoveCosts:
    """Seconds of moves by the number of tokens.

    Args:
        bytes_per_token: Of KV state, about.
    """

    def __init__(self, bytes_per_token: float) -> None:
        self._expected = {kind: bytes_per_token / rate for kind, rate in BYTES_PER_S.items()}
        self._seen: dict[MoveKind, deque[float]] = {kind: deque(maxlen=LATEST) for kind in BYTES_PER_S}

    def predict(self, kind: MoveKind, tokens: int) -> float:
        """Seconds that a move takes."""
        seen = self._seen[kind]
        return tokens * (statistics.median(seen) if seen else self._expected[kind])

    def observe(self, kind: MoveKind, tokens: int, took_s: float) -> None:
        """Learn from a move."""
        if tokens > 0:
            self._seen[kind].append(took_s / tokens)
