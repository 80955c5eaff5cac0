"""Requests, and an answer while it is being read: what the dialects of the two APIs have in common."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any

from legato.bench.results import Measured

Message = dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request of a scenario."""

    role: str
    """Its part in the scenario."""
    messages: list[Message]
    wanted_tokens: int
    """Length of the answer."""
    round: int = 0
    depth: int = 0
    """Prompt length aimed at, tokens; 0 where it does not matter."""
    started: asyncio.Event | None = None
    """To set at the first text of the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """What is the same for all requests to a target."""

    seed: int
    ignore_eos: bool
    """Ask for answers of the full length, where the API can say so."""
    context_tokens: int
    """Longest prompt and answer together, where the API lets the client choose."""

    def without_ignore_eos(self) -> Sampling:
        """The same for a server that refuses this parameter."""
        return replace(self, ignore_eos=False)


@dataclass(slots=True)
class Reading:
    """The answer so far."""

    measured: Measured
    started: asyncio.Event | None = None
    """To set at the first text."""
    text: list[str] = field(default_factory=list)
    finished: bool = False
    """The server said that this was all."""

    def take(self, text: str | None, at_s: float) -> None:
        """Note the arrival of a piece of text, if there is any in it.

        Args:
            text: The piece.
            at_s: When it came, seconds from sending.
        """
        if text:
            self.measured.event_s.append(at_s)
            self.text.append(text)
            if self.started is not None:
                self.started.set()

    def finish(self, at_s: float) -> None:
        """Note that the server called the answer complete; the latest time counts."""
        self.finished = True
        self.measured.ended_s = at_s


class WrongAnswerError(Exception):
    """What the server sent is an error, or no answer at all; the text is a sentence."""


def sentence_of(error: Any) -> str:
    """What an error object of either API says."""
    message = error.get("message") if isinstance(error, dict) else error
    return str(message or error)
