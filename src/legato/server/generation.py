"""One answer: a prompt submitted to the engine, its tokens assembled to text, its time measured."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Literal

from legato.engine.sampler import SamplingParameters
from legato.engine.vocabulary import Tokens, Vocabulary
from legato.runtime.client import Ended, EngineClient, Token
from legato.server.errors import ApiError
from legato.server.text import AnswerText, Piece
from legato.telemetry.timeline import Timings

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """What to answer, and how."""

    prompt: Tokens
    max_new_tokens: int
    sampling: SamplingParameters
    stops: Sequence[str] = ()
    top_logprobs: int | None = None
    arrived_s: float | None = None


@dataclass(frozen=True, slots=True)
class Finish:
    """The end of an answer."""

    reason: FinishReason
    prompt_tokens: int
    cached_tokens: int
    answer_tokens: int
    timings: Timings


class Generation:
    """A submitted request: iterate over its pieces of text; the last item is its `Finish`.

    Raises:
        NotReadyError: No model is ready.
        QueueFullError: Too many requests wait.
    """

    def __init__(self, engine: EngineClient, vocabulary: Vocabulary, request: GenerationRequest) -> None:
        self._text = AnswerText(vocabulary, request.stops)
        self._stream = engine.submit(
            request.prompt,
            max_new_tokens=request.max_new_tokens,
            sampling=request.sampling,
            top_logprobs=request.top_logprobs,
            arrived_s=request.arrived_s,
        )

    def cancel(self) -> None:
        """Free what it holds in the engine, if it has not ended."""
        self._stream.cancel()

    async def __aiter__(self) -> AsyncIterator[Piece | Finish]:
        """Pieces of text, then the end.

        Raises:
            ApiError: The engine failed at this request.
        """
        text = self._text
        times = self._stream.timeline.token_times_s
        reason: FinishReason = "stop"
        with self._stream as stream:
            async for event in stream:
                if isinstance(event, Token):
                    times.append(time.monotonic())
                    if piece := text.feed(event.token, event.logprobs):
                        yield piece
                    if text.stopped:
                        break
                elif isinstance(event, Ended):
                    if event.reason == "failed":
                        raise ApiError(500, event.error, code="engine_failed")
                    reason = event.reason
            if not text.stopped and (piece := text.finish()):
                yield piece
        yield self._finish("stop" if text.stopped else reason)

    def _finish(self, reason: FinishReason) -> Finish:
        timeline = self._stream.timeline
        return Finish(
            reason=reason,
            prompt_tokens=timeline.prompt_tokens,
            cached_tokens=timeline.cached_tokens,
            answer_tokens=len(timeline.token_times_s),
            timings=timeline.timings(),
        )


async def interleave(generations: Sequence[Generation]) -> AsyncIterator[tuple[int, Piece | Finish]]:
    """The items of several generations as they come, each with its generation's index.

    Raises:
        ApiError: One of them failed; the others are cancelled.
    """
    if len(generations) == 1:
        async for item in generations[0]:
            yield 0, item
        return
    items: asyncio.Queue[tuple[int, Piece | Finish | ApiError]] = asyncio.Queue()

    async def forward(index: int, generation: Generation) -> None:
        try:
            async for item in generation:
                items.put_nowait((index, item))
        except ApiError as error:
            items.put_nowait((index, error))

    tasks = [asyncio.create_task(forward(i, g)) for i, g in enumerate(generations)]
    try:
        running = len(tasks)
        while running:
            index, received = await items.get()
            if isinstance(received, ApiError):
                raise received
            running -= isinstance(received, Finish)
            yield index, received
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
