"""The engine as the server holds it: submit a prompt, get a stream of events; workers come and go behind it."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import msgspec

from legato.client.cache_desk import CacheDesk
from legato.client.clock import ServerClock
from legato.client.dispatcher import Dispatcher
from legato.client.meter import Meter
from legato.client.process import ProcessTransport
from legato.client.request_stream import RequestStream
from legato.client.supervisor import Supervisor
from legato.client.transport import Transport
from legato.core.cache import CacheFigures
from legato.core.calls import Call
from legato.core.origin import Origin
from legato.core.sampling import SamplingParameters
from legato.core.tokens import Tokens
from legato.scheduling.costs import Coefficients
from legato.telemetry.timeline import Timeline
from legato.wire.messages import (
    CacheReply,
    Configure,
    EngineSettings,
    FromWorker,
    LearnedCosts,
    Ready,
    Report,
    SetBudgets,
    Submit,
)


class EngineClient:
    """Holds one model's engine, and tells its parts of each other.

    At most `max_queue` requests wait for KV cells. `on_call` is told of each library call, and `on_costs` what calls
    cost here, whenever the engine has learned more. Workers are child processes, unless another transport is given.
    """

    def __init__(
        self,
        settings: EngineSettings,
        *,
        max_queue: int,
        on_call: Callable[[Call], None] = lambda _call: None,
        on_costs: Callable[[Coefficients], None] = lambda _costs: None,
        transport: Transport | None = None,
        clock: ServerClock | None = None,
    ) -> None:
        self._on_costs = on_costs
        self._clock = clock or ServerClock()
        self._numbers = itertools.count(1)
        self._meter = Meter(self._clock, on_call)
        self.supervisor = Supervisor(
            settings,
            transport or ProcessTransport(),
            self._clock,
            on_message=self._receive,
            on_lost=self._lost,
            on_failed=lambda reason: self.dispatcher.end_all(reason),
        )
        """Keeps the worker alive, from its `start` to this one's `close`."""
        self.dispatcher = Dispatcher([self.supervisor], self._meter, max_queue)
        """Has the requests."""
        self.cache = CacheDesk(self.supervisor)
        """Knows what is remembered of prompts."""

    async def close(self) -> None:
        """End the worker at once; running requests fail."""
        self.cache.forget()
        await self.supervisor.close()
        self.dispatcher.end_all("The server is stopping.")

    @property
    def worker_pid(self) -> int | None:
        """Process id of the present worker; None if there is none, or if it runs on another machine."""
        link = self.supervisor.link
        return link.pid if link is not None else None

    # Settings

    @property
    def settings(self) -> EngineSettings:
        """Those of the present worker and of the next one."""
        return self.supervisor.settings

    def configure(self, change: Configure) -> None:
        """Change how steps are planned: from the next step on, and by every later worker.

        A new gap target is also that of running answers that have none of their own.
        """
        self.supervisor.change(change, **msgspec.structs.asdict(change))
        for request in self.requests:
            if request.submit.gap_target_s is None:
                request.timeline.gap_target_s = change.gap_target_s

    def set_cache_budgets(self, change: SetBudgets) -> None:
        """Change how much may be remembered: at once, and by every later worker."""
        wanted = {"cache_memory_bytes": change.memory_bytes, "cache_disk_bytes": change.disk_bytes}
        self.supervisor.change(change, **{name: size for name, size in wanted.items() if size is not None})

    # Requests

    @property
    def requests(self) -> list[RequestStream]:
        """Those that have not ended, oldest first."""
        return list(self.dispatcher.requests.values())

    def submit(
        self,
        prompt: Tokens,
        *,
        origin: Origin,
        max_new_tokens: int,
        sampling: SamplingParameters,
        top_logprobs: int | None = None,
        gap_target_s: float | None = None,
        arrived_s: float | None = None,
    ) -> RequestStream:
        """Queue a prompt, token ids of shape [n], that arrived at `arrived_s` of the monotonic clock, or now.

        For each token of the answer the `top_logprobs` likeliest ones are told; for None no log-probabilities. Without
        a gap target of its own it has the engine's.

        Raises:
            NotReadyError: No model is ready.
            QueueFullError: Too many wait already.
        """
        parallel = self.supervisor.ready().model.parallel
        submit = Submit(
            next(self._numbers),
            prompt.astype("<i4", copy=False).tobytes(),
            max_new_tokens,
            sampling,
            top_logprobs,
            client=origin.client,
            gap_target_s=gap_target_s,
            background=origin.service_tier == "flex",
        )
        timeline = Timeline(
            self._clock.now() if arrived_s is None else arrived_s,
            prompt_tokens=len(prompt),
            gap_target_s=self.settings.gap_target_s if gap_target_s is None else gap_target_s,
        )
        request = RequestStream(submit, origin, timeline, self.dispatcher.cancel)
        self.dispatcher.submit(request, parallel)
        return request

    # What the worker says

    def _receive(self, message: FromWorker) -> None:
        match message:
            case Report():
                self.dispatcher.take(message)
            case Ready():
                self._meter.ready(self.requests)
                self.dispatcher.resend()
            case CacheFigures() | CacheReply():
                self.cache.take(message)
            case LearnedCosts(costs=costs):
                self._on_costs(costs)

    def _lost(self, how: str) -> None:
        self._meter.lost()
        self.cache.forget()
        self.dispatcher.fail_started(f"The engine stopped while answering: {how}.")
