"""One way to ask both of OpenAI's APIs, and to read their answers, whole or streamed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import openai

Api = Literal["chat", "completions"]

MODEL = "smollm2"
QUESTION = "Name the capital of France."
ANSWER = "The capital of France is Paris."
"""The demonstration model's greedy answer to the question: 7 tokens and its end token. Each is a clear choice, by 0.9
and more in log-probability, so that another machine's rounding does not change it."""


def user(content: Any) -> list[Any]:
    """A conversation of one message."""
    return [{"role": "user", "content": content}]


def ask(client: openai.OpenAI, api: Api, prompt: Any = QUESTION, **options: Any) -> Any:
    """Ask either API; options that only Legato knows go into `extra_body`."""
    options = {"model": MODEL, "temperature": 0} | options
    if api == "chat":
        return client.chat.completions.create(messages=user(prompt) if isinstance(prompt, str) else prompt, **options)
    return client.completions.create(prompt=prompt, **options)


def text_of(choice: Any) -> str:
    """The text of a choice of either API, or of a chunk of one."""
    if hasattr(choice, "message"):
        return choice.message.content
    return (choice.delta.content or "") if hasattr(choice, "delta") else choice.text


def timings_of(part: Any) -> dict[str, Any] | None:
    """The timings that an answer, a chunk or a choice carries."""
    return (part.model_extra or {}).get("timings")


def completion(client: openai.OpenAI, prompt: Any, **options: Any) -> str:
    """The text of one plain completion."""
    return ask(client, "completions", prompt, **options).choices[0].text


@dataclass
class Streamed:
    """A stream read to its end. Texts and finish reasons are by choice."""

    chunks: list[Any]
    texts: dict[int, str] = field(default_factory=dict)
    finishes: dict[int, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The text of the only choice."""
        assert set(self.texts) <= {0}
        return self.texts.get(0, "")

    @property
    def finish(self) -> str:
        """The finish reason of the only choice."""
        assert set(self.finishes) == {0}
        return self.finishes[0]


def read(stream: Any) -> Streamed:
    """Read a stream to its end; each choice must have exactly one finish reason, and nothing after it."""
    streamed = Streamed(list(stream))
    for chunk in streamed.chunks:
        for choice in chunk.choices:
            assert choice.index not in streamed.finishes, "a choice went on after its end"
            streamed.texts[choice.index] = streamed.texts.get(choice.index, "") + text_of(choice)
            if choice.finish_reason:
                streamed.finishes[choice.index] = choice.finish_reason
    return streamed


def answer(client: openai.OpenAI, api: Api, prompt: Any = QUESTION, *, stream: bool, **options: Any) -> tuple[str, str]:
    """Text and finish reason of an answer, whichever way it comes."""
    result = ask(client, api, prompt, stream=stream, **options)
    if stream:
        streamed = read(result)
        return streamed.text, streamed.finish
    return text_of(result.choices[0]), result.choices[0].finish_reason
