"""What time it is: given to whoever needs to know, so that a virtual clock can stand in for the machine's."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """One clock for everything that is compared."""

    def now_s(self) -> float:
        """Seconds of a clock that only goes forward, from an instant of its own."""

    def calendar_s(self) -> float:
        """Seconds since 1970, for what outlives the process."""

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
