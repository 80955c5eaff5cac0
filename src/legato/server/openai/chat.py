"""`POST /v1/chat/completions`."""

from __future__ import annotations

import uuid

from fastapi import APIRouter, Request
from starlette.responses import Response

from legato.chat.truncation import Window
from legato.core.timings import Timings
from legato.core.vocabulary import Vocabulary
from legato.server.generation import FinishReason
from legato.server.openai.answers import respond, submit
from legato.server.openai.bodies import ChatChoice, ChunkChoice, Delta, Message, chat_logprobs
from legato.server.openai.requests import ChatRequest
from legato.server.prompting import chat_prompt
from legato.server.routes import service_of
from legato.server.text import Piece

router = APIRouter()


@router.post("/v1/chat/completions")
async def create_chat_completion(request: Request, body: ChatRequest) -> Response:
    """Answer a conversation."""
    service = service_of(request)
    service.check_model(body.model)
    prompt, truncation = await chat_prompt(
        service.language,
        body.messages,
        continue_final=bool(body.continue_final_message),
        variables=body.chat_template_kwargs or {},
        window=Window(service.model.context_tokens, body.answer_limit) if body.truncation == "auto" else None,
    )
    answer = submit(request, body, f"chatcmpl-{uuid.uuid4().hex}", [prompt])
    shape = _ChatShape(service.language.vocabulary)
    kind = "chat.completion.chunk" if body.stream else "chat.completion"
    return await respond(request, body, answer, shape, kind, truncation)


class _ChatShape:
    """Choices of a chat."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary

    def opening(self, index: int) -> ChunkChoice:
        return ChunkChoice(index, Delta(role="assistant", content=""), None)

    def part(
        self, index: int, piece: Piece, reason: FinishReason | None = None, own: Timings | None = None
    ) -> ChunkChoice:
        delta = Delta(content=piece.text if reason is None else None)
        return ChunkChoice(index, delta, reason, chat_logprobs(self._vocabulary, piece.tokens), own)

    def whole(self, index: int, piece: Piece, reason: FinishReason, own: Timings | None) -> ChatChoice:
        return ChatChoice(index, Message(piece.text), reason, chat_logprobs(self._vocabulary, piece.tokens), own)
