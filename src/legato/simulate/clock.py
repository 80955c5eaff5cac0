"""A clock that moves only when something takes time."""

from __future__ import annotations


class VirtualClock:
    """`legato.core.clock.Clock` without a machine behind it.

    Args:
        now_s: Where it begins, s.
    """

    def __init__(self, now_s: float = 0.0) -> None:
        self._now_s = now_s

    def now_s(self) -> float:
        """Seconds since it began, and what it began with."""
        return self._now_s

    def calendar_s(self) -> float:
        """The same: its calendar begins with it."""
        return self._now_s

    def sleep(self, seconds: float) -> None:
        """Let so much time pass, at once."""
        self._now_s += max(0.0, seconds)
