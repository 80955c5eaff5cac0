"""Chats of OpenAI's API: server-sent events, one JSON object each."""

from __future__ import annotations

from typing import Any

import msgspec

from legato.bench.reading import MayFail, Message, Reading, Sampling, WrongAnswerError, decoded
from legato.bench.target import Target


class _Text(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class _Choice(msgspec.Struct):
    delta: _Text | None = None
    """In a chunk of a stream."""
    message: _Text | None = None
    """In a whole answer."""
    finish_reason: str | None = None


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None


class _Event(MayFail):
    """A chunk of a stream, or a whole answer. What is not needed is not decoded: this runs once a token."""

    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    timings: dict[str, Any] | None = None


class OpenAi:
    """The dialect of OpenAI, Legato, llama.cpp's server and most others."""

    path = "/v1/chat/completions"

    def body(self, target: Target, messages: list[Message], wanted_tokens: int, sampling: Sampling) -> dict[str, Any]:
        """The request's body; temperature 0, so that answers are the same each time."""
        return {
            "model": target.model,
            "messages": messages,
            "max_tokens": wanted_tokens,
            "temperature": 0,
            "seed": sampling.seed,
            "stream": True,
            "stream_options": {"include_usage": True},
            **({"ignore_eos": True} if sampling.ignore_eos else {}),
        }

    def read_line(self, line: bytes, reading: Reading, at_s: float) -> None:
        """Take one line; comments and other fields than `data` say nothing here.

        Raises:
            WrongAnswerError: It reports an error, or is not of this API; so it is with a whole answer.
        """
        if not line.startswith(b"data:"):
            return
        data = line[5:].strip()
        if data == b"[DONE]":
            reading.finish(at_s)
        else:
            _read(data, reading, at_s)

    def read_whole(self, body: bytes, reading: Reading, at_s: float) -> None:
        """Take an answer that came in one piece although a stream was asked for."""
        if not _read(body, reading, at_s).choices:
            raise WrongAnswerError("The server's answer has no choices in it.")
        reading.measured.streamed = False
        reading.finish(at_s)


def _read(data: bytes, reading: Reading, at_s: float) -> _Event:
    event, measured = decoded(_Event, data, "OpenAI"), reading.measured
    for choice in event.choices or ():
        if (text := choice.delta or choice.message) is not None:
            # Thoughts count like the answer: a reader sees them come.
            reading.take((text.reasoning_content or text.reasoning or "") + (text.content or ""), at_s)
        if choice.finish_reason is not None:
            reading.finish(at_s)
    if event.usage is not None:
        measured.prompt_tokens = event.usage.prompt_tokens
        measured.answer_tokens = event.usage.completion_tokens
        if event.usage.prompt_tokens_details is not None:
            measured.cached_tokens = event.usage.prompt_tokens_details.cached_tokens
    if event.timings is not None:
        measured.timings = event.timings
        if measured.cached_tokens is None and isinstance(event.timings.get("cache_n"), int):
            measured.cached_tokens = event.timings["cache_n"]
    return event
