"""The loop's connection to a server that isn't there: messages that come at their times, and all that it reported."""

from __future__ import annotations

import heapq
import itertools

from legato.simulate.clock import VirtualClock
from legato.wire.messages import FromWorker, ToWorker


class NobodyLeftError(Exception):
    """The loop waits for a message, and none will ever come."""


class SimulatedMailbox:
    """Delivers messages when they are due.

    Args:
        clock: Of the simulation. While the loop waits, it goes on to the next message.
    """

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._coming: list[tuple[float, int, ToWorker]] = []
        self._order = itertools.count()
        self.sent: list[FromWorker] = []
        """What the loop has sent, in its order; take out what was read."""

    def post(self, message: ToWorker, at_s: float | None = None) -> None:
        """Have a message delivered.

        Args:
            message: It.
            at_s: When, on the clock; now, if left out. Of one instant, the first posted comes first.
        """
        heapq.heappush(self._coming, (self._clock.now_s() if at_s is None else at_s, next(self._order), message))

    @property
    def coming(self) -> int:
        """Messages that are not delivered yet."""
        return len(self._coming)

    def receive(self, *, wait: bool) -> ToWorker | None:
        """The next message that is due; with `wait`, time passes until one is.

        Raises:
            NobodyLeftError: It would wait for ever.
        """
        if wait:
            if not self._coming:
                raise NobodyLeftError
            self._clock.sleep(self._coming[0][0] - self._clock.now_s())
        if self._coming and self._coming[0][0] <= self._clock.now_s():
            return heapq.heappop(self._coming)[2]
        return None

    def send(self, message: FromWorker) -> None:
        """Keep what the loop reports."""
        self.sent.append(message)
