"""Interruptible prefill: a long prompt's call that lets whole steps of others run between the nodes of its graph.

The library asks a function between any two nodes whether to go on. `Interruption.at_node` is that function, and the
only place that decides about interrupting; the loop runs the steps. See docs/interruption.md.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Protocol

from legato.core.calls import Call, PrefillChunk
from legato.core.clock import Clock
from legato.scheduling.plan import Chunk

LOOK_EVERY_S = 0.002
"""How often messages are looked for while a long prompt is prefilled."""


class Turn(enum.Enum):
    """What comes after a step of others."""

    OTHERS = "others"
    """Another step of theirs."""
    PREFILL = "prefill"
    """The interrupted call goes on."""
    NEVER = "never"
    """The interrupted call is given up: its request is gone, or another prompt's turn has come."""


class Others(Protocol):
    """Those who may have to go on while a call is open; the loop."""

    def due_s(self, now_s: float) -> float:
        """When the next token of anybody has to be decoded."""
        ...

    def has_mail(self) -> bool:
        """Whether there are messages to take in."""
        ...

    def take_slice(self, part: Call) -> None:
        """A part of the call was run."""
        ...

    def step_between(self, chunk: Chunk) -> Turn:
        """Take messages in, and run one step of others while a chunk is open."""
        ...


@dataclass(slots=True)
class OpenCall:
    """A chunk that is being prefilled interruptibly, in slices between the interruptions."""

    chunk: Chunk
    predicted_s: float
    """What prefilling it takes by itself."""
    slice_begun_s: float | None = None
    """When it was last gone on with; None before it has begun."""
    spent_s: float = 0.0
    """What the slices before took."""
    node_begun_s: float = 0.0
    """When the library last asked."""
    longest_node_s: float = 0.0
    """Longest time between two of its questions: an interruption waits for that at most."""
    told_tokens: int = 0
    """Tokens that the slices before were reported with."""

    @property
    def node_share(self) -> float:
        """Share of its time for which it could not be interrupted."""
        return self.longest_node_s / max(self.spent_s, 1e-9)

    def go_on(self, now_s: float) -> None:
        """A slice begins."""
        self.slice_begun_s = self.node_begun_s = now_s

    def at_node(self, now_s: float) -> None:
        """The library has run another node."""
        self.longest_node_s = max(self.longest_node_s, now_s - self.node_begun_s)
        self.node_begun_s = now_s

    def slice(self, now_s: float) -> Call:
        """The slice that ends now. How many tokens it has is estimated: the library computes them all in parallel."""
        begun_s = self._end_slice(now_s)
        done = int(self.chunk.length * min(1.0, self.spent_s / max(self.predicted_s, 1e-9)))
        # One token at least, and at least one for the last slice.
        return self._call(begun_s, now_s, min(max(done, self.told_tokens + 1), self.chunk.length - 1))

    def last_slice(self, now_s: float) -> Call:
        """The slice that ends now, with all the tokens that are left."""
        is_only = self.spent_s == 0
        call = self._call(self._end_slice(now_s), now_s, self.chunk.length)
        # Of a part of a call nothing was predicted.
        return Call(call.begun_s, call.ended_s, [], call.chunks, self.predicted_s if is_only else None)

    def _end_slice(self, now_s: float) -> float:
        begun_s = now_s if self.slice_begun_s is None else self.slice_begun_s
        self.spent_s += now_s - begun_s
        return begun_s

    def _call(self, begun_s: float, now_s: float, tokens: int) -> Call:
        part = PrefillChunk(self.chunk.id, self.chunk.start + self.told_tokens, tokens - self.told_tokens)
        self.told_tokens = tokens
        return Call(begun_s, now_s, [], [part])


class Interruption:
    """Decides, between the nodes of an open call, whether others come first.

    Args:
        clock: Tells when they are due.
        others: The loop.
    """

    def __init__(self, clock: Clock, others: Others) -> None:
        self._now_s = clock.now_s
        self._others = others
        self._open: OpenCall | None = None
        self._look_at_s = 0.0
        """When to look next whether the call has to be interrupted."""
        self._failure: BaseException | None = None
        """What was raised during an interruption: it can't pass through the library."""

    def open(self, chunk: Chunk, predicted_s: float) -> OpenCall:
        """A chunk is about to be prefilled.

        Args:
            chunk: Which.
            predicted_s: What it takes by itself.
        """
        self._open = OpenCall(chunk, predicted_s)
        self._look_at_s = 0.0
        return self._open

    def close(self) -> None:
        """The call has ended, in whatever way. What was raised during an interruption is raised now."""
        self._open = None
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def at_node(self) -> bool:
        """Asked by the library between two nodes; True ends the call."""
        call, now_s = self._open, self._now_s()
        if call is None or self._failure is not None:
            return self._failure is not None
        if call.slice_begun_s is None:
            call.go_on(now_s)
        call.at_node(now_s)
        if now_s < self._look_at_s:
            return False
        try:
            return self._look(call, now_s)
        except BaseException as error:
            self._failure = error
            return True

    def _look(self, call: OpenCall, now_s: float) -> bool:
        due_s = self._others.due_s(now_s)
        if self._others.has_mail() or now_s >= due_s:
            self._others.take_slice(call.slice(now_s))
            while (turn := self._others.step_between(call.chunk)) is Turn.OTHERS:
                pass
            if turn is Turn.NEVER:
                return True
            now_s = self._now_s()
            call.go_on(now_s)
            due_s = self._others.due_s(now_s)
        self._look_at_s = min(due_s, now_s + LOOK_EVERY_S)
        return False
