"""`POST /v1/completions`: text continued, without a chat's roles."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from fastapi import APIRouter, Request
from starlette.responses import Response

from legato.core.timings import Timings
from legato.core.vocabulary import Vocabulary
from legato.server.api_error import invalid
from legato.server.generation import FinishReason
from legato.server.openai.answers import respond, submit
from legato.server.openai.bodies import CompletionChoice, completion_logprobs
from legato.server.openai.requests import CompletionRequest
from legato.server.prompting import text_prompt, token_prompt
from legato.server.routes import service_of
from legato.server.text import Piece

router = APIRouter()

MAX_PROMPTS = 64


@router.post("/v1/completions")
async def create_completion(request: Request, body: CompletionRequest) -> Response:
    """Continue one text, or several."""
    service = service_of(request)
    service.check_model(body.model)
    if not 1 <= len(body.prompts) <= MAX_PROMPTS:
        raise invalid(f"The request has {len(body.prompts)} prompts; send 1 to {MAX_PROMPTS}.", "prompt")
    language = service.language
    prompts = [
        await text_prompt(language, prompt) if isinstance(prompt, str) else token_prompt(language, prompt)
        for prompt in body.prompts
    ]
    answer = submit(request, body, f"cmpl-{uuid.uuid4().hex}", prompts)
    echoes = [language.vocabulary.text(prompt) if body.echo else "" for prompt in prompts for _ in range(body.choices)]
    return await respond(request, body, answer, _TextShape(language.vocabulary, echoes), "text_completion")


class _TextShape:
    """Choices of a completion. `echoes` is the text before each."""

    def __init__(self, vocabulary: Vocabulary, echoes: Sequence[str]) -> None:
        self._vocabulary = vocabulary
        self._echoes = echoes

    def opening(self, index: int) -> CompletionChoice | None:
        echo = self._echoes[index]
        return self.part(index, Piece(echo)) if echo else None

    def part(
        self, index: int, piece: Piece, reason: FinishReason | None = None, own: Timings | None = None
    ) -> CompletionChoice:
        logprobs = completion_logprobs(self._vocabulary, piece.tokens, len(self._echoes[index]))
        return CompletionChoice(index, piece.text, reason, logprobs, own)

    def whole(self, index: int, piece: Piece, reason: FinishReason, own: Timings | None) -> CompletionChoice:
        return self.part(index, Piece(self._echoes[index] + piece.text, piece.tokens), reason, own)
