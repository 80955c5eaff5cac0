"""Answers as OpenAI's API gives them: one JSON body, or server-sent events that end with `[DONE]`."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any, Protocol

import msgspec
from fastapi import Request
from starlette.responses import Response

from legato.core.timings import Timings
from legato.core.tokens import Tokens
from legato.server.answer import Answer, begin_answer, slowest
from legato.server.api_error import ApiError
from legato.server.generation import AnswerRequest, Finish, FinishReason, Progress
from legato.server.openai.bodies import Body, PartOfChoice, PromptProgress, running_usage_of, usage_of
from legato.server.openai.requests import CommonRequest
from legato.server.prompting import Truncation
from legato.server.routes import json_response, service_of
from legato.server.sse import EventStream, disconnected, event, unless_client_goes
from legato.server.text import Piece

DONE = b"data: [DONE]\n\n"


class ChoiceShape(Protocol):
    """What stands in a body for one choice. `own` are its timings where there are several choices, else None."""

    def opening(self, index: int) -> PartOfChoice | None:
        """What its part of a stream begins with."""
        ...

    def part(
        self, index: int, piece: Piece, reason: FinishReason | None = None, own: Timings | None = None
    ) -> PartOfChoice:
        """New text of it in a stream, or with a reason its end."""
        ...

    def whole(self, index: int, piece: Piece, reason: FinishReason, own: Timings | None) -> PartOfChoice:
        """All of it."""
        ...


def submit(request: Request, body: CommonRequest, answer_id: str, prompts: list[Tokens]) -> Answer:
    """Submit what a body asks for.

    Raises:
        ApiError: A biased token is not in the vocabulary, a prompt is empty or too long, too many requests wait, or no
            model is ready.
    """
    service = service_of(request)
    size = service.language.vocabulary.size
    asked = AnswerRequest(
        id=answer_id,
        endpoint=body.endpoint,
        choices=[(prompt, sampling) for prompt in prompts for sampling in body.sampling(size)],
        param=body.prompt_param,
        max_new_tokens=body.answer_limit or service.model.context_tokens,
        stops=body.stop or (),
        top_logprobs=body.logprob_count,
        service_tier=body.tier,
        gap_target_ms=body.gap_target_ms,
    )
    return begin_answer(request, asked)


async def respond(
    request: Request,
    body: CommonRequest,
    answer: Answer,
    shape: ChoiceShape,
    kind: str,
    truncation: Truncation | None = None,
) -> Response:
    """Answer a request whole or streamed, as its body says; a client that goes away frees what its answer holds.

    `kind` is what the API calls the answer's object.

    Raises:
        ApiError: The engine failed, and nothing was sent yet.
    """
    head = Body(answer.id, kind, int(time.time()), service_of(request).name, answer.service_tier, [])
    if body.stream:
        return EventStream(_events(body, answer, shape, head, truncation))
    choices = await unless_client_goes(answer.whole(), disconnected(request.receive))
    finishes = [finish for _, finish in choices]
    whole = msgspec.structs.replace(
        head,
        choices=[
            shape.whole(index, piece, finish.reason, finish.timings if len(choices) > 1 else None)
            for index, (piece, finish) in enumerate(choices)
        ],
        usage=usage_of(finishes, body.choices),
        timings=slowest(finishes),
        truncation=truncation,
    )
    return json_response(whole)


async def _events(
    body: CommonRequest, answer: Answer, shape: ChoiceShape, head: Body, truncation: Truncation | None
) -> AsyncIterator[bytes]:
    def made(*choices: PartOfChoice, **more: Any) -> bytes:
        return event(msgspec.structs.replace(head, choices=choices, **more))

    carried = body.streamed
    count = len(answer.generations)
    finishes: dict[int, Finish] = {}
    written = [0] * count
    for index in range(count):
        if (opening := shape.opening(index)) is not None:
            yield made(opening)
    try:
        async for index, part in answer.parts():
            if isinstance(part, Piece):
                usage = None
                if carried.continuous_usage_stats:
                    written[index] += len(part.tokens)
                    usage = running_usage_of(answer.generations[index], written[index])
                yield made(shape.part(index, part), usage=usage)
            elif isinstance(part, Progress):
                if carried.include_progress:
                    tokens = part.prompt_tokens, part.read_tokens, part.cached_tokens
                    yield made(prompt_progress=PromptProgress(index, *tokens, part.left_ms))
            else:
                finishes[index] = part
                is_last = len(finishes) == count and not carried.include_usage
                totals = {"timings": slowest(finishes.values()), "truncation": truncation} if is_last else {}
                own = part.timings if count > 1 else None
                yield made(shape.part(index, Piece(), part.reason, own), **totals)
    except ApiError as error:
        # The status is long sent. Clients raise an event with an error as they would a refusal.
        yield event(error.body)
        yield DONE
        return
    if carried.include_usage:
        ordered = [finishes[index] for index in range(count)]
        yield made(usage=usage_of(ordered, body.choices), timings=slowest(ordered), truncation=truncation)
    yield DONE
