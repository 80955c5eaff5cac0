"""One request's answer, whole or as a stream, in whatever shape an API gives it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec
from fastapi import Request
from starlette.responses import Response

from legato.core.origin import Endpoint, Origin
from legato.core.timings import Timings
from legato.core.tokens import Tokens
from legato.server.api_error import ApiError
from legato.server.clients import Clients
from legato.server.generation import Finish, Generation, GenerationRequest, Progress, interleave
from legato.server.openai.bodies import running_usage_of
from legato.server.openai.requests import CommonRequest
from legato.server.sse import EventStream, unless_client_goes
from legato.server.text import ChosenToken, Piece

DONE = b"data: [DONE]\n\n"
"""What ends a stream of OpenAI's API."""


@dataclass(slots=True)
class Choice:
    """One whole answer; a request may ask for several."""

    finish: Finish
    text: str = ""
    tokens: list[ChosenToken] = field(default_factory=list)


class AnswerShape(Protocol):
    """Turns an answer, or what is new of it, into an API's bodies."""

    def openings(self) -> Iterable[Any]:
        """What a stream begins with."""
        ...

    def piece(self, index: int, piece: Piece) -> Any:
        """New text of a choice."""
        ...

    def progress(self, index: int, progress: Progress) -> Any:
        """How far the prompt is read, for clients that asked."""
        ...

    def finish(self, index: int, finish: Finish, own: Timings | None, total: Timings | None) -> Any:
        """The end of a choice, with its own timings if there are several, and the request's if it is the last."""
        ...

    def summary(self, finishes: Sequence[Finish], total: Timings) -> Any:
        """The token counts that a stream may end with."""
        ...

    def whole(self, choices: Sequence[Choice], total: Timings) -> Any:
        """Everything in one body."""
        ...


def generation_requests(
    request: Request,
    body: CommonRequest,
    answer_id: str,
    endpoint: Endpoint,
    prompts: Sequence[Tokens],
    max_new_tokens: int,
    *,
    vocabulary_size: int,
    top_logprobs: int | None,
) -> list[GenerationRequest]:
    """The parts of a request: every choice of every prompt, side by side.

    Args:
        request: As it came.
        body: Its body.
        answer_id: Of the whole answer; its further choices are known as `answer_id-1` and so on.
        endpoint: Which API it came through.
        prompts: Token ids.
        max_new_tokens: Most tokens of each choice.
        vocabulary_size: Of the model, which biased tokens must be in.
        top_logprobs: How many likeliest tokens to report with each; None for no log-probabilities.

    Raises:
        ApiError: A biased token is not in the vocabulary.
    """
    clients: Clients = request.app.state.clients
    client: str | None = request.state.client_name
    tier = clients.service_tier(client, body.tier)
    gap_target_s = clients.gap_target_s(client, body.gap_target_ms)
    parts = [(prompt, sampling) for prompt in prompts for sampling in body.sampling(vocabulary_size)]
    return [
        GenerationRequest(
            prompt,
            Origin(answer_id if number == 0 else f"{answer_id}-{number}", endpoint, client, tier),
            max_new_tokens,
            sampling,
            body.stop or (),
            top_logprobs,
            request.state.arrived_s,
            progress=body.includes_progress,
            gap_target_s=gap_target_s,
        )
        for number, (prompt, sampling) in enumerate(parts)
    ]


async def respond(
    request: Request, body: CommonRequest, generations: Sequence[Generation], shape: AnswerShape
) -> Response:
    """Answer a request.

    Args:
        request: Whose client may go away, which frees what its generations hold.
        body: Its body, which says whether the answer is streamed, and with which counts.
        generations: One a choice.
        shape: The API's bodies.

    Raises:
        ApiError: The engine failed, and nothing was sent yet.
    """
    if body.stream:
        events = _events(generations, shape, summary=body.includes_usage, running_usage=body.includes_running_usage)
        return EventStream(events)
    return await unless_client_goes(request, _whole(generations, shape))


async def _whole(generations: Sequence[Generation], shape: AnswerShape) -> Response:
    pieces: list[list[Piece]] = [[] for _ in generations]
    finishes: dict[int, Finish] = {}
    async for index, item in interleave(generations):
        if isinstance(item, Finish):
            finishes[index] = item
        elif isinstance(item, Piece):
            pieces[index].append(item)
    choices = [
        Choice(finishes[index], "".join(p.text for p in own), [token for p in own for token in p.tokens])
        for index, own in enumerate(pieces)
    ]
    body = shape.whole(choices, _slowest(finishes.values()))
    return Response(msgspec.json.encode(body), media_type="application/json")


async def _events(
    generations: Sequence[Generation], shape: AnswerShape, *, summary: bool, running_usage: bool
) -> AsyncIterator[bytes]:
    for opening in shape.openings():
        yield _event(opening)
    finishes: dict[int, Finish] = {}
    written = [0] * len(generations)
    try:
        async for index, item in interleave(generations):
            if isinstance(item, Piece):
                part = shape.piece(index, item)
                if running_usage:
                    written[index] += len(item.tokens)
                    part.usage = running_usage_of(generations[index], written[index])
                yield _event(part)
                continue
            if isinstance(item, Progress):
                yield _event(shape.progress(index, item))
                continue
            finishes[index] = item
            own = item.timings if len(generations) > 1 else None
            is_last = len(finishes) == len(generations) and not summary
            yield _event(shape.finish(index, item, own, _slowest(finishes.values()) if is_last else None))
    except ApiError as error:
        # The status is long sent. Clients raise an event with an error as they would a refusal.
        yield _event(error.body)
        yield DONE
        return
    if summary:
        ordered = [finishes[index] for index in range(len(generations))]
        yield _event(shape.summary(ordered, _slowest(ordered)))
    yield DONE


def _slowest(finishes: Iterable[Finish]) -> Timings:
    """The timings that stand for the whole request: those of the choice that took longest."""
    return max((finish.timings for finish in finishes), key=lambda timings: timings.total_ms)


def _event(body: Any) -> bytes:
    return b"data: " + msgspec.json.encode(body) + b"\n\n"
