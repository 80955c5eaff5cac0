"""Requests on their way to workers, and what comes back on its way to them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from legato.client.meter import Meter
from legato.client.request_stream import Ended, PromptRead, RequestStream, Token
from legato.client.supervisor import Supervisor
from legato.errors import LegatoError
from legato.wire.messages import Cancel, Report, ToWorker

SUBMIT_ATTEMPTS = 2
"""Workers that a queued request is given to before it fails with them."""


class QueueFullError(LegatoError):
    """As many requests wait as the settings allow."""

    def __init__(self, waiting: int, retry_after_s: float) -> None:
        super().__init__(f"{waiting} requests are waiting already, the most that this server queues; try again later.")
        self.retry_after_s = retry_after_s
        """About when a place will be free."""


class Dispatcher:
    """Gives requests to workers, and events to requests; `max_queue` of them may wait for KV cells."""

    def __init__(self, supervisors: Sequence[Supervisor], meter: Meter, max_queue: int) -> None:
        self.requests: dict[int, RequestStream] = {}
        """Those that have not ended, by number, oldest first."""
        self._supervisors = supervisors
        self._meter = meter
        self._max_queue = max_queue
        self._idle = asyncio.Event()
        self._idle.set()

    async def idle(self) -> None:
        """Wait until there are no requests."""
        await self._idle.wait()

    def submit(self, request: RequestStream, parallel: int) -> None:
        """Queue a new request, where `parallel` of them can have KV cells at once.

        Raises:
            QueueFullError: Too many wait already.
        """
        waiting = len(self.requests) - parallel
        if waiting >= self._max_queue:
            raise QueueFullError(waiting, self._meter.mean_request_s * max(1, waiting) / parallel)
        if waiting >= 0 or request.submit.background:
            request.timeline.behind = [other.origin.id for other in self.requests.values()]
        # Sent before it is remembered: what can't be sent must not be waited for.
        self._give(request)
        self.requests[request.submit.id] = request
        self._idle.clear()

    def resend(self) -> None:
        """A new worker is ready: give it what has not ended."""
        for request in self.requests.values():
            self._give(request)

    def cancel(self, request_id: int) -> None:
        """Forget a request and free its cells within one step; nothing happens if it has ended."""
        if request := self.requests.get(request_id):
            self._send(Cancel(request_id))
            self._forget(request, None)

    def end_all(self, error: str) -> None:
        """End every request with an error, a sentence."""
        for request in list(self.requests.values()):
            self._send(Cancel(request.submit.id))
            self._forget(request, Ended("failed", error))

    def fail_started(self, error: str) -> None:
        """End what a dead worker had begun, with an error; what was only queued waits for the next one."""
        for request in list(self.requests.values()):
            if request.started or request.attempts >= SUBMIT_ATTEMPTS:
                self._forget(request, Ended("failed", error))

    def take(self, report: Report) -> None:
        """Tell requests what a report brought them; what it brought others than those known here is nothing."""
        self._meter.take(report, self.requests)
        for chunk in report.call.chunks if report.call is not None else ():
            if request := self.requests.get(chunk.request):
                request.put(PromptRead())
        for number, token, logprobs in report.tokens:
            if request := self.requests.get(number):
                request.put(Token(token, logprobs, self._meter.stretch(number, report)))
        for number, reason, error in report.ended:
            if request := self.requests.get(number):
                self._forget(request, Ended(reason, error))

    def _forget(self, request: RequestStream, event: Ended | None) -> None:
        """It has ended, with its last event; without one if nobody waits for it."""
        del self.requests[request.submit.id]
        self._meter.end(request, event.reason if event is not None else None)
        if event is not None:
            request.put(event)
        if not self.requests:
            self._idle.set()

    def _give(self, request: RequestStream) -> None:
        request.attempts += 1
        self._send(request.submit)

    def _send(self, message: ToWorker) -> None:
        """Send a message to the worker that reads and writes; it goes nowhere while there is none."""
        for supervisor in self._supervisors:
            if supervisor.link is not None and supervisor.link.role == "whole":
                supervisor.send(message)
                return
