"""The engine as the server holds it: submit a prompt, get a stream of events; workers come and go behind it."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Callable

import msgspec

from legato.client.process import WorkerProcess
from legato.client.request_stream import Admitted, Ended, PromptRead, RequestStream, Token
from legato.client.status import (
    EngineState,
    FailedState,
    LoadingState,
    NotReadyError,
    ReadyState,
    StoppedState,
    describe,
)
from legato.core.cache import CacheAction, CacheState
from legato.core.calls import Call
from legato.core.choices import PolicyName
from legato.core.origin import Origin
from legato.core.sampling import SamplingParameters
from legato.core.tokens import Tokens
from legato.errors import LegatoError
from legato.scheduling.costs import Coefficients
from legato.telemetry.attribution import Attribution
from legato.telemetry.timeline import Timeline
from legato.wire.messages import (
    CacheCommand,
    CacheReply,
    Cancel,
    Configure,
    EngineSettings,
    FromWorker,
    LearnedCosts,
    LoadFailed,
    Loading,
    Ready,
    Report,
    SetBudgets,
    Submit,
)

logger = logging.getLogger(__name__)

BACKOFF_S = (0.2, 1.0, 5.0, 15.0, 30.0)
"""Pauses before the first, second, … restart in a row; the last one holds for all further ones."""
STEADY_S = 60.0
"""A worker that was ready for this long is steady: its end is the first in a row again."""
LOAD_ATTEMPTS = 3
"""Workers that may die in a row while loading, without a word, before the model counts as failed."""
SUBMIT_ATTEMPTS = 2
"""Workers that a queued request is given to before it fails with them."""


class QueueFullError(LegatoError):
    """As many requests wait as the settings allow."""

    def __init__(self, waiting: int, retry_after_s: float) -> None:
        super().__init__(f"{waiting} requests are waiting already, the most that this server queues; try again later.")
        self.retry_after_s = retry_after_s
        """About when a place will be free."""


class EngineClient:
    """Holds one model's engine worker, restarts it when it dies, and routes events to requests.

    Args:
        settings: For every worker, until they are changed.
        max_queue: Requests that may wait for KV cells.
        on_call: Told of each library call.
        on_costs: Told what calls cost here, whenever the engine has learned more.
    """

    def __init__(
        self,
        settings: EngineSettings,
        *,
        max_queue: int,
        on_call: Callable[[Call], None] = lambda _call: None,
        on_costs: Callable[[Coefficients], None] = lambda _costs: None,
    ) -> None:
        self._settings = settings
        self._max_queue = max_queue
        self._on_call = on_call
        self._on_costs = on_costs
        self._attribution = Attribution()
        self._ids = itertools.count(1)
        self._requests: dict[int, RequestStream] = {}
        self._worker: WorkerProcess | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._state: EngineState = LoadingState(0.0)
        self._changed = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._not_ready_since_s = time.monotonic()
        self._ready_since_s: float | None = None
        """When the present worker had its model loaded."""
        self._mean_request_s = 5.0
        self._cache: CacheState | None = None
        self._cache_questions: dict[int, asyncio.Future[CacheReply]] = {}

    # State

    @property
    def state(self) -> EngineState:
        """What the engine is doing."""
        return self._state

    @property
    def settings(self) -> EngineSettings:
        """Those of the present worker and of the next one."""
        return self._settings

    @property
    def worker_pid(self) -> int | None:
        """Process id of the present worker."""
        return self._worker.pid if self._worker else None

    @property
    def active(self) -> int:
        """Requests that have not ended."""
        return len(self._requests)

    @property
    def requests(self) -> list[RequestStream]:
        """Those that have not ended, oldest first."""
        return list(self._requests.values())

    async def idle(self) -> None:
        """Wait until there are no requests."""
        await self._idle.wait()

    async def state_change(self, seen: EngineState) -> EngineState:
        """Wait until the state is another than the one seen, and return it."""
        while self._state is seen:
            await self._changed.wait()
        return self._state

    async def settled(self) -> EngineState:
        """Wait until the model is ready or has failed."""
        while isinstance(self._state, LoadingState):
            await self.state_change(self._state)
        return self._state

    def _set_state(self, state: EngineState) -> None:
        self._state = state
        self._changed.set()
        self._changed = asyncio.Event()

    # Life

    def start(self) -> None:
        """Begin to load the model."""
        self._supervisor = asyncio.create_task(self._supervise_or_fail())

    async def close(self) -> None:
        """End the worker at once; running requests fail."""
        self._set_state(StoppedState())
        if self._supervisor is not None:
            self._supervisor.cancel()
            await asyncio.gather(self._supervisor, return_exceptions=True)
        self._forget_cache()
        if self._worker is not None:
            await self._worker.stop()
        self.end_all("The server is stopping.")

    def refuse_new(self) -> None:
        """Take no new requests; those that were taken go on."""
        if not isinstance(self._state, FailedState):
            self._set_state(StoppedState())

    def end_all(self, error: str) -> None:
        """End every request with an error."""
        for request in list(self._requests.values()):
            self._cancel_in_worker(request)
            self._end(request, Ended("failed", error))

    async def _supervise_or_fail(self) -> None:
        try:
            await self._supervise()
        except Exception as error:
            logger.exception("the engine can't be supervised")
            self._fail_load(f"The engine worker can't be run: {error}.")

    async def _supervise(self) -> None:
        deaths = failed_loads = 0
        while True:
            how = await self._run_worker()
            if isinstance(self._state, FailedState):
                return
            ready_since = self._ready_since_s
            was_ready = ready_since is not None
            steady = ready_since is not None and time.monotonic() - ready_since > STEADY_S
            deaths = 1 if steady else deaths + 1
            failed_loads = 0 if was_ready else failed_loads + 1
            logger.warning("%s; %s", how, "restarting" if was_ready else "it had not finished loading")
            self._fail_started(f"The engine stopped while answering: {how}.")
            if failed_loads >= LOAD_ATTEMPTS:
                times = f"{failed_loads} times in a row"
                self._fail_load(f"The model could not be loaded: {how}, {times}; `legato doctor` may know why.")
                return
            self._not_ready_since_s = time.monotonic()
            if not isinstance(self._state, StoppedState):
                self._set_state(LoadingState(0.0, reason=how))
            await asyncio.sleep(BACKOFF_S[min(deaths, len(BACKOFF_S)) - 1])

    async def _run_worker(self) -> str:
        """Spawn a worker, wait for its end, and say how it ended."""
        self._ready_since_s = None
        self._attribution.reset()
        settings = self._settings
        self._worker = await WorkerProcess.spawn(settings, self._receive)
        if self._settings is not settings:  # changed while it started
            self._configure_worker()
        how = await self._worker.wait()
        self._worker = None
        self._forget_cache()
        return how

    # Settings

    def configure(self, *, policy: PolicyName, chunk: int | None, gap_target_s: float) -> None:
        """Change how steps are planned: from the next step on, and by every later worker.

        Args:
            policy: How prompts are read beside running answers.
            chunk: Prompt tokens that a step of policy `chunked` reads; None for this hardware's default.
            gap_target_s: Of answers that have none of their own, the running ones too.
        """
        self._settings = msgspec.structs.replace(self._settings, policy=policy, chunk=chunk, gap_target_s=gap_target_s)
        for request in self._requests.values():
            if request.submit.gap_target_s is None:
                request.timeline.gap_target_s = gap_target_s
        self._configure_worker()

    def _configure_worker(self) -> None:
        if self._worker is not None:
            settings = self._settings
            self._worker.send(Configure(settings.policy, settings.chunk, settings.gap_target_s))

    # What is remembered

    @property
    def cache(self) -> CacheState | None:
        """How much is remembered, as the worker said last; None if it has not."""
        return self._cache

    async def cache_command(self, action: CacheAction, entry: str | None = None) -> CacheReply:
        """Ask what is remembered, after changing it if that is wanted.

        Args:
            action: What to do.
            entry: With which entry, or the beginning of its id; None for all.

        Raises:
            NotReadyError: No model is ready.
        """
        if not isinstance(self._state, ReadyState) or self._worker is None:
            raise NotReadyError(describe(self._state))
        number = next(self._ids)
        answer: asyncio.Future[CacheReply] = asyncio.get_running_loop().create_future()
        self._cache_questions[number] = answer
        self._worker.send(CacheCommand(number, action, entry))
        return await answer

    def set_cache_budgets(self, *, memory_bytes: int | None, disk_bytes: int | None) -> None:
        """Change how much may be remembered: at once, and by every later worker.

        Args:
            memory_bytes: In memory; None leaves it as it is.
            disk_bytes: On disk, likewise.
        """
        settings = self._settings
        if memory_bytes is not None:
            settings = msgspec.structs.replace(settings, cache_memory_bytes=memory_bytes)
        if disk_bytes is not None:
            settings = msgspec.structs.replace(settings, cache_disk_bytes=disk_bytes)
        self._settings = settings
        if self._worker is not None:
            self._worker.send(SetBudgets(memory_bytes, disk_bytes))

    def _forget_cache(self) -> None:
        """The worker that was asked is gone."""
        self._cache = None
        for asked in self._cache_questions.values():
            if not asked.done():
                asked.set_exception(NotReadyError("The engine stopped while it was asked; try again in a moment."))
        self._cache_questions.clear()

    # Requests

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
        """Queue a prompt.

        Args:
            prompt: Token ids, shape [n].
            origin: Who asks for what; what is not of the default service tier gets only what others leave.
            max_new_tokens: Most tokens of the answer.
            sampling: How to choose them.
            top_logprobs: How many likeliest tokens to report with each token; None for no log-probabilities.
            gap_target_s: Longest gap between tokens that its reader should see; None for the engine's.
            arrived_s: When the request arrived, on the monotonic clock; now, if left out.

        Raises:
            NotReadyError: No model is ready.
            QueueFullError: Too many wait already.
        """
        if not isinstance(self._state, ReadyState):
            raise NotReadyError(describe(self._state))
        parallel = self._state.model.parallel
        if self.active >= parallel + self._max_queue:
            waiting = self.active - parallel
            raise QueueFullError(waiting, self._mean_request_s * max(1, waiting) / parallel)
        data = prompt.astype("<i4", copy=False).tobytes()
        background = origin.service_tier == "flex"
        submit = Submit(
            next(self._ids),
            data,
            max_new_tokens,
            sampling,
            top_logprobs,
            client=origin.client,
            gap_target_s=gap_target_s,
            background=background,
        )
        timeline = Timeline(
            time.monotonic() if arrived_s is None else arrived_s,
            prompt_tokens=len(prompt),
            gap_target_s=self._settings.gap_target_s if gap_target_s is None else gap_target_s,
        )
        if self.active >= parallel or background:
            timeline.behind = [other.origin.id for other in self._requests.values()]
        request = RequestStream(submit, origin, timeline, self.cancel)
        # Sent before it is remembered: what can't be sent must not be waited for.
        self._send(request)
        self._requests[submit.id] = request
        self._idle.clear()
        return request

    def cancel(self, request_id: int) -> None:
        """Forget a request and free its cells within one step; nothing happens if it has ended."""
        if request := self._requests.get(request_id):
            self._drop(request)
            self._cancel_in_worker(request)

    def _send(self, request: RequestStream) -> None:
        request.attempts += 1
        if self._worker is not None:
            self._worker.send(request.submit)

    def _cancel_in_worker(self, request: RequestStream) -> None:
        if self._worker is not None:
            self._worker.send(Cancel(request.submit.id))

    def _end(self, request: RequestStream, event: Ended) -> None:
        self._drop(request)
        timeline = request.timeline
        if event.reason != "failed":
            took = time.monotonic() - (timeline.admitted_s or timeline.arrived_s)
            self._mean_request_s += 0.2 * (took - self._mean_request_s)
        request.put(event)

    def _drop(self, request: RequestStream) -> None:
        request.timeline.ended_s = time.monotonic()
        self._attribution.forget(request.submit.id)
        self._requests.pop(request.submit.id, None)
        if not self._requests:
            self._idle.set()

    # Messages

    def _receive(self, message: FromWorker) -> None:
        match message:
            case Report():
                self._take_report(message)
            case Loading(share=share):
                if isinstance(self._state, LoadingState):
                    self._set_state(LoadingState(share, self._state.reason))
            case Ready():
                self._take_ready(message)
            case LoadFailed(reason=reason):
                self._fail_load(reason)
            case CacheState():
                self._cache = message
            case CacheReply():
                self._cache = message.state
                if (asked := self._cache_questions.pop(message.number, None)) is not None and not asked.done():
                    asked.set_result(message)
            case LearnedCosts(costs=costs):
                # A worker that begins anew need not learn them again.
                self._settings = msgspec.structs.replace(self._settings, costs=costs)
                self._on_costs(costs)

    def _take_ready(self, message: Ready) -> None:
        now = time.monotonic()
        for request in self._requests.values():
            request.timeline.load_s += now - max(self._not_ready_since_s, request.timeline.arrived_s)
            self._send(request)
        self._ready_since_s = now
        # The next worker need not calibrate again.
        self._settings = msgspec.structs.replace(self._settings, costs=message.model.costs)
        if not isinstance(self._state, StoppedState):
            self._set_state(ReadyState(message.model, message.load_s))

    def _take_report(self, report: Report) -> None:
        for request_id in report.admitted:
            if request := self._requests.get(request_id):
                self._admit(request, report.at_s)
        if report.call is not None:
            self._take_call(report.call)
        for recalled in report.recalled:
            if request := self._requests.get(recalled.request):
                request.timeline.restore(recalled.tokens, recalled.tier, recalled.took_s, recalled.reading_s)
        for request_id, possible_s in report.raised:
            if request := self._requests.get(request_id):
                request.timeline.raise_gap_target(possible_s, self._answers)
        for request_id, token, logprobs in report.tokens:
            if request := self._requests.get(request_id):
                request.answering = True
                stretch = self._attribution.stretch(request_id, report.at_s) if report.call is not None else None
                request.put(Token(token, logprobs, stretch))
        for request_id in report.preempted:
            if request := self._requests.get(request_id):
                self._preempt(request, report.at_s)
        for request_id, reason, error in report.ended:
            if request := self._requests.get(request_id):
                self._end(request, Ended(reason, error))

    def _admit(self, request: RequestStream, at_s: float) -> None:
        """It has KV cells. What it waits for before its first token is queue, and nobody's; later it is a gap."""
        if not request.started:
            self._attribution.admit(request.submit.id, request.origin.id, at_s)
        elif not request.answering:
            self._attribution.resume(request.submit.id, at_s)
        request.timeline.admit(at_s)
        request.put(Admitted())

    def _preempt(self, request: RequestStream, at_s: float) -> None:
        """It has no KV cells any more."""
        if not request.answering:
            self._attribution.pause(request.submit.id, at_s)
        request.timeline.preempt(at_s, answering=request.answering)

    @property
    def _answers(self) -> int:
        """Answers that are being written."""
        return sum(request.answering and request.running for request in self._requests.values())

    def _take_call(self, call: Call) -> None:
        self._attribution.call(call)
        self._on_call(call)
        for chunk in call.chunks:
            if request := self._requests.get(chunk.request):
                request.timeline.add_chunk(call, chunk.start, chunk.tokens)
                request.put(PromptRead())

    # Failures

    def _fail_load(self, reason: str) -> None:
        self._set_state(FailedState(reason))
        for request in list(self._requests.values()):
            self._end(request, Ended("failed", reason))

    def _fail_started(self, error: str) -> None:
        """End what the dead worker had begun; what was only queued waits for the next one."""
        for request in list(self._requests.values()):
            if request.started or request.attempts >= SUBMIT_ATTEMPTS:
                self._end(request, Ended("failed", error))
