"""Answer bodies of OpenAI's API as msgspec structures, which are written without a detour."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from legato.core.origin import ServiceTier
from legato.core.timings import Timings
from legato.core.vocabulary import Vocabulary
from legato.server.generation import Finish, FinishReason, Generation
from legato.server.prompting import Truncation
from legato.server.text import ChosenToken


class PromptTokensDetails(msgspec.Struct):
    """Where the prompt's tokens came from."""

    cached_tokens: int


class Usage(msgspec.Struct):
    """Token counts of a request."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails


class TopLogprob(msgspec.Struct):
    """A likely token."""

    token: str
    logprob: float
    bytes: list[int]


class TokenLogprobs(TopLogprob):
    """A token of a chat's answer beside the likeliest ones."""

    top_logprobs: list[TopLogprob]


class ChatLogprobs(msgspec.Struct):
    """Log-probabilities of a chat's answer."""

    content: list[TokenLogprobs]
    refusal: None = None


class Message(msgspec.Struct):
    """The assistant's message."""

    content: str
    role: str = "assistant"
    refusal: None = None


class ChatChoice(msgspec.Struct, omit_defaults=True):
    """One whole answer of a chat."""

    index: int
    message: Message
    finish_reason: FinishReason
    logprobs: ChatLogprobs | None
    timings: Timings | None = None
    """Its own, where there are several choices."""


class Delta(msgspec.Struct, omit_defaults=True):
    """What a chunk adds to the message."""

    role: str | None = None
    content: str | None = None


class ChunkChoice(msgspec.Struct, omit_defaults=True):
    """A chunk's part of one choice."""

    index: int
    delta: Delta
    finish_reason: FinishReason | None
    logprobs: ChatLogprobs | None = None
    timings: Timings | None = None


class PromptProgress(msgspec.Struct):
    """How far the prompt is read: in chunks of their own, for clients that asked."""

    index: int
    """Of the choice."""
    total: int
    """Tokens of the prompt."""
    processed: int
    """Those whose KV state is there, cached ones included."""
    cached: int
    left_ms: float | None
    """Estimated time until all is read."""


class CompletionLogprobs(msgspec.Struct):
    """Log-probabilities of a completion, in lists of the same length."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


class CompletionChoice(msgspec.Struct, omit_defaults=True):
    """One answer of a completion, or a chunk's part of it."""

    index: int
    text: str
    finish_reason: FinishReason | None
    logprobs: CompletionLogprobs | None
    timings: Timings | None = None


PartOfChoice = ChatChoice | ChunkChoice | CompletionChoice


class Body(msgspec.Struct, omit_defaults=True):
    """An answer to a chat or a completion, whole or one event of a stream."""

    id: str
    object: str
    created: int
    model: str
    service_tier: ServiceTier
    """How it was served; also of completions, where OpenAI's API has none."""
    choices: Sequence[PartOfChoice]
    usage: Usage | None = None
    timings: Timings | None = None
    prompt_progress: PromptProgress | None = None
    truncation: Truncation | None = None
    """Beside the request's timings, if something was dropped."""


def running_usage_of(generation: Generation, written: int) -> Usage:
    """Token counts of a choice of which so many tokens were sent."""
    return _usage(generation.prompt_tokens, written, generation.cached_tokens)


def usage_of(finishes: Sequence[Finish], choices: int) -> Usage:
    """Token counts over all choices; a prompt counts once, whose so many `choices` stand side by side."""
    first_of_each = finishes[::choices]
    return _usage(
        sum(finish.prompt_tokens for finish in first_of_each),
        sum(finish.timings.decode_tokens for finish in finishes),
        sum(finish.timings.cached_tokens for finish in first_of_each),
    )


def _usage(prompt: int, written: int, cached: int) -> Usage:
    return Usage(prompt, written, prompt + written, PromptTokensDetails(cached))


def chat_logprobs(vocabulary: Vocabulary, tokens: list[ChosenToken]) -> ChatLogprobs | None:
    """Log-probabilities in the chat API's shape; None if none were asked for."""
    content = [
        TokenLogprobs(
            *_spelled(vocabulary, chosen.token, chosen.logprobs.chosen),
            top_logprobs=[TopLogprob(*_spelled(vocabulary, token, p)) for token, p in chosen.logprobs.top],
        )
        for chosen in tokens
        if chosen.logprobs is not None
    ]
    return ChatLogprobs(content) if content else None


def completion_logprobs(vocabulary: Vocabulary, tokens: list[ChosenToken], echoed: int) -> CompletionLogprobs | None:
    """Log-probabilities in the completion API's shape, after so many echoed characters; None if none were asked for."""
    result = CompletionLogprobs([], [], [], [])
    for chosen in tokens:
        if chosen.logprobs is None:
            return None
        name, logprob, _ = _spelled(vocabulary, chosen.token, chosen.logprobs.chosen)
        result.tokens.append(name)
        result.token_logprobs.append(logprob)
        result.top_logprobs.append({_spelled(vocabulary, t, p)[0]: p for t, p in chosen.logprobs.top})
        result.text_offset.append(echoed + chosen.begin)
    return result if result.tokens else None


def _spelled(vocabulary: Vocabulary, token: int, logprob: float) -> tuple[str, float, list[int]]:
    data = vocabulary.piece(token, special=True)
    return data.decode("utf-8", "replace"), logprob, list(data)
