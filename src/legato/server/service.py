"""The served model as the routes see it: its engine, its vocabulary and template, and requests turned into tokens."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from legato import __version__
from legato.chat.message_error import MessageError
from legato.chat.messages import read_messages
from legato.chat.template import ChatTemplate
from legato.chat.truncation import Window, turn_starts, turns_to_drop
from legato.client.client import EngineClient, QueueFullError
from legato.client.status import (
    EngineState,
    FailedState,
    LoadingState,
    NotReadyError,
    ReadyState,
    StoppedState,
    describe,
)
from legato.core.tokens import Tokens
from legato.engine.model import Model
from legato.engine.vocabulary import Vocabulary
from legato.errors import LegatoError
from legato.server.api_error import ApiError
from legato.server.generation import Generation, GenerationRequest
from legato.server.recorder import Recorder
from legato.server.rereading import Rereading
from legato.server.tuned_settings import CostKeeper
from legato.sinks.history import History
from legato.sinks.metrics import Live, Metrics, Planning, Remembered
from legato.sinks.spans import SpanExporter
from legato.wire.messages import EngineSettings, ModelInfo

RETRY_AFTER_LOADING_S = 2


@dataclass(frozen=True, slots=True)
class Language:
    """How the served model reads: needed to turn a request into tokens, loaded in the server's own process."""

    vocabulary: Vocabulary
    template: ChatTemplate | None
    bos_text: str


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """A conversation as the model reads it."""

    tokens: Tokens
    dropped_messages: int = 0
    """Those that were left out for the rest to fit."""
    dropped_tokens: int = 0
    """By how many the prompt is shorter for it."""


