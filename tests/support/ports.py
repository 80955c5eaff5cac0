"""Ports for servers under test that are free, and stay so until the server listens there."""

from __future__ import annotations

import itertools
import os
import socket

FIRST = 20_000
EACH = 2_000
"""Ports for each process of pytest. All lie below those that the system gives to whoever names none, so that neither
another process of pytest nor a client's connection takes one between our look at it and its server's."""

_worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 6
_next = itertools.count(os.getpid())


def free_port() -> int:
    """A port of this process where nobody listens, given only once in a while."""
    for number in itertools.islice(_next, EACH):
        port = FIRST + _worker * EACH + number % EACH
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("0.0.0.0", port))
            except OSError:
                continue
        return port
    raise AssertionError(f"none of the {EACH} ports from {FIRST + _worker * EACH} on is free")
