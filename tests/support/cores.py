"""Which cores a server under test has."""

from __future__ import annotations

import os


def core_each() -> dict[str, str]:
    """The environment of a process that a test starts.

    Where tests run side by side each server computes with one thread: threads of two servers would wait for each other.
    """
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return {}
    return {"LEGATO_THREADS": "1", "LEGATO_THREADS_PREFILL": "1"}
