"""Answers that go on until somebody ends them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import openai

from tests.support.asking import ask, text_of
from tests.support.server import LegatoProcess

ENDLESS: dict[str, Any] = {"max_tokens": 1_000_000, "extra_body": {"ignore_eos": True}}
"""Thousands of tokens: as many as the context holds."""


@contextmanager
def endless(client: openai.OpenAI, prompt: Any = "Count: one, two,", **options: Any) -> Iterator[Any]:
    """A running stream, its first token read; leaving it closes the connection."""
    with ask(client, "completions", prompt, stream=True, **ENDLESS, **options) as stream:
        first_text(stream)
        yield stream


@contextmanager
def opened(client: openai.OpenAI, prompt: Any, **options: Any) -> Iterator[Any]:
    """A stream that the server has taken and may not have begun to answer: only its opening is read."""
    messages = [{"role": "user", "content": prompt}]
    with ask(client, "chat", messages, stream=True, **(ENDLESS | options)) as stream:
        opening = next(iter(stream))
        assert opening.choices[0].delta.role == "assistant"
        yield stream


def first_text(stream: Any) -> str:
    """Read as far as the first text."""
    return next(text for chunk in stream for choice in chunk.choices if (text := text_of(choice)))


def is_refused(server: LegatoProcess) -> bool:
    """Whether its queue is full."""
    try:
        with opened(server.openai(), "Hi"):
            return False
    except openai.RateLimitError:
        return True
