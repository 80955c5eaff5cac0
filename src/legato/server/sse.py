"""Server-sent events, and noticing that the client has gone."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable
from typing import Any, TypeVar

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

KEEP_ALIVE_S = 10.0
"""Silence after which a comment is sent, so that neither client nor proxy takes a long wait for a dead server."""

T = TypeVar("T")


class ClientGoneError(Exception):
    """The client closed its connection before the answer was complete."""


def event(data: Any, name: str | None = None) -> bytes:
    """One event with JSON, named or not."""
    head = b"" if name is None else b"event: " + name.encode() + b"\n"
    return head + b"data: " + msgspec.json.encode(data) + b"\n\n"


class EventStream(Response):
    """Sends events as they come, and stops their source when the client goes away.

    Leaner than the framework's streaming response: one write a token is the server's busiest path, on CPUs that it
    shares with the engine. Each event is complete, and ends in an empty line.
    """

    media_type = "text/event-stream"

    def __init__(self, events: AsyncIterator[bytes]) -> None:
        super().__init__()
        self._events = events
        self._last_sent = 0.0
        # No length is known, and nothing on the way may keep or gather the events.
        del self.headers["content-length"]
        self.headers["cache-control"] = "no-cache"
        self.headers["x-accel-buffering"] = "no"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send everything, or as much as the client waits for."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        with contextlib.suppress(ClientGoneError):
            await unless_client_goes(self._pump(send), self._watch(receive, send))

    async def _pump(self, send: Send) -> None:
        loop = asyncio.get_running_loop()
        async for event in self._events:
            self._last_sent = loop.time()
            await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _watch(self, receive: Receive, send: Send) -> None:
        """Return when the client is gone; until then break long silences."""
        loop = asyncio.get_running_loop()
        gone = asyncio.ensure_future(disconnected(receive))
        try:
            while not (await asyncio.wait((gone,), timeout=KEEP_ALIVE_S))[0]:
                if loop.time() - self._last_sent >= KEEP_ALIVE_S:
                    await send({"type": "http.response.body", "body": b": still here\n\n", "more_body": True})
        finally:
            gone.cancel()


async def unless_client_goes(answer: Awaitable[T], gone: Awaitable[None]) -> T:
    """The answer; if the client goes first, it is cancelled.

    Raises:
        ClientGoneError: The client went.
    """
    working, watching = asyncio.ensure_future(answer), asyncio.ensure_future(gone)
    try:
        await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGoneError
        return await working
    finally:
        watching.cancel()
        working.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)


async def disconnected(receive: Receive) -> None:
    """Wait until the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
