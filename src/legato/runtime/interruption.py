"""A call that is interrupted: what of it has been run, in slices between the interruptions."""

from __future__ import annotations

from dataclasses import dataclass

from legato.core import calls
from legato.scheduling.state import Chunk


@dataclass(slots=True)
class OpenRead:
    """A chunk that is being read interruptibly."""

    chunk: Chunk
    predicted_s: float
    """What reading it takes by itself."""
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

    def begin_slice(self, now_s: float) -> None:
        """Go on, from now on."""
        self.slice_begun_s = self.node_begun_s = now_s

    def at_node(self, now_s: float) -> None:
        """The library has run another node."""
        self.longest_node_s = max(self.longest_node_s, now_s - self.node_begun_s)
        self.node_begun_s = now_s

    def slice(self, now_s: float) -> calls.Call:
        """The slice that ends now. How many tokens it read is estimated: the library reads them all in parallel.

        Args:
            now_s: Now.
        """
        begun_s = self._end_slice(now_s)
        done = int(self.chunk.length * min(1.0, self.spent_s / max(self.predicted_s, 1e-9)))
        # One token at least, and at least one for the last slice.
        return self._call(begun_s, now_s, min(max(done, self.told_tokens + 1), self.chunk.length - 1))

    def last_slice(self, now_s: float) -> calls.Call:
        """The slice that ends now, with all the tokens that are left."""
        is_only = self.spent_s == 0
        call = self._call(self._end_slice(now_s), now_s, self.chunk.length)
        # Of a part of a call nothing was predicted.
        return calls.Call(call.begun_s, call.ended_s, [], call.chunks, self.predicted_s if is_only else None)

    def _end_slice(self, now_s: float) -> float:
        begun_s = now_s if self.slice_begun_s is None else self.slice_begun_s
        self.spent_s += now_s - begun_s
        return begun_s

    def _call(self, begun_s: float, now_s: float, tokens: int) -> calls.Call:
        part = calls.PrefillChunk(self.chunk.id, self.chunk.start + self.told_tokens, tokens - self.told_tokens)
        self.told_tokens = tokens
        return calls.Call(begun_s, now_s, [], [part])
