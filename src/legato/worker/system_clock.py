"""The machine's own clock, which all its processes share."""

from __future__ import annotations

import time


class SystemClock:
    """`legato.core.clock.Clock` as the machine tells it."""

    now_s = staticmethod(time.monotonic)
    calendar_s = staticmethod(time.time)
    sleep = staticmethod(time.sleep)
