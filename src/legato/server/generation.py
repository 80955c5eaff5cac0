"""One answer: a prompt submitted to the engine, its tokens assembled to text, its time measured."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import msgspec

from legato.client.client import EngineClient
from legato.client.request_stream import Ended, PromptRead, Token
from legato.core.origin import EndReason, Origin
from legato.core.sampling import SamplingParameters
from legato.core.timings import Reread, Timings
from legato.core.tokens import Tokens
from legato.core.vocabulary import Vocabulary
from legato.server.api_error import ApiError
from legato.server.recorder import Recorder
from legato.server.rereading import Rereading
from legato.server.text import AnswerText, Piece
from legato.telemetry.live import prefill_left_ms

FinishReason = Literal["stop", "length"]
"""The model or a stop string ended the answer, or it may have no more tokens."""


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """What to answer, and how."""

    prompt: Tokens
    origin: Origin
    max_new_tokens: int
    sampling: SamplingParameters
    stops: Sequence[str] = ()
    top_logprobs: int | None = None
    arrived_s: float | None = None
    progress: bool = False
    """Tell while the prompt is read."""
    gap_target_s: float | None = None
    """Longest gap between tokens that its reader should see; None for the server's."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the prompt is read."""

    read_tokens: int
    """Those that were cached included."""
    cached_tokens: int
    prompt_tokens: int
    left_ms: float | None
    """Estimated time until all is read."""


@dataclass(frozen=True, slots=True)
class Finish:
    """The end of an answer."""

    reason: FinishReason
    prompt_tokens: int
    timings: Timings
    """They count the answer's tokens too, and those of the prompt that were cached."""


class Generation:
    """A submitted request: iterate over its pieces of text; the last item is its `Finish`.

    Args:
        engine: Where it is answered.
        vocabulary: Of the model.
        recorder: Told of its end, once, whatever the end is.
        rereading: Explains why its prompt was read again, if it was.
        request: What to answer.

    Raises:
        NotReadyError: No model is ready.
        QueueFullError: Too many requests wait.
    """

    def __init__(
        self,
        engine: EngineClient,
        vocabulary: Vocabulary,
        recorder: Recorder,
        rereading: Rereading,
        request: GenerationRequest,
    ) -> None:
        self._text = AnswerText(vocabulary, request.stops)
        self._recorder = recorder
        self._recorded = False
        self._progress = request.progress
        self._prompt = request.prompt
        self._rereading = rereading
        self._explaining: asyncio.Task[Reread | None] | None = None
        self._stream = engine.submit(
            request.prompt,
            origin=request.origin,
            max_new_tokens=request.max_new_tokens,
            sampling=request.sampling,
            top_logprobs=request.top_logprobs,
            gap_target_s=request.gap_target_s,
            arrived_s=request.arrived_s,
        )
        recorder.submitted(self._stream.submit.id, request.origin)

    @property
    def cached_tokens(self) -> int:
        """Tokens of the prompt that did not have to be read, as far as that is known."""
        return self._stream.timeline.cached_tokens

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the prompt."""
        return self._stream.timeline.prompt_tokens

    def cancel(self) -> None:
        """Free what it holds in the engine, if it has not ended."""
        self._stream.cancel()
        self._record("cancelled")

    async def __aiter__(self) -> AsyncIterator[Piece | Progress | Finish]:
        """Pieces of text, then the end; before them how far the prompt is read, if that is wanted.

        Raises:
            ApiError: The engine failed at this request.
        """
        text = self._text
        timeline = self._stream.timeline
        end: EndReason = "cancelled"
        error = ""
        ended_s: float | None = None
        reason: FinishReason = "stop"
        try:
            with self._stream as stream:
                async for event in stream:
                    if isinstance(event, Token):
                        if self._explaining is None:
                            self._explain()
                        timeline.add_token(time.monotonic(), event.stretch)
                        if piece := text.feed(event.token, event.logprobs):
                            yield piece
                        if text.stopped:
                            break
                    elif isinstance(event, PromptRead):
                        if self._progress:
                            yield self._progress_now()
                    elif isinstance(event, Ended):
                        if event.reason == "failed":
                            end, error = "failed", event.error
                            raise ApiError(500, event.error, code="engine_failed")
                        reason = event.reason
                if not text.stopped and (piece := text.finish()):
                    yield piece
            end = reason = "stop" if text.stopped else reason
            ended_s = time.monotonic()
            reread = await self._explained()
        finally:
            # Whoever leaves early leaves it cancelled.
            self._record(end, error, ended_s)
        yield Finish(reason, timeline.prompt_tokens, replace(timeline.timings(), reread=reread))

    def _record(self, end: EndReason, error: str = "", ended_s: float | None = None) -> None:
        if not self._recorded:
            self._recorded = True
            # The engine ended it before its last tokens had left.
            self._stream.timeline.ended_s = time.monotonic() if ended_s is None else ended_s
            self._recorder.ended(self._stream.origin, self._stream.timeline, end, error)

    def _explain(self) -> None:
        """Its prompt is read: find out, beside the answer, whether more of it could have been remembered."""
        timeline = self._stream.timeline
        explaining = self._rereading.explain(self._prompt, self._stream.origin.client, timeline.cached_tokens)
        self._explaining = asyncio.create_task(explaining)

    async def _explained(self) -> Reread | None:
        """What was found, with the words; the timeline has it without them."""
        if self._explaining is None or (found := await self._explaining) is None:
            return None
        timeline = self._stream.timeline
        times = timeline.timings()
        lost_ms = times.prefill_ms * found.lost_tokens / max(1, times.prefill_tokens)
        found = msgspec.structs.replace(found, lost_ms=round(lost_ms, 3))
        timeline.reread = msgspec.structs.replace(found, was=None, now=None)
        return found

    def _progress_now(self) -> Progress:
        timeline = self._stream.timeline
        left_ms = prefill_left_ms(timeline.latest_chunks, timeline.prompt_tokens)
        return Progress(timeline.read_tokens, timeline.cached_tokens, timeline.prompt_tokens, left_ms)
