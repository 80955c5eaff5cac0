"""Chats of OpenAI's API: server-sent events, one JSON object each."""

from __future__ import annotations

from typing import Any

import msgspec

from legato.bench.reading import MayFail, Message, Reading, Sampling, WrongAnswerError, decoded
from legato.bench.results import MeasuredRequest
from legato.bench.target import Target


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    message: _Delta | None = None
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

    def __init__(self) -> None:
        self._decoder = msgspec.json.Decoder(_Event)

    def body(self, target: Target, messages: list[Message], wanted_tokens: int, sampling: Sampling) -> dict[str, Any]:
        """The request's body; temperature 0, so that answers are the same each time."""
        body: dict[str, Any] = {
            "model": target.model,
            "messages": messages,
            "max_tokens": wanted_tokens,
            "temperature": 0,
            "seed": sampling.seed,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if sampling.ignore_eos:
            body["ignore_eos"] = True
        return body

    def is_stream(self, content_type: str) -> bool:
        """Whether these are server-sent events."""
        return content_type.startswith("text/event-stream")

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
            return
        event = decoded(self._decoder, data, "OpenAI")
        for choice in event.choices or ():
            if choice.delta is not None:
                reading.take(_text(choice.delta), at_s)
            if choice.finish_reason is not None:
                reading.finish(at_s)
        _note_counts(event, reading.measured)

    def read_whole(self, body: bytes, reading: Reading, at_s: float) -> None:
        """Take an answer that came in one piece although a stream was asked for."""
        event = decoded(self._decoder, body, "OpenAI")
        if not event.choices:
            raise WrongAnswerError("The server's answer has no choices in it.")
        reading.measured.streamed = False
        for choice in event.choices:
            if choice.message is not None:
                reading.take(_text(choice.message), at_s)
        _note_counts(event, reading.measured)
        reading.finish(at_s)


def _text(delta: _Delta) -> str:
    """Thoughts count like the answer: a reader sees them come."""
    return (delta.reasoning_content or delta.reasoning or "") + (delta.content or "")


def _note_counts(event: _Event, measured: MeasuredRequest) -> None:
    if event.usage is not None:
        measured.prompt_tokens = event.usage.prompt_tokens
        measured.answer_tokens = event.usage.completion_tokens
        if event.usage.prompt_tokens_details is not None:
            measured.cached_tokens = event.usage.prompt_tokens_details.cached_tokens
    if event.timings is not None:
        measured.timings = event.timings
        if measured.cached_tokens is None and isinstance(event.timings.get("cache_n"), int):
            measured.cached_tokens = event.timings["cache_n"]
