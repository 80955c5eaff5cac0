"""Where the meter's records go: memory, history, metrics, spans."""

from __future__ import annotations

import statistics
import time
from collections import OrderedDict, deque
from collections.abc import Iterator
from itertools import islice, takewhile

from legato.client.client import EngineClient
from legato.client.status import Loading
from legato.core.calls import Call
from legato.core.origin import EndReason, Origin
from legato.sinks.history import History
from legato.sinks.metrics import Metrics
from legato.sinks.spans import SpanExporter
from legato.telemetry.live import live_request
from legato.telemetry.record import LiveRequest, RequestRecord
from legato.telemetry.timeline import Timeline

REMEMBERED_CALLS = 20_000
"""Latest calls of the engine that can be looked at: some minutes of them."""
JUDGED_CALLS = 500
"""Latest calls that the error of predictions is taken over: some seconds of them."""
REMEMBERED_REQUESTS = 1_000
"""Latest requests that can be looked at where there is no history."""


class Recorder:
    """Takes calls as they are made and requests as they end, and hands them on."""

    def __init__(self, model: str, metrics: Metrics, history: History | None, spans: SpanExporter | None) -> None:
        self.metrics = metrics
        self._model = model
        self.history = history
        """Requests beyond the server's life; None without."""
        self._spans = spans
        self._calls: deque[Call] = deque(maxlen=REMEMBERED_CALLS)
        self._call_count = 0
        self._requests: OrderedDict[str, RequestRecord] = OrderedDict()
        self.ended_count = 0
        """Requests that have ended since the server began."""
        self._names: OrderedDict[int, str] = OrderedDict()
        # What the monotonic clock showed when the calendar's began.
        self._epoch_s = time.time() - time.monotonic()

    def call(self, call: Call) -> None:
        """A library call was made."""
        self._call_count += 1
        self._calls.append(call)
        self.metrics.call(call)

    def ended(self, origin: Origin, timeline: Timeline, end: EndReason, error: str = "") -> None:
        """A request ended, and its last token has left."""
        record = RequestRecord(
            id=origin.id,
            endpoint=origin.endpoint,
            model=self._model,
            client=origin.client,
            arrived_at=self.calendar(timeline.arrived_s),
            end=end,
            error=error,
            prompt_tokens=timeline.prompt_tokens,
            timings=timeline.timings(),
            behind=timeline.behind,
            stalls=timeline.stalls,
            chunks=timeline.chunks,
            token_ms=[round((at - timeline.arrived_s) * 1000, 3) for at in timeline.token_times_s],
            service_tier=origin.service_tier,
        )
        self._requests[record.id] = record
        self.ended_count += 1
        if len(self._requests) > REMEMBERED_REQUESTS:
            self._requests.popitem(last=False)
        self.metrics.request_ended(record)
        if self.history is not None:
            self.history.add(record)
        if self._spans is not None:
            self._spans.export(record)

    def find(self, request_id: str) -> RequestRecord | None:
        """An ended request, by its id."""
        record = self._requests.get(request_id)
        return self.history.get(request_id) if record is None and self.history is not None else record

    def latest(self) -> Iterator[RequestRecord]:
        """Ended requests in memory, newest first."""
        return reversed(self._requests.values())

    def calls(self, after: int, limit: int) -> list[tuple[int, Call]]:
        """Calls after a number, oldest first, each with its own number."""
        forgotten = self._call_count - len(self._calls)
        begin = max(0, after - forgotten)
        return list(enumerate(islice(self._calls, begin, begin + limit), forgotten + begin + 1))

    def calls_since(self, since_s: float) -> list[Call]:
        """Calls that ended after an instant of the monotonic clock, newest first."""
        return list(takewhile(lambda call: call.ended_s > since_s, reversed(self._calls)))

    def prediction_error_p50(self) -> float | None:
        """Median relative error of the latest calls whose time was predicted; None without any."""
        latest = (call.prediction_error for call in islice(reversed(self._calls), JUDGED_CALLS))
        errors = [error for error in latest if error is not None]
        return statistics.median(errors) if errors else None

    def submitted(self, number: int, origin: Origin) -> None:
        """A request was given to the engine, which knows it by a number."""
        self._names[number] = origin.id
        if len(self._names) > REMEMBERED_CALLS:
            self._names.popitem(last=False)

    def name(self, number: int) -> str | None:
        """The id of a request that the engine knows by a number; None if that was too long ago."""
        return self._names.get(number)

    def calendar(self, monotonic_s: float) -> float:
        """Unix time of an instant of the monotonic clock, s."""
        return self._epoch_s + monotonic_s

    def close(self) -> None:
        """Write what is not written yet."""
        if self.history is not None:
            self.history.close()
        if self._spans is not None:
            self._spans.close()


def running(engine: EngineClient) -> list[LiveRequest]:
    """The requests that have not ended, oldest first."""
    now_s = time.monotonic()
    loading = isinstance(engine.supervisor.status, Loading)
    found: list[LiveRequest] = []
    waiting = 0
    for request in engine.requests:
        found.append(live_request(request.origin, request.timeline, now_s, loading=loading, ahead=waiting))
        waiting += not request.running
    return found
