"""What the reports of an engine say about time: of each request in its timeline, and of the library's calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from legato.client.clock import ServerClock
from legato.client.request_stream import RequestStream
from legato.core.answers import EngineEnd
from legato.core.calls import Call
from legato.telemetry.attribution import Attribution, Stretch
from legato.wire.messages import Report


class Meter:
    """Fills in timelines, and charges their time to causes; `on_call` is told of each library call."""

    def __init__(self, clock: ServerClock, on_call: Callable[[Call], None]) -> None:
        self.mean_request_s = 5.0
        """How long requests hold their KV cells; the latest ones count most, and before the first it is a guess."""
        self._clock = clock
        self._on_call = on_call
        self._attribution = Attribution()
        self._not_ready_since_s = clock.now()

    def lost(self) -> None:
        """The worker is gone: until the next one is ready, requests wait for a load."""
        self._attribution.reset()
        self._not_ready_since_s = self._clock.now()

    def ready(self, requests: Iterable[RequestStream]) -> None:
        """A worker is ready for the requests that waited for it."""
        now_s = self._clock.now()
        for request in requests:
            request.timeline.load_s += now_s - max(self._not_ready_since_s, request.timeline.arrived_s)

    def take(self, report: Report, requests: Mapping[int, RequestStream]) -> None:
        """Enter a report, whose instants are on the server's clock, into the timelines of requests, given by number."""
        for number in report.admitted:
            if request := requests.get(number):
                self._admit(request, report.at_s)
        if report.call is not None:
            self._attribution.call(report.call)
            self._on_call(report.call)
            for chunk in report.call.chunks:
                if request := requests.get(chunk.request):
                    request.timeline.add_chunk(report.call, chunk.start, chunk.tokens)
        for restored in report.restored:
            if request := requests.get(restored.request):
                request.timeline.restore(restored)
        for number, possible_s in report.raised:
            if request := requests.get(number):
                answers = sum(other.answering and other.running for other in requests.values())
                request.timeline.raise_gap_target(possible_s, answers)
        for number, *_ in report.tokens:
            if request := requests.get(number):
                request.answering = True
        for number in report.preempted:
            if request := requests.get(number):
                self._preempt(request, report.at_s)

    def stretch(self, request_id: int, report: Report) -> Stretch | None:
        """What a request waited for until a report brought a token of it; None where calls are not recorded."""
        return self._attribution.stretch(request_id, report.at_s) if report.call is not None else None

    def end(self, request: RequestStream, reason: EngineEnd | None) -> None:
        """A request ended, or was left (no reason)."""
        timeline = request.timeline
        timeline.ended_s = self._clock.now()
        self._attribution.forget(request.submit.id)
        if reason not in (None, "failed"):
            took_s = timeline.ended_s - (timeline.admitted_s or timeline.arrived_s)
            self.mean_request_s += 0.2 * (took_s - self.mean_request_s)

    def _admit(self, request: RequestStream, at_s: float) -> None:
        """It has KV cells. What it waits for before its first token is queue, and nobody's; later it is a gap."""
        if not request.started:
            self._attribution.admit(request.submit.id, request.origin.id, at_s)
        elif not request.answering:
            self._attribution.resume(request.submit.id, at_s)
        request.timeline.admit(at_s)

    def _preempt(self, request: RequestStream, at_s: float) -> None:
        """It has no KV cells any more."""
        if not request.answering:
            self._attribution.pause(request.submit.id, at_s)
        request.timeline.preempt(at_s, answering=request.answering)
