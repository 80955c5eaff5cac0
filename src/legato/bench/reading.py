"""Messages, and an answer while it is being read: what the dialects of the two APIs have in common."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from legato.bench.results import MeasuredRequest

Message = dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """What is the same for all requests to a target."""

    seed: int
    context_tokens: int
    """Longest prompt and answer together, where the API lets the client choose."""
    ignore_eos: bool = True
    """Ask for answers of the full length, where the API can say so."""


@dataclass(slots=True)
class Reading:
    """The answer so far."""

    measured: MeasuredRequest
    started: asyncio.Event | None = None
    """To set at the first text."""
    pieces: list[str] = field(default_factory=list)
    finished: bool = False
    """The server said that this was all."""

    @property
    def text(self) -> str:
        """All that came."""
        return "".join(self.pieces)

    def take(self, text: str, at_s: float) -> None:
        """Note that a piece came, seconds from sending, if there is any text in it."""
        if text:
            self.measured.event_s.append(at_s)
            self.pieces.append(text)
            if self.started is not None:
                self.started.set()

    def finish(self, at_s: float) -> None:
        """Note that the server called the answer complete; the latest time counts."""
        self.finished = True
        self.measured.ended_s = at_s


class MayFail(msgspec.Struct):
    """An event that may report an error instead of what it is for."""

    error: Any = None


Event = TypeVar("Event", bound=MayFail)


class WrongAnswerError(Exception):
    """What the server sent is an error, or no answer at all; the text is a sentence."""


def user(text: str) -> Message:
    """A message of the user."""
    return {"role": "user", "content": text}


def assistant(text: str) -> Message:
    """A message of the model. Some servers refuse empty ones."""
    return {"role": "assistant", "content": text or "…"}


def sentence_of(error: Any) -> str:
    """What an error object of either API says."""
    message = error.get("message") if isinstance(error, dict) else error
    return str(message or error)


def decoded(kind: type[Event], data: bytes, api: str) -> Event:
    """One event of an API.

    Raises:
        WrongAnswerError: It is none, or reports an error.
    """
    try:
        event = msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise WrongAnswerError(f"The server sent something that is not of {api}'s API: {error}.") from error
    if event.error:
        raise WrongAnswerError(f"The server reported an error: {sentence_of(event.error)}")
    return event
