"""The served model as the routes see it: its life and state, and requests given to its engine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable

from legato import __version__
from legato.client.client import EngineClient
from legato.client.dispatcher import QueueFullError
from legato.client.status import EngineStatus, Failed, Loading, NotReadyError, Ready, Stopped, describe
from legato.core.origin import Origin, ServiceTier
from legato.errors import LegatoError
from legato.server.api_error import ApiError, invalid
from legato.server.cost_memory import CostMemory
from legato.server.generation import AnswerRequest, Generation
from legato.server.prompting import Language
from legato.server.recorder import Recorder
from legato.server.rereading import Rereading
from legato.server.text import AnswerText
from legato.sinks.history import History
from legato.sinks.metrics import Live, Metrics, Planning
from legato.sinks.spans import SpanExporter
from legato.wire.messages import EngineSettings, ModelInfo

RETRY_AFTER_LOADING_S = 2


class Service:
    """One served model, and at most `max_queue` requests that wait.

    `read_language` reads how it reads, in a thread, and raises LegatoError if it can't. `costs` remembers what calls
    cost here, once the engine has measured it and whenever it has learned more.
    """

    def __init__(
        self,
        name: str,
        engine: EngineSettings,
        read_language: Callable[[], Language],
        *,
        max_queue: int,
        history: History | None = None,
        spans: SpanExporter | None = None,
        costs: CostMemory | None = None,
    ) -> None:
        self.name = name
        """What clients call the model."""
        self.created_s = int(time.time())
        """When the service was made, in seconds since 1970."""
        metrics = Metrics(
            self._live,
            processes=self._processes,
            build={"version": __version__},
            planning=lambda: Planning(self.engine.settings.policy, self.engine.settings.gap_target_s),
            remembered=lambda: self.engine.cache.figures,
        )
        self.recorder = Recorder(name, metrics, history, spans)
        """What is known of requests and calls."""
        self.engine = EngineClient(
            engine,
            max_queue=max_queue,
            on_call=self.recorder.call,
            on_costs=costs.remember if costs is not None else lambda _costs: None,
        )
        """Where prompts are read and answers written."""
        self._costs = costs
        self._read_language = read_language
        self._language: Language | None = None
        self._language_error: str | None = None
        self._rereading = Rereading(lambda tokens: self.language.vocabulary.text(tokens))
        self._loading: asyncio.Task[None] | None = None
        self._measuring: asyncio.Task[None] | None = None
        self._started = asyncio.Event()

    # Life

    def start(self) -> None:
        """Begin to load the model, here and in the engine's process."""
        self.engine.supervisor.start()
        self._loading = asyncio.create_task(self._load_language())
        self._measuring = asyncio.create_task(self._remember_first_costs())
        self._started.set()

    async def settled(self) -> EngineStatus:
        """Wait until the model is ready or has failed."""
        await self._started.wait()
        assert self._loading is not None, "set by start"
        await asyncio.gather(self.engine.supervisor.settled(), self._loading)
        return self.state

    async def drain(self, grace_s: float) -> None:
        """Take nothing new, let running answers finish for `grace_s` seconds, then end them."""
        self.engine.supervisor.refuse_new()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.engine.dispatcher.idle(), grace_s)
        self.cut_off()

    def cut_off(self) -> None:
        """End every answer, before its grace is over."""
        self.engine.dispatcher.end_all("The server is stopping; the answer was cut off.")

    async def close(self) -> None:
        """End the engine."""
        if self._loading is not None:
            await self._loading
        await self.engine.close()
        if self._measuring is not None:
            await self._measuring
        if self._costs is not None:
            await self._costs.close()
        await asyncio.to_thread(self.recorder.close)

    async def _load_language(self) -> None:
        try:
            self._language = await asyncio.to_thread(self._read_language)
        except LegatoError as error:
            self._language_error = str(error)

    async def _remember_first_costs(self) -> None:
        state = await self.engine.supervisor.settled()
        if isinstance(state, Ready) and self._costs is not None:
            self._costs.remember(state.model.costs)

    # State

    @property
    def state(self) -> EngineStatus:
        """What the model is doing."""
        state = self.engine.supervisor.status
        if self._language_error and not isinstance(state, Stopped):
            return Failed(self._language_error)
        if self._language is None and isinstance(state, Ready):
            return Loading(1.0)
        return state

    @property
    def model(self) -> ModelInfo:
        """The loaded model.

        Raises:
            ApiError: There is none.
        """
        state = self.state
        if not isinstance(state, Ready):
            raise _not_ready(state)
        return state.model

    @property
    def language(self) -> Language:
        """How the model reads.

        Raises:
            ApiError: It is not loaded.
        """
        if self._language is None:
            raise _not_ready(self.state)
        return self._language

    def check_model(self, name: str | None) -> None:
        """Refuse a request for another model.

        Raises:
            ApiError: It is not served here.
        """
        if name is not None and name != self.name:
            raise ApiError(
                404,
                f"The model {name!r} is not served here; {self.name!r} is.",
                param="model",
                code="model_not_found",
            )

    @property
    def state_name(self) -> str:
        """The state in a word: ok, loading, failed or stopping."""
        return {Ready: "ok", Loading: "loading", Failed: "failed", Stopped: "stopping"}[type(self.state)]

    def _live(self) -> Live | None:
        cells = self.kv_cells
        if cells is None:
            return None
        requests = self.engine.requests
        running = sum(request.running for request in requests)
        return Live(running, len(requests) - running, self.kv_cells_used, cells)

    def _processes(self) -> dict[str, int]:
        worker = self.engine.worker_pid
        return {"server": os.getpid(), **({"engine": worker} if worker else {})}

    @property
    def kv_cells(self) -> int | None:
        """Tokens that the engine's KV cells have room for; None while no model is ready."""
        state = self.state
        return state.model.context_tokens * state.model.parallel if isinstance(state, Ready) else None

    @property
    def kv_cells_used(self) -> int:
        """Cells that hold tokens of requests that have not ended."""
        timelines = [request.timeline for request in self.engine.requests if request.running]
        return sum(timeline.read_tokens + len(timeline.token_times_s) for timeline in timelines)

    # Requests

    def submit_all(
        self,
        asked: AnswerRequest,
        *,
        client: str | None,
        service_tier: ServiceTier,
        gap_target_s: float | None,
        arrived_s: float,
    ) -> list[Generation]:
        """Submit the choices of one answer: all, or none of them.

        The tier and the gap target hold whatever is asked for; a target of None is the engine's. The request arrived
        at `arrived_s` on the monotonic clock.

        Raises:
            ApiError: A prompt is empty or too long, too many requests wait, or no model is ready.
        """
        for prompt, _ in asked.choices:
            self._check_length(len(prompt), asked.param)
        vocabulary = self.language.vocabulary
        generations: list[Generation] = []
        try:
            for number, (prompt, sampling) in enumerate(asked.choices):
                stream = self.engine.submit(
                    prompt,
                    origin=Origin(f"{asked.id}-{number}" if number else asked.id, asked.endpoint, client, service_tier),
                    max_new_tokens=asked.max_new_tokens,
                    sampling=sampling,
                    top_logprobs=asked.top_logprobs,
                    gap_target_s=gap_target_s,
                    arrived_s=arrived_s,
                )
                text = AnswerText(vocabulary, asked.stops)
                generations.append(Generation(stream, text, self.recorder, self._rereading))
        except Exception as error:
            for generation in generations:
                generation.cancel()
            if isinstance(error, LegatoError):
                raise self._refusal(error) from error
            raise
        return generations

    def _check_length(self, tokens: int, param: str) -> None:
        if tokens == 0:
            raise invalid("The prompt is empty; send at least one token.", param)
        limit = self.model.context_tokens
        if tokens >= limit:
            raise invalid(
                f"The prompt has {tokens} tokens, and this model's context holds {limit} with at least one for the "
                "answer; send a shorter prompt or start the server with a larger --ctx.",
                param,
                "context_length_exceeded",
            )

    def _refusal(self, error: LegatoError) -> ApiError:
        if isinstance(error, QueueFullError):
            headers = {"Retry-After": str(max(1, round(error.retry_after_s)))}
            return ApiError(429, str(error), code="queue_full", headers=headers)
        if isinstance(error, NotReadyError):
            return _not_ready(self.state)
        return ApiError(500, str(error))


def _not_ready(state: EngineStatus) -> ApiError:
    codes = {Loading: "model_loading", Failed: "model_failed", Stopped: "server_stopping"}
    headers = {"Retry-After": str(RETRY_AFTER_LOADING_S)} if isinstance(state, Loading) else None
    return ApiError(503, describe(state), code=codes.get(type(state)), headers=headers)
