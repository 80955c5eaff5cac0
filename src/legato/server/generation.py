"""What a client asks for, and one choice of its answer: tokens assembled to text, and their time measured."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import msgspec

from legato.client.request_stream import Ended, PromptRead, RequestStream, Token
from legato.core.origin import Endpoint, EndReason, ServiceTier
from legato.core.sampling import SamplingParameters
from legato.core.timings import Reread, Timings
from legato.core.tokens import Tokens
from legato.server.api_error import ApiError
from legato.server.recorder import Recorder
from legato.server.rereading import Rereading
from legato.server.text import AnswerText, Piece
from legato.telemetry.live import prefill_left_ms

FinishReason = Literal["stop", "length"]
"""The model or a stop string ended the answer, or it may have no more tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerRequest:
    """What a client asks for, whichever API it said it in."""

    id: str
    """Of the whole answer; its further choices are known as `ID-1` and so on."""
    endpoint: Endpoint
    choices: Sequence[tuple[Tokens, SamplingParameters]]
    """Prompt and sampling of each answer that is wanted, which are written side by side."""
    param: str
    """The parameter that the prompts came in, for refusals."""
    max_new_tokens: int
    """Most tokens of each choice."""
    stops: Sequence[str] = ()
    top_logprobs: int | None = None
    """How many likeliest tokens to report with each; None for no log-probabilities."""
    service_tier: ServiceTier = "default"
    gap_target_ms: float | None = None
    """Longest gap between tokens that the reader should see; None for the key's or the server's."""


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
    """One choice of an answer: iterate over how far its prompt is read and its pieces of text, up to its `Finish`.

    The recorder is told of its end, once, whatever the end is.
    """

    def __init__(self, stream: RequestStream, text: AnswerText, recorder: Recorder, rereading: Rereading) -> None:
        self._stream = stream
        self._text = text
        self._recorder = recorder
        self._recorded = False
        self._rereading = rereading
        self._explaining: asyncio.Task[Reread | None] | None = None
        recorder.submitted(stream.submit.id, stream.origin)

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
        """How far the prompt is read, then pieces of text, then the end.

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
        stream = self._stream
        explaining = self._rereading.explain(stream.submit.tokens, stream.origin.client, self.cached_tokens)
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
