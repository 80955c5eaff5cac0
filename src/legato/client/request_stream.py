"""A request in the engine as the server holds it: a stream of events, and its timeline."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from legato.core.answers import EngineEnd, Logprobs
from legato.core.origin import Origin
from legato.telemetry.attribution import Stretch
from legato.telemetry.timeline import Timeline
from legato.wire.messages import Submit


@dataclass(frozen=True, slots=True)
class Token:
    """A token of the answer."""

    token: int
    logprobs: Logprobs | None
    stretch: Stretch | None = None
    """What the engine did for it since the token before; None where calls are not recorded."""


@dataclass(frozen=True, slots=True)
class PromptRead:
    """A part of the prompt was read; the request's timeline says how much."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The one last event of a request."""

    reason: EngineEnd
    error: str = ""
    """What failed, a sentence."""


Event = PromptRead | Token | Ended


class RequestStream:
    """One submitted request: iterate over its events, inside a `with` that cancels it when left early.

    Its timeline is filled in as it goes on; `cancel` ends a request in the engine, by its number.
    """

    def __init__(self, submit: Submit, origin: Origin, timeline: Timeline, cancel: Callable[[int], None]) -> None:
        self.submit = submit
        self.origin = origin
        self.timeline = timeline
        self.attempts = 0
        """Workers that it was given to."""
        self.answering = False
        """The engine has written a token of it, which may not have left yet."""
        self._cancel = cancel
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._ended = False

    @property
    def started(self) -> bool:
        """True once a worker has given it KV cells, whether it still has them or not."""
        return self.timeline.admitted_s is not None

    @property
    def running(self) -> bool:
        """True while it has KV cells; false while it waits for them, for the first time or again."""
        return self.timeline.holds_cells

    def put(self, event: Event) -> None:
        """Deliver an event."""
        self._events.put_nowait(event)

    def __aiter__(self) -> RequestStream:
        return self

    async def __anext__(self) -> Event:
        """The next event; the iteration ends after `Ended`."""
        if self._ended:
            raise StopAsyncIteration
        event = await self._events.get()
        self._ended = isinstance(event, Ended)
        return event

    def __enter__(self) -> RequestStream:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.cancel()

    def cancel(self) -> None:
        """Free its cells within one step; nothing happens if it has ended."""
        self._cancel(self.submit.id)