class Service:
    """One served model.

    Args:
        name: What clients call it.
        path: Its file.
        engine: Settings of its engine.
        max_queue: Requests that may wait.
        chat_template: A Jinja template's text instead of the model's own.
        history: Remembers ended requests beyond the server's life.
        spans: Sends ended requests to a collector.
        costs: Remembers what calls cost here, once the engine has measured it and whenever it has learned more.
    """

    def __init__(
        self,
        name: str,
        path: Path,
        engine: EngineSettings,
        *,
        max_queue: int,
        chat_template: str | None = None,
        history: History | None = None,
        spans: SpanExporter | None = None,
        costs: CostKeeper | None = None,
    ) -> None:
        self.name = name
        """What clients call the model."""
        self.created_s = int(time.time())
        """When the service was made, in seconds since 1970."""
        metrics = Metrics(
            self._live,
            processes=self._processes,
            build={"version": __version__},
            planning=self._planning,
            remembered=self._remembered,
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
        self._path = path
        self._template_override = chat_template
        self._language: Language | None = None
        self._language_error: str | None = None
        self._rereading: Rereading | None = None
        """Compares prompts with earlier ones; made with the first request, for it needs the vocabulary."""
        self._loading: asyncio.Task[None] | None = None
        self._measuring: asyncio.Task[None] | None = None
        self._started = asyncio.Event()

    # Life

    def start(self) -> None:
        """Begin to load the model, here and in the engine's process."""
        self.engine.start()
        self._loading = asyncio.create_task(self._load_language())
        self._measuring = asyncio.create_task(self._remember_first_costs())
        self._started.set()

    async def settled(self) -> EngineState:
        """Wait until the model is ready or has failed."""
        await self._started.wait()
        assert self._loading is not None, "set by start"
        await asyncio.gather(self.engine.settled(), self._loading)
        return self.state

    async def drain(self, grace_s: float) -> None:
        """Take nothing new, let running answers finish for `grace_s` seconds, then end them."""
        self.engine.refuse_new()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.engine.idle(), grace_s)
        self.cut_off()

    def cut_off(self) -> None:
        """End every answer, before its grace is over."""
        self.engine.end_all("The server is stopping; the answer was cut off.")

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
            self._language = await asyncio.to_thread(_read_language, self._path, self._template_override)
        except LegatoError as error:
            self._language_error = str(error)

    async def _remember_first_costs(self) -> None:
        state = await self.engine.settled()
        if isinstance(state, ReadyState) and self._costs is not None:
            self._costs.remember(state.model.costs)

    # State

    @property
    def state(self) -> EngineState:
        """What the model is doing."""
        state = self.engine.state
        if self._language_error and not isinstance(state, StoppedState):
            return FailedState(self._language_error)
        if self._language is None and isinstance(state, ReadyState):
            return LoadingState(1.0)
        return state

    @property
    def model(self) -> ModelInfo:
        """The loaded model.

        Raises:
            ApiError: There is none.
        """
        state = self.state
        if not isinstance(state, ReadyState):
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
        return {ReadyState: "ok", LoadingState: "loading", FailedState: "failed", StoppedState: "stopping"}[
            type(self.state)
        ]

    def _live(self) -> Live | None:
        cells = self.kv_cells
        if cells is None:
            return None
        running = sum(request.running for request in self.engine.requests)
        return Live(running, self.engine.active - running, self.kv_cells_used, cells)

    def _planning(self) -> Planning:
        settings = self.engine.settings
        return Planning(settings.policy, settings.gap_target_s)

    def _remembered(self) -> Remembered | None:
        cache = self.engine.cache
        if cache is None:
            return None
        return Remembered(
            bytes={"memory": cache.memory_bytes, "disk": cache.disk_bytes},
            budgets={"memory": cache.memory_budget, "disk": cache.disk_budget},
            entries={"memory": cache.memory_entries, "disk": cache.disk_entries},
            parked_tokens=cache.parked_tokens,
        )

    def _processes(self) -> dict[str, int]:
        worker = self.engine.worker_pid
        return {"server": os.getpid(), **({"engine": worker} if worker else {})}

    @property
    def kv_cells(self) -> int | None:
        """Tokens that the engine's KV cells have room for; None while no model is ready."""
        state = self.state
        return state.model.context_tokens * state.model.parallel if isinstance(state, ReadyState) else None

    @property
    def kv_cells_used(self) -> int:
        """Cells that hold tokens of requests that have not ended."""
        timelines = [request.timeline for request in self.engine.requests if request.running]
        return sum(timeline.read_tokens + len(timeline.token_times_s) for timeline in timelines)

    # Requests

    async def chat_prompt(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        continue_final: bool,
        variables: Mapping[str, Any],
        window: Window | None = None,
    ) -> ChatPrompt:
        """The tokens of a conversation.

        Args:
            messages: As they came.
            continue_final: End where the last message does, for the model to go on with.
            variables: For the template.
            window: What the oldest turns are dropped for, if need be; None to keep all of them, however long.

        Raises:
            ApiError: A message is wrong, the template refuses it, or what must be kept does not fit into the context.
        """
        language = self.language
        if language.template is None:
            raise ApiError(
                400,
                f"{self.name} has no chat template, so it was not made for chats; use /v1/completions, "
                "or start the server with --chat-template.",
                param="messages",
                code="no_chat_template",
            )
        return await asyncio.to_thread(_chat_prompt, language, messages, continue_final, variables, window)

    async def text_prompt(self, text: str) -> Tokens:
        """The tokens of a text.

        Raises:
            ApiError: It holds half of a surrogate pair, which JSON can spell and which is no text.
        """
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ApiError(
                400,
                f"The prompt has half of a surrogate pair at character {error.start}, which is not text.",
                param="prompt",
                code="invalid_value",
            ) from error
        return await asyncio.to_thread(
            self.language.vocabulary.tokenize, text, add_bos=self.language.vocabulary.adds_bos, parse_special=True
        )

    def token_prompt(self, tokens: Sequence[int]) -> Tokens:
        """A prompt that came as tokens.

        Raises:
            ApiError: One of them is not in the vocabulary.
        """
        size = self.language.vocabulary.size
        if wrong := [token for token in tokens if not 0 <= token < size]:
            raise ApiError(
                400,
                f"The prompt holds token {wrong[0]}, and this model's vocabulary ends at {size - 1}.",
                param="prompt",
                code="invalid_value",
            )
        return np.array(tokens, dtype=np.int32)

    def submit_all(self, requests: Sequence[GenerationRequest], *, param: str) -> list[Generation]:
        """Submit the parts of one request: all, or none of them.

        Args:
            requests: The parts.
            param: The parameter that their prompts came in.

        Raises:
            ApiError: A prompt is empty or too long, too many requests wait, or no model is ready.
        """
        for request in requests:
            self._check_length(len(request.prompt), param)
        vocabulary = self.language.vocabulary
        rereading = self._rereading = self._rereading or Rereading(vocabulary.text)
        generations: list[Generation] = []
        try:
            for request in requests:
                generations.append(Generation(self.engine, vocabulary, self.recorder, rereading, request))  # noqa: PERF401 - kept if one fails
        except Exception as error:
            for generation in generations:
                generation.cancel()
            if isinstance(error, LegatoError):
                raise self._refusal(error) from error
            raise
        return generations

    def _check_length(self, tokens: int, param: str) -> None:
        if tokens == 0:
            raise ApiError(400, "The prompt is empty; send at least one token.", param=param, code="invalid_value")
        limit = self.model.context_tokens
        if tokens >= limit:
            raise ApiError(
                400,
                f"The prompt has {tokens} tokens, and this model's context holds {limit} with at least one for the "
                "answer; send a shorter prompt or start the server with a larger --ctx.",
                param=param,
                code="context_length_exceeded",
            )

    def _refusal(self, error: LegatoError) -> ApiError:
        if isinstance(error, QueueFullError):
            headers = {"Retry-After": str(max(1, round(error.retry_after_s)))}
            return ApiError(429, str(error), code="queue_full", headers=headers)
        if isinstance(error, NotReadyError):
            return _not_ready(self.state)
        return ApiError(500, str(error))


