"""Chats of Ollama's own API: one JSON object a line, counts and durations in the last one."""

from __future__ import annotations

from typing import Any

import msgspec

from legato.bench.reading import MayFail, Message, Reading, Sampling, decoded
from legato.bench.target import Target

_DURATIONS = ("total_duration", "load_duration", "prompt_eval_duration", "eval_duration")


class _Message(msgspec.Struct):
    content: str | None = None
    thinking: str | None = None


class _Line(MayFail):
    """A piece of an answer, or its end."""

    message: _Message | None = None
    done: bool = False
    prompt_eval_count: int | None = None
    eval_count: int | None = None
    total_duration: int | None = None
    """Nanoseconds, like the next three."""
    load_duration: int | None = None
    prompt_eval_duration: int | None = None
    eval_duration: int | None = None


class Ollama:
    """The dialect of Ollama."""

    path = "/api/chat"

    def body(self, target: Target, messages: list[Message], wanted_tokens: int, sampling: Sampling) -> dict[str, Any]:
        """The request's body.

        The context length is the same in all requests of a run, since Ollama loads the model anew when it changes;
        its default would cut long prompts without a word.
        """
        return {
            "model": target.model,
            "messages": messages,
            "stream": True,
            "options": {
                "num_predict": wanted_tokens,
                "num_ctx": sampling.context_tokens,
                "temperature": 0,
                "seed": sampling.seed,
            },
        }

    def read_line(self, line: bytes, reading: Reading, at_s: float) -> None:
        """Take one line.

        Raises:
            WrongAnswerError: It reports an error, or is not of this API.
        """
        if not line.strip():
            return
        event = decoded(_Line, line, "Ollama")
        if event.message is not None:
            reading.take((event.message.thinking or "") + (event.message.content or ""), at_s)
        if event.done:
            reading.measured.prompt_tokens = event.prompt_eval_count
            reading.measured.answer_tokens = event.eval_count
            reading.measured.timings = {name: getattr(event, name) for name in _DURATIONS}
            reading.finish(at_s)
