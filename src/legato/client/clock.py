"""The server's clock, and what workers that go by another machine's tell, told by it."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec

from legato.wire.messages import Report

KEPT_ROUND_TRIPS = 16
"""Latest round trips that an offset is estimated from: two machines' clocks drift apart, so old ones must go."""


@dataclass(frozen=True, slots=True)
class ServerClock:
    """Where instants come from and how to wait, so that tests can do without."""

    now: Callable[[], float] = time.monotonic
    """Seconds of this machine's monotonic clock."""
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


class WorkerClock:
    """How far a worker's monotonic clock is from the server's. On one machine all processes share one."""

    def __init__(self) -> None:
        self.offset_s = 0.0
        """What must be added to the worker's instants; exactly zero until a round trip says otherwise."""
        self._round_trips: deque[tuple[float, float]] = deque(maxlen=KEPT_ROUND_TRIPS)
        """How long each took, and the offset that it says, s."""

    def observe(self, sent_s: float, worker_s: float, received_s: float) -> None:
        """The worker told its time, about in the middle of a round trip on the server's clock.

        The shortest one is off the least.
        """
        self._round_trips.append((received_s - sent_s, (sent_s + received_s) / 2 - worker_s))
        self.offset_s = min(self._round_trips)[1]


def on_server_clock(report: Report, offset_s: float) -> Report:
    """A worker's report with its instants on the server's clock, `offset_s` later; the same report if that is zero."""
    if not offset_s:
        return report
    call = report.call
    if call is not None:
        call = msgspec.structs.replace(call, begun_s=call.begun_s + offset_s, ended_s=call.ended_s + offset_s)
    return msgspec.structs.replace(report, at_s=report.at_s + offset_s, call=call)
