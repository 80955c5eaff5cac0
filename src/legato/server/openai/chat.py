"""`POST /v1/chat/completions`."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Sequence

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

from legato.chat.truncation import Window
from legato.core.origin import ServiceTier
from legato.core.timings import Timings
from legato.engine.vocabulary import Vocabulary
from legato.server.answer import Choice, generation_requests, respond
from legato.server.generation import Finish, Progress
from legato.server.openai.bodies import (
    ChatChoice,
    ChatChunk,
    ChatCompletion,
    ChunkChoice,
    Delta,
    Message,
    Truncation,
    chat_logprobs,
    prompt_progress,
    usage_of,
)
from legato.server.openai.requests import ChatRequest
from legato.server.service import ChatPrompt, Service
from legato.server.text import Piece

router = APIRouter()


@router.post("/v1/chat/completions")
async def create_chat_completion(request: Request, body: ChatRequest) -> Response:
    """Answer a conversation."""
    service: Service = request.app.state.service
    service.check_model(body.model)
    prompt = await service.chat_prompt(
        body.messages,
        continue_final=bool(body.continue_final_message),
        variables=body.chat_template_kwargs or {},
        window=Window(service.model.context_tokens, body.answer_limit) if body.truncation == "auto" else None,
    )
    limit = body.answer_limit or service.model.context_tokens
    answer_id = f"chatcmpl-{uuid.uuid4().hex}"
    parts = generation_requests(
        request,
        body,
        answer_id,
        "chat",
        [prompt.tokens],
        limit,
        vocabulary_size=service.language.vocabulary.size,
        top_logprobs=body.logprob_count,
    )
    generations = service.submit_all(parts, param="messages")
    tier = parts[0].origin.service_tier
    shape = _ChatShape(
        answer_id, service.name, tier, service.language.vocabulary, len(generations), _truncation(prompt)
    )
    return await respond(request, body, generations, shape)


def _truncation(prompt: ChatPrompt) -> Truncation | None:
    return Truncation(prompt.dropped_messages, prompt.dropped_tokens) if prompt.dropped_messages else None


class _ChatShape:
    """Bodies of one chat answer."""

    def __init__(
        self,
        answer_id: str,
        model: str,
        tier: ServiceTier,
        vocabulary: Vocabulary,
        choices: int,
        truncation: Truncation | None,
    ) -> None:
        self._vocabulary = vocabulary
        self._choices = choices
        self._truncation = truncation
        self._id = answer_id
        self._created = int(time.time())
        self._model = model
        self._tier = tier

    def openings(self) -> Iterable[ChatChunk]:
        return [self._chunk(ChunkChoice(i, Delta(role="assistant", content=""), None)) for i in range(self._choices)]

    def piece(self, index: int, piece: Piece) -> ChatChunk:
        logprobs = chat_logprobs(self._vocabulary, piece.tokens)
        return self._chunk(ChunkChoice(index, Delta(content=piece.text), None, logprobs))

    def progress(self, index: int, progress: Progress) -> ChatChunk:
        body = self._chunk()
        body.prompt_progress = prompt_progress(index, progress)
        return body

    def finish(self, index: int, finish: Finish, own: Timings | None, total: Timings | None) -> ChatChunk:
        chunk = self._chunk(ChunkChoice(index, Delta(), finish.reason, timings=own))
        chunk.timings = total
        chunk.truncation = self._truncation if total is not None else None
        return chunk

    def summary(self, finishes: Sequence[Finish], total: Timings) -> ChatChunk:
        chunk = self._chunk()
        chunk.usage = usage_of(finishes, prompts=1)
        chunk.timings = total
        chunk.truncation = self._truncation
        return chunk

    def whole(self, choices: Sequence[Choice], total: Timings) -> ChatCompletion:
        return ChatCompletion(
            id=self._id,
            created=self._created,
            model=self._model,
            choices=[
                ChatChoice(
                    index=index,
                    message=Message(choice.text),
                    finish_reason=choice.finish.reason,
                    logprobs=chat_logprobs(self._vocabulary, choice.tokens),
                    timings=choice.finish.timings if len(choices) > 1 else None,
                )
                for index, choice in enumerate(choices)
            ],
            usage=usage_of([choice.finish for choice in choices], prompts=1),
            timings=total,
            service_tier=self._tier,
            truncation=self._truncation or msgspec.UNSET,
        )

    def _chunk(self, *choices: ChunkChoice) -> ChatChunk:
        return ChatChunk(self._id, "chat.completion.chunk", self._created, self._model, self._tier, list(choices))
