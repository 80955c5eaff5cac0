"""Answers made of arbitrary bytes, assembled token by token."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from hypothesis import strategies as st

from legato.server.text import AnswerText, Piece


class FakeVocabulary:
    """Token n is the n-th of some pieces."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._pieces = pieces

    def piece(self, token: int) -> bytes:
        return self._pieces[token]


@dataclass
class Written:
    """What was sent of an answer."""

    pieces: list[Piece] = field(default_factory=list)
    stopped: bool = False

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces)

    @property
    def tokens(self) -> list[int]:
        return [token.token for piece in self.pieces for token in piece.tokens]


def write(pieces: Sequence[bytes], stops: Sequence[str] = ()) -> Written:
    """Send an answer of those pieces, one token each, as the server does."""
    *_, written = written_step_by_step(pieces, stops)
    return written


def written_step_by_step(pieces: Sequence[bytes], stops: Sequence[str]) -> Iterator[Written]:
    """The same, as it is after every token and after the end, which a stop string brings early."""
    answer = AnswerText(FakeVocabulary(pieces), stops)  # type: ignore[arg-type]
    written = Written()
    for token in range(len(pieces)):
        if piece := answer.feed(token):
            written.pieces.append(piece)
        written.stopped = answer.stopped
        yield written
        if answer.stopped:
            return
    if piece := answer.finish():
        written.pieces.append(piece)
    written.stopped = answer.stopped
    yield written


def cut(text: str, stops: Sequence[str]) -> str:
    """The text before its first stop string: of several the one that is complete first, or the longest of those."""
    ends = [(text.find(stop) + len(stop), text.find(stop)) for stop in stops if stop in text]
    return text[: min(ends)[1]] if ends else text


def held_back(text: str, stops: Sequence[str]) -> int:
    """Length of the longest end of the text that may become a stop string."""
    beginnings = {stop[:n] for stop in stops for n in range(1, len(stop))}
    return max((len(beginning) for beginning in beginnings if text.endswith(beginning)), default=0)


@dataclass(frozen=True)
class Answer:
    """What a model may write, and where its client wants it to end."""

    pieces: list[bytes]
    stops: list[str]

    @property
    def data(self) -> bytes:
        return b"".join(self.pieces)

    @property
    def text(self) -> str:
        return self.data.decode("utf-8", "replace")


ALPHABET = "ab€😀"
"""Few characters, so that stop strings are met, of one to four bytes."""
characters = st.sampled_from(ALPHABET)
stop_lists = st.lists(st.text(characters, min_size=1, max_size=4), max_size=3)
stray_bytes = st.sampled_from([b"\x80", b"\xac", b"\xe2\x82", b"\xf0\x9f", b"\xff"])


@st.composite
def answers(draw: st.DrawFn, *, valid: bool = True) -> Answer:
    """Text full of stop strings and of their beginnings, in pieces that end within characters too."""
    stops = draw(stop_lists)
    beginnings = [stop[:n] for stop in stops for n in range(1, len(stop) + 1)]
    part = (characters | st.sampled_from(beginnings) if beginnings else characters).map(str.encode)
    data = b"".join(draw(st.lists(part if valid else part | stray_bytes, max_size=10)))
    return Answer(draw(splits(data)), stops)


@st.composite
def splits(draw: st.DrawFn, data: bytes) -> list[bytes]:
    """The bytes in pieces, none of them empty."""
    cuts = draw(st.sets(st.integers(1, len(data) - 1))) if len(data) > 1 else set()
    return [data[begin:end] for begin, end in itertools.pairwise([0, *sorted(cuts), len(data)]) if begin < end]
