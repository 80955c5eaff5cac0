"""`POST /v1/completions`: text continued, without a chat's roles."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Sequence

from fastapi import APIRouter, Request
from starlette.responses import Response

from legato.core.origin import ServiceTier
from legato.core.timings import Timings
from legato.core.tokens import Tokens
from legato.engine.vocabulary import Vocabulary
from legato.server.answer import Choice, generation_requests, respond
from legato.server.api_error import ApiError
from legato.server.generation import Finish, Progress
from legato.server.openai.bodies import Completion, CompletionChoice, completion_logprobs, prompt_progress, usage_of
from legato.server.openai.requests import CompletionRequest
from legato.server.service import Service
from legato.server.text import Piece

router = APIRouter()

MAX_PROMPTS = 64


@router.post("/v1/completions")
async def create_completion(request: Request, body: CompletionRequest) -> Response:
    """Continue one text, or several."""
    service: Service = request.app.state.service
    service.check_model(body.model)
    prompts = await _tokens(service, body)
    limit = body.max_tokens or service.model.context_tokens
    vocabulary = service.language.vocabulary
    answer_id = f"cmpl-{uuid.uuid4().hex}"
    parts = generation_requests(
        request,
        body,
        answer_id,
        "completions",
        prompts,
        limit,
        vocabulary_size=vocabulary.size,
        top_logprobs=body.logprobs,
    )
    generations = service.submit_all(parts, param="prompt")
    choices = len(generations) // len(prompts)
    echoes = [vocabulary.text(prompt) if body.echo else "" for prompt in prompts for _ in range(choices)]
    shape = _TextShape(answer_id, service.name, parts[0].origin.service_tier, vocabulary, echoes, len(prompts))
    return await respond(request, body, generations, shape)


async def _tokens(service: Service, body: CompletionRequest) -> list[Tokens]:
    prompts = body.prompts
    if not prompts or len(prompts) > MAX_PROMPTS:
        raise ApiError(
            400,
            f"The request has {len(prompts)} prompts; send 1 to {MAX_PROMPTS}.",
            param="prompt",
            code="invalid_value",
        )
    return [
        await service.text_prompt(prompt) if isinstance(prompt, str) else service.token_prompt(prompt)
        for prompt in prompts
    ]


class _TextShape:
    """Bodies of one completion. `echoes` is the text before each choice."""

    def __init__(
        self,
        answer_id: str,
        model: str,
        tier: ServiceTier,
        vocabulary: Vocabulary,
        echoes: Sequence[str],
        prompts: int,
    ) -> None:
        self._vocabulary = vocabulary
        self._echoes = echoes
        self._prompts = prompts
        self._id = answer_id
        self._created = int(time.time())
        self._model = model
        self._tier = tier

    def openings(self) -> Iterable[Completion]:
        return [self._body(CompletionChoice(i, echo, None, None)) for i, echo in enumerate(self._echoes) if echo]

    def piece(self, index: int, piece: Piece) -> Completion:
        logprobs = completion_logprobs(self._vocabulary, piece.tokens, len(self._echoes[index]))
        return self._body(CompletionChoice(index, piece.text, None, logprobs))

    def progress(self, index: int, progress: Progress) -> Completion:
        body = self._body()
        body.prompt_progress = prompt_progress(index, progress)
        return body

    def finish(self, index: int, finish: Finish, own: Timings | None, total: Timings | None) -> Completion:
        body = self._body(CompletionChoice(index, "", finish.reason, None, own))
        body.timings = total
        return body

    def summary(self, finishes: Sequence[Finish], total: Timings) -> Completion:
        body = self._body()
        body.usage = usage_of(finishes, prompts=self._prompts)
        body.timings = total
        return body

    def whole(self, choices: Sequence[Choice], total: Timings) -> Completion:
        body = self.summary([choice.finish for choice in choices], total)
        body.choices = [
            CompletionChoice(
                index=index,
                text=self._echoes[index] + choice.text,
                finish_reason=choice.finish.reason,
                logprobs=completion_logprobs(self._vocabulary, choice.tokens, len(self._echoes[index])),
                timings=choice.finish.timings if len(choices) > 1 else None,
            )
            for index, choice in enumerate(choices)
        ]
        return body

    def _body(self, *choices: CompletionChoice) -> Completion:
        return Completion(self._id, "text_completion", self._created, self._model, self._tier, list(choices))
