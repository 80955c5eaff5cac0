"""What changes, told to every open dashboard: found once, four times a second, whoever is looking."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Iterable
from itertools import islice, pairwise
from typing import Any

import msgspec

from legato.client.status import Stopped
from legato.core.calls import Call
from legato.server.recorder import running
from legato.server.service import Service
from legato.server.sse import event
from legato.server.status import status_of, step_of
from legato.sinks.utilisation import UtilisationMonitor
from legato.telemetry.record import LiveRequest
from legato.telemetry.summary import RequestSummary

TICK_S = 0.25
"""How often is looked for changes while somebody watches."""
STATUS_EVERY = 4
"""Ticks between two looks at the server as a whole."""
FIRST_STEPS_S = 60.0
"""How far back the steps go that a page begins with."""
FIRST_ENDED = 50
"""Ended requests that a page begins with."""
MOST_STEPS = 400
"""Steps that one event tells; a page that is shown more cannot draw them."""
MOST_WAITING = 40
"""Events that may wait for a page to take them, some seconds; a page that is slower is let go and comes again."""


class Broadcast:
    """Tells pages what is new. Nothing is done while nobody watches."""

    def __init__(self, service: Service, utilisation: UtilisationMonitor) -> None:
        self._service = service
        self._utilisation = utilisation
        self._id = secrets.token_hex(8)
        self._watchers: set[asyncio.Queue[bytes | None]] = set()
        self._ticking: asyncio.Task[None] | None = None
        self._status: dict[str, Any] = {}
        self._requests: dict[str, LiveRequest] = {}
        self._told_tokens: dict[str, int] = {}
        """By request, the tokens whose gaps were told."""
        self._last_step = 0
        self._ended = 0

    async def watch(self, hello: dict[str, Any]) -> AsyncIterator[bytes]:
        """The events of one page, from all that is there now on; `hello` is what it is to know of itself."""
        queue: asyncio.Queue[bytes | None] = asyncio.Queue(MOST_WAITING)
        if not self._watchers:
            # Begin anew: nobody was told what happened meanwhile.
            self._news()
            await self._new_status()
        first = self._first(hello)
        self._watchers.add(queue)
        if self._ticking is None or self._ticking.done():
            self._ticking = asyncio.create_task(self._tick())
        try:
            for old in first:
                yield old
            while (new := await queue.get()) is not None:
                yield new
        finally:
            self._watchers.discard(queue)

    def _first(self, hello: dict[str, Any]) -> Iterable[bytes]:
        """Everything that a page begins with: as far as the others were told, for it gets the next news with them."""
        recorder = self._service.recorder
        since_s = time.monotonic() - FIRST_STEPS_S
        known = recorder.calls(self._last_step - 4 * MOST_STEPS, 4 * MOST_STEPS)
        return [
            event(hello | {"server": self._id, "now": recorder.calendar(time.monotonic())}, "hello"),
            event(self._status, "status"),
            event({"changed": list(self._requests.values()), "gone": []}, "requests"),
            self._ended_event(recorder.ended_count - self._ended, FIRST_ENDED),
            self._steps_event(one for one in known if one[0] <= self._last_step and one[1].ended_s > since_s),
        ]

    async def _tick(self) -> None:
        number = 0
        while self._watchers:
            await asyncio.sleep(TICK_S)
            number += 1
            if isinstance(self._service.state, Stopped):
                # A stopping server waits for its connections: pages let go, and come again.
                for queue in list(self._watchers):
                    self._let_go(queue)
                return
            events = self._news()
            if number % STATUS_EVERY == 0:
                events += await self._new_status()
            for queue in list(self._watchers):
                if queue.qsize() + len(events) > MOST_WAITING:
                    self._let_go(queue)
                    continue
                for new in events:
                    queue.put_nowait(new)

    def _let_go(self, queue: asyncio.Queue[bytes | None]) -> None:
        """End a page's events."""
        self._watchers.discard(queue)
        if queue.full():
            queue.get_nowait()
        queue.put_nowait(None)

    async def _new_status(self) -> list[bytes]:
        status = await status_of(self._service, self._utilisation)
        if status == self._status:
            return []
        self._status = status
        return [event(status, "status")]

    def _news(self) -> list[bytes]:
        """The events of what is new since this was asked last."""
        events: list[bytes] = []
        if gaps := self._new_gaps():
            events.append(event(gaps, "gaps"))
        if silent := self._silent():
            events.append(event(silent, "silent"))
        changed, gone = self._changed_requests()
        if changed or gone:
            events.append(event({"changed": changed, "gone": gone}, "requests"))
        recorder = self._service.recorder
        calls = recorder.calls(self._last_step, 10 * MOST_STEPS)
        if calls:
            self._last_step = calls[-1][0]
            events.append(self._steps_event(calls[-MOST_STEPS:]))
        if new := recorder.ended_count - self._ended:
            self._ended = recorder.ended_count
            events.append(self._ended_event(0, min(new, FIRST_ENDED)))
        return events

    def _steps_event(self, calls: Iterable[tuple[int, Call]]) -> bytes:
        steps = [step_of(number, call, self._service.recorder) for number, call in calls]
        return event({"steps": steps}, "steps")

    def _ended_event(self, skipped: int, most: int) -> bytes:
        """Requests that ended, oldest first, without so many of the latest."""
        latest = islice(self._service.recorder.latest(), skipped, skipped + most)
        return event({"requests": [RequestSummary.of(record) for record in latest][::-1]}, "ended")

    def _changed_requests(self) -> tuple[list[LiveRequest], list[str]]:
        """Those that are otherwise than they were told, but for their age, which a page knows by itself."""
        now = {one.id: one for one in running(self._service.engine)}
        before = self._requests
        changed = [one for one in now.values() if one.id not in before or _ageless(one) != _ageless(before[one.id])]
        gone = [request_id for request_id in before if request_id not in now]
        self._requests = now
        return changed, gone

    def _new_gaps(self) -> dict[str, list[float]]:
        """By request, the gaps between its tokens since they were told last, ms."""
        gaps: dict[str, list[float]] = {}
        times_s = {request.origin.id: request.timeline.token_times_s for request in self._service.engine.requests}
        for name, times in times_s.items():
            told = max(1, self._told_tokens.get(name, len(times)))
            if new := [round((now - before) * 1000, 1) for before, now in pairwise(times[told - 1 :])]:
                gaps[name] = new
        self._told_tokens = {name: len(times) for name, times in times_s.items()}
        return gaps

    def _silent(self) -> dict[str, float]:
        """By request, for how long no token of its answer has come, ms: of those that wait beyond their gap target.

        A page cannot know: how late the news come tells nothing of the answer.
        """
        now_s = time.monotonic()
        silent: dict[str, float] = {}
        for request in self._service.engine.requests:
            timeline = request.timeline
            if timeline.token_times_s and (wait_s := now_s - timeline.token_times_s[-1]) > timeline.stall_from_s:
                silent[request.origin.id] = round(wait_s * 1000, 1)
        return silent


def _ageless(one: LiveRequest) -> LiveRequest:
    return msgspec.structs.replace(one, since_ms=0.0)
