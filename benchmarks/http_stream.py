"""Streams read straight from sockets, so that the client's own work hardly counts beside a token's."""

from __future__ import annotations

import json
import selectors
import socket
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import psutil


@dataclass
class Stream:
    """One streamed request and when each of its events came."""

    name: str
    path: str
    body: dict[str, Any]
    start_after_s: float = 0.0
    """When to send it, from the beginning of the run."""
    sent_s: float = 0.0
    times_s: list[float] = field(default_factory=list)
    """When each event with text arrived."""
    stolen_s: list[float] = field(default_factory=list)
    """For each of them, the processor time that the machine's host had given to others by then, of all cores; 0 where
    that is not known."""
    data: bytearray = field(default_factory=bytearray)
    ended_s: float | None = None

    @property
    def gaps_s(self) -> list[float]:
        """Times between neighbouring events."""
        return [b - a for a, b in pairwise(self.times_s)]

    @property
    def ttft_s(self) -> float:
        """From sending to the first event with text."""
        return self.times_s[0] - self.sent_s

    def events(self) -> list[Any]:
        """All whole events, parsed after the run."""
        lines = self.data[: self.data.rfind(b"\n") + 1].decode().splitlines()
        return [json.loads(line[6:]) for line in lines if line.startswith("data: {")]


def run(port: int, streams: list[Stream], *, until: Collection[Stream] = (), timeout_s: float = 300) -> None:
    """Send every stream at its time and read until all have ended, or until the given ones have.

    Raises:
        TimeoutError: They did not.
        RuntimeError: A server refused or failed.
    """
    selector = selectors.DefaultSelector()
    begun = time.perf_counter()
    waiting = sorted(streams, key=lambda s: s.start_after_s)
    running = 0
    while waiting or running:
        now = time.perf_counter() - begun
        while waiting and waiting[0].start_after_s <= now:
            _send(port, waiting[0], selector)
            waiting.pop(0)
            running += 1
        pause = waiting[0].start_after_s - now if waiting else 1.0
        for key, _ in selector.select(max(0.0, pause)):
            running -= _read(key.fileobj, key.data, selector)
        if until and all(stream.ended_s is not None for stream in until):
            break
        if now > timeout_s:
            raise TimeoutError(f"no end after {timeout_s} s")
    for key in list(selector.get_map().values()):
        selector.unregister(key.fileobj)
        key.fileobj.close()
    for stream in streams:
        if stream.ended_s is not None and not stream.times_s:
            raise RuntimeError(f"{stream.name} got no text: {bytes(stream.data[:500])!r}")


def _send(port: int, stream: Stream, selector: selectors.BaseSelector) -> None:
    body = json.dumps({**stream.body, "stream": True}).encode()
    head = (
        f"POST {stream.path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    stream.sent_s = time.perf_counter()
    connection.sendall(head.encode() + body)
    connection.setblocking(False)
    selector.register(connection, selectors.EVENT_READ, stream)


def _read(connection: Any, stream: Stream, selector: selectors.BaseSelector) -> int:
    """Read what is there; 1 if that was the end."""
    data = connection.recv(65536)
    now = time.perf_counter()
    if not data:
        stream.ended_s = now
        selector.unregister(connection)
        connection.close()
        return 1
    stream.data += data
    # The first event names the role, the last ones the end: those have no text.
    texts = (
        data.count(b'"content":"') - data.count(b'"content":""') + data.count(b'"text":"') - data.count(b'"text":""')
    )
    stream.times_s.extend([now] * texts)
    stream.stolen_s.extend([getattr(psutil.cpu_times(), "steal", 0.0)] * texts)
    return 0
