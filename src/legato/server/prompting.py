"""Requests turned into the tokens that the served model reads: conversations, texts, and tokens as they came."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from legato.chat.message_error import MessageError
from legato.chat.messages import read_messages
from legato.chat.template import ChatTemplate
from legato.chat.truncation import Window, turn_starts, turns_to_drop
from legato.core.tokens import Tokens
from legato.core.vocabulary import Vocabulary
from legato.errors import LegatoError
from legato.server.api_error import invalid

Messages = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Language:
    """How the served model reads: needed to turn a request into tokens, loaded in the server's own process."""

    model_name: str
    vocabulary: Vocabulary
    template: ChatTemplate | None
    bos_text: str


class Truncation(msgspec.Struct):
    """What was left out of a conversation for the rest to fit."""

    dropped_messages: int
    dropped_tokens: int
    """By how many the prompt is shorter for it."""


ChatPrompt = tuple[Tokens, Truncation | None]
"""A conversation as the model reads it."""


async def chat_prompt(
    language: Language,
    messages: Messages,
    *,
    continue_final: bool = False,
    variables: Mapping[str, Any],
    window: Window | None = None,
) -> ChatPrompt:
    """The tokens of a conversation, and what was dropped of it.

    The prompt may end where the last message does, for the model to go on with. `variables` are for the template. The
    oldest turns are dropped for the rest to fit into a window; without one all are kept, however long.

    Raises:
        ApiError: A message is wrong, the template refuses it, or what must be kept does not fit into the context.
    """
    if language.template is None:
        raise invalid(
            f"{language.model_name} has no chat template, so it was not made for chats; use /v1/completions, "
            "or start the server with --chat-template.",
            "messages",
            "no_chat_template",
        )
    render = functools.partial(language.template.render, continue_final_message=continue_final, extra=variables)
    # In a thread: a long paste holds up nobody's stream.
    return await asyncio.to_thread(_chat_prompt, language, messages, render, window)


async def text_prompt(language: Language, text: str) -> Tokens:
    """The tokens of a text.

    Raises:
        ApiError: It holds half of a surrogate pair, which JSON can spell and which is no text.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        message = f"The prompt has half of a surrogate pair at character {error.start}, which is not text."
        raise invalid(message, "prompt") from error
    vocabulary = language.vocabulary
    return await asyncio.to_thread(vocabulary.tokenize, text, add_bos=vocabulary.adds_bos, parse_special=True)


def token_prompt(language: Language, tokens: Sequence[int]) -> Tokens:
    """A prompt that came as tokens.

    Raises:
        ApiError: One of them is not in the vocabulary.
    """
    size = language.vocabulary.size
    if wrong := [token for token in tokens if not 0 <= token < size]:
        message = f"The prompt holds token {wrong[0]}, and this model's vocabulary ends at {size - 1}."
        raise invalid(message, "prompt")
    return np.array(tokens, dtype=np.int32)


def _chat_prompt(
    language: Language, messages: Messages, render: Callable[[Messages], str], window: Window | None
) -> ChatPrompt:
    def tokens_of(kept: Messages) -> Tokens:
        text = render(kept)
        # Many templates write the first token themselves; two of them confuse a model.
        add_bos = language.vocabulary.adds_bos and not (language.bos_text and text.startswith(language.bos_text))
        return language.vocabulary.tokenize(text, add_bos=add_bos, parse_special=True)

    try:
        read = read_messages(messages)
        return (tokens_of(read), None) if window is None else _truncated(read, tokens_of, window)
    except MessageError as error:
        # A sentence that begins with a parameter's name keeps its spelling.
        text = str(error)
        sentence = text if text.startswith("messages") else text[0].upper() + text[1:]
        raise invalid(f"{sentence}.", error.param) from error
    except LegatoError as error:
        raise invalid(str(error), "messages") from error


def _truncated(messages: Messages, tokens_of: Callable[[Messages], Tokens], window: Window) -> ChatPrompt:
    starts = turn_starts(messages)

    # Rendered, not added up: only the template knows what it writes around messages.
    @functools.cache
    def without(turns: int) -> Tokens:
        return tokens_of([*messages[: starts[0]], *messages[starts[turns] :]] if turns else messages)

    turns = turns_to_drop(len(starts), lambda dropped: len(without(dropped)), window)
    tokens = without(turns)
    if len(tokens) >= window.context_tokens:
        raise invalid(
            f"The system messages and the last turn alone have {len(tokens)} tokens, and this model's context holds "
            f"{window.context_tokens} with at least one for the answer, so truncation could not help; send a shorter "
            "last message or start the server with a larger --ctx.",
            "messages",
            "context_length_exceeded",
        )
    return tokens, Truncation(starts[turns] - starts[0], len(without(0)) - len(tokens)) if turns else None