def _not_ready(state: EngineState) -> ApiError:
    codes = {LoadingState: "model_loading", FailedState: "model_failed", StoppedState: "server_stopping"}
    headers = {"Retry-After": str(RETRY_AFTER_LOADING_S)} if isinstance(state, LoadingState) else None
    return ApiError(503, describe(state), code=codes.get(type(state)), headers=headers)


def _read_language(path: Path, template_override: str | None) -> Language:
    model = Model(path, vocabulary_only=True)
    vocabulary = model.vocabulary
    bos_text, eos_text = (
        vocabulary.piece(token, special=True).decode("utf-8", "replace") if token >= 0 else ""
        for token in (vocabulary.bos, vocabulary.eos)
    )
    source = model.chat_template if template_override is None else template_override
    template = ChatTemplate(source, bos_token=bos_text, eos_token=eos_text) if source else None
    # The model is kept by the vocabulary's handle for the life of the process.
    return Language(vocabulary, template, bos_text)


def _chat_prompt(
    language: Language,
    messages: Sequence[Mapping[str, Any]],
    continue_final: bool,
    variables: Mapping[str, Any],
    window: Window | None,
) -> ChatPrompt:
    """Render and tokenize, in a thread: a long paste holds up nobody's stream."""

    def tokens_of(kept: Sequence[Mapping[str, Any]]) -> Tokens:
        return _chat_tokens(language, kept, continue_final, variables)

    try:
        read = read_messages(messages)
        return ChatPrompt(tokens_of(read)) if window is None else _truncated(read, tokens_of, window)
    except MessageError as error:
        # A sentence that begins with a parameter's name keeps its spelling.
        text = str(error)
        sentence = text if text.startswith("messages") else text[0].upper() + text[1:]
        raise ApiError(400, f"{sentence}.", param=error.param, code="invalid_value") from error
    except LegatoError as error:
        raise ApiError(400, str(error), param="messages", code="invalid_value") from error


def _chat_tokens(
    language: Language, messages: Sequence[Mapping[str, Any]], continue_final: bool, variables: Mapping[str, Any]
) -> Tokens:
    assert language.template is not None, "checked by the caller"
    text = language.template.render(messages, continue_final_message=continue_final, extra=variables)
    # Many templates write the first token themselves; two of them confuse a model.
    add_bos = language.vocabulary.adds_bos and not (language.bos_text and text.startswith(language.bos_text))
    return language.vocabulary.tokenize(text, add_bos=add_bos, parse_special=True)


def _truncated(
    messages: Sequence[Mapping[str, Any]],
    tokens_of: Callable[[Sequence[Mapping[str, Any]]], Tokens],
    window: Window,
) -> ChatPrompt:
    starts = turn_starts(messages)

    # Rendered, not added up: only the template knows what it writes around messages.
    @functools.cache
    def without(turns: int) -> Tokens:
        return tokens_of([*messages[: starts[0]], *messages[starts[turns] :]] if turns else messages)

    turns = turns_to_drop(len(starts), lambda dropped: len(without(dropped)), window)
    tokens = without(turns)
    if len(tokens) >= window.context_tokens:
        raise ApiError(
            400,
            f"The system messages and the last turn alone have {len(tokens)} tokens, and this model's context holds "
            f"{window.context_tokens} with at least one for the answer, so truncation could not help; send a shorter "
            "last message or start the server with a larger --ctx.",
            param="messages",
            code="context_length_exceeded",
        )
    if not turns:
        return ChatPrompt(tokens)
    return ChatPrompt(tokens, starts[turns] - starts[0], len(without(0)) - len(tokens))
