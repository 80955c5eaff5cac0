"""Waiting for what must come to pass."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 30.0


def wait_until(condition: Callable[[], T], what: str, *, timeout_s: float = PATIENCE_S) -> T:
    """Return the condition's first true value; fail if there is none in time."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"in {timeout_s:g} s it did not come to pass that {what}")
        time.sleep(0.01)
    return value
