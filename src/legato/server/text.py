"""From tokens to text that may be sent: whole characters, and never a part of a stop string."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import dataclass, field

from legato.core.answers import Logprobs
from legato.core.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class ChosenToken:
    """A token of the answer, for clients that asked for log-probabilities."""

    token: int
    logprobs: Logprobs | None
    begin: int
    """The character of the answer that its text begins at or within."""


@dataclass(slots=True)
class Piece:
    """Text to send, and the tokens that it came from."""

    text: str = ""
    tokens: list[ChosenToken] = field(default_factory=list)


class StopFinder:
    """Finds the first of the stop strings, none empty, in text that comes in pieces: the one that is complete first."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = stops
        self.held = ""
        """What may be the beginning of a stop string; sure not to be when no more text comes."""
        self.found = False
        """True once a stop string came; nothing may follow."""

    def feed(self, text: str) -> str:
        """What of all text so far is now sure not to belong to a stop string, and was not returned before."""
        if not self._stops:
            return text
        text = self.held + text
        places = [(place + len(stop), place) for stop in self._stops if (place := text.find(stop)) >= 0]
        if places:
            self.found = True
            self.held = ""
            return text[: min(places)[1]]
        keep = max(_overlap(text, stop) for stop in self._stops)
        self.held = text[len(text) - keep :]
        return text[: len(text) - keep]


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of the text that a stop string begins with."""
    longest = min(len(text), len(stop) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)


class AnswerText:
    """Assembles one answer.

    A token is sent with the first of its text: those of a half character or of a possible stop string wait, and so do
    those without text. Bytes that are no UTF-8 become U+FFFD, as everywhere.
    """

    def __init__(self, vocabulary: Vocabulary, stops: Sequence[str]) -> None:
        self._vocabulary = vocabulary
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._stops = StopFinder(stops)
        self._decoded = 0
        """Characters of the answer so far."""
        self._sent = 0
        """Characters of them that were sent."""
        self._waiting: list[ChosenToken] = []
        """Tokens that were not sent."""

    @property
    def stopped(self) -> bool:
        """True once a stop string came: the answer ends before it."""
        return self._stops.found

    def feed(self, token: int, logprobs: Logprobs | None = None) -> Piece | None:
        """Take a token; what may be sent now, or None."""
        self._waiting.append(ChosenToken(token, logprobs, self._decoded))
        text = self._decoder.decode(self._vocabulary.piece(token))
        self._decoded += len(text)
        return self._send(self._stops.feed(text))

    def finish(self) -> Piece | None:
        """What was held back, now that the answer has ended; None if nothing was."""
        text = self._stops.feed(self._decoder.decode(b"", final=True))
        if self.stopped:
            return self._send(text)
        text += self._stops.held
        return Piece(text, self._waiting) if text or self._waiting else None

    def _send(self, text: str) -> Piece | None:
        if not text:
            return None
        self._sent += len(text)
        ready = [token for token in self._waiting if token.begin < self._sent]
        del self._waiting[: len(ready)]
        return Piece(text, ready)
