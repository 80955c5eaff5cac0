"""Policy `adaptive`: every running answer keeps its pace, and prompts are read in what that leaves.

Sarathi-Serve (Agrawal et al., OSDI 2024) reads a fixed number of prompt tokens beside the decodes of a step. Here the
number follows from time: a step may last until the next token of a running answer is due, and reads as much as is
predicted to fit before that. How long a token of a deep prompt takes, on this machine at this moment, is what the cost
model is for.

```text
          |<------------------ gap target ------------------>|
   decode | chunk, as long as is predicted to fit  | headroom | decode | chunk …
```
"""

from __future__ import annotations

import math
from collections.abc import Sequence as Listing

from legato.scheduling.costs import CostModel
from legato.scheduling.state import Chunk, Phase, Plan, Sequence
from legato.scheduling.turns import ReadingTurns

LEAST_CHUNK = 4
"""Tokens that a step reads at least if a prompt waits: reading is never starved, and scraps cost more a token."""
LONGEST_PIECE_S = 1.0
"""Where nobody writes, no chunk takes longer than this: a newcomer waits for it."""
NEARLY_BEST = 0.98
"""Share of the best reading rate that a shorter chunk may cost where nobody writes."""
LONG_S = 0.5
"""A prompt that takes longer to read than this is read interruptibly, where that is possible."""
EARLY = 0.1
"""Share of the gap by which a decode may come early for not having to interrupt a chunk that is about to begin."""
NODE_SHARE = 0.05
"""Share of the gap that an interruption may have to wait for the library's node: longer chunks have longer nodes."""
LEAST_READING = 0.25
"""Time that reading gets at least, over the time of the decode that interrupts it."""
NEAR = 0.7
"""Share of the planned gap from which one counts as planned: others had nothing to read in them."""


class Headroom:
    """What part of a gap target is planned with, so that nearly all gaps keep it though no prediction is exact.

    A gap that misses its target raises the headroom, each that keeps it lowers it a little; it settles where
    `MISSES` of the gaps miss. (A stochastic approximation of a quantile: Robbins and Monro, 1951.) Gaps that no
    headroom would have saved tell nothing, such as those in which something else had the processor.
    """

    MISSES = 0.006
    """Share of gaps that may be longer than their target."""
    ON_TIME = 0.97
    """Share of its target within which a gap counts as kept: a token's way to its reader takes some time too."""
    STEP = 0.02
    """What one missed gap adds."""
    LEAST, MOST = 1.02, 1.5
    """A gap that lasts longer than planned by more than that is a hiccup: more would only make reading slower."""

    def __init__(self) -> None:
        self.factor = 1.1
        """Targets are divided by it when steps are planned."""

    def note(self, gap_s: float, target_s: float) -> None:
        """A gap came out. Only those that came near what was planned for tell anything.

        Args:
            gap_s: Seconds between two tokens.
            target_s: What it should have been at most.
        """
        times_planned = gap_s * self.factor / target_s
        if times_planned > self.MOST:
            return
        if gap_s > self.ON_TIME * target_s:
            self.factor = min(self.MOST, self.factor + self.STEP * (1 - self.MISSES))
        elif times_planned > NEAR:
            self.factor = max(self.LEAST, self.factor - self.STEP * self.MISSES)


class Adaptive:
    """Decodes what is due, and reads as much as fits before the next token is due.

    Args:
        costs: Predicts calls.
        gap_target_s: Of answers that have no target of their own.
        step_tokens: Most prompt tokens in one step.
        interruptible: Whether there is a context for interruptible reading.
        joined: Whether a step is one library call, whose tokens come at its end, and not after its decodes.
    """

    def __init__(
        self,
        costs: CostModel,
        *,
        gap_target_s: float,
        step_tokens: int,
        interruptible: bool = False,
        joined: bool = False,
    ) -> None:
        self._costs = costs
        self._joined = joined
        self._gap_target_s = gap_target_s
        self._step_tokens = step_tokens
        self._interruptible = interruptible
        self._turns = ReadingTurns()
        self._headroom = Headroom()
        self._node_share = 0.01
        """Longest node of an interruptible call over the whole call, lately."""
        self._shortest_gap_s = 0.0
        """What the latest step allowed."""

    def plan(self, admitted: Listing[Sequence], now_s: float) -> Plan:
        """The next step.

        Args:
            admitted: Those that hold KV cells.
            now_s: When the step begins.
        """
        writing: list[Sequence] = []
        reading: list[Sequence] = []
        for sequence in admitted:  # by their counts, not their phases: this is done for all of them in every step
            if sequence.unread_tokens:
                reading.append(sequence)
            elif not sequence.in_reader:
                writing.append(sequence)
        self._shortest_gap_s = self._decode_s(writing)
        if not reading:
            return Plan(decodes=_ids(writing), shortest_gap_s=self._shortest_gap_s)
        reading = self._turns.order(reading)
        first = reading[0]
        is_interruptible = self._reads_interruptibly(first, admitted)
        if not is_interruptible:
            reading = [s for s in reading if not s.in_reader]
        if not writing:
            if is_interruptible:
                return Plan(chunks=self._interruptible_chunk(first, LONGEST_PIECE_S))
            return Plan(chunks=self._read(reading, self._piece_s(first)))
        # All of them: those whose first tokens come meanwhile decode in the next step too, but are few.
        decode_s = self._decode_s(writing, interrupting=is_interruptible)
        if is_interruptible:
            least_s = LEAST_READING * decode_s
        else:
            least_s = self._costs.chunk_s(first.computed_tokens, min(LEAST_CHUNK, first.unread_tokens))
        shortest_s = self._shortest_gap_s = (decode_s + least_s) * self._headroom.factor
        gap_s = max(shortest_s, min(map(self._target_s, writing))) / self._headroom.factor
        # Whoever can't wait for another gap decodes together with whoever is due, so that they keep step.
        latest_s = [self._latest_s(s) for s in writing]
        due = [s for s, at_s in zip(writing, latest_s, strict=True) if at_s < now_s + decode_s + gap_s]
        if is_interruptible:
            if min(latest_s) > now_s + decode_s + EARLY * gap_s:
                due = []
            piece_s = min(LONGEST_PIECE_S, NODE_SHARE * gap_s / self._node_share)
            chunks = self._interruptible_chunk(first, piece_s)
        else:
            ends_s = min(now_s + gap_s, min(latest_s)) if self._joined else now_s + gap_s
            chunks = self._read(reading, ends_s - now_s - decode_s)
        return Plan(decodes=_ids(due), chunks=chunks, shortest_gap_s=shortest_s)

    def due_s(self, admitted: Listing[Sequence]) -> float:
        """When reading has to be interrupted so that no answer's next token is late."""
        writing = _writing(admitted)
        return min(map(self._latest_s, writing), default=math.inf) - self._decode_s(writing, interrupting=True)

    def room_s(self, admitted: Listing[Sequence]) -> float:
        """What a step that decodes all of them has left for other work that can't be cut, such as moving KV state."""
        writing = _writing(admitted)
        if not writing:
            return math.inf
        return min(map(self._target_s, writing)) / self._headroom.factor - self._decode_s(writing)

    def note_read(self, sequence: Sequence, took_s: float) -> None:
        """So much time was spent on reading a prompt."""
        self._turns.account(sequence, took_s)

    def note_gap(self, sequence: Sequence, gap_s: float) -> None:
        """An answer's token came so long after the one before it."""
        self._headroom.note(gap_s, max(self._target_s(sequence), self._shortest_gap_s))

    def note_node(self, share: float) -> None:
        """An interruptible call could not be interrupted for this share of its time."""
        self._node_share += 0.2 * (max(share, 1e-4) - self._node_share)

    def _target_s(self, sequence: Sequence) -> float:
        return self._gap_target_s if sequence.gap_target_s is None else sequence.gap_target_s

    def _latest_s(self, sequence: Sequence) -> float:
        """When its next token is to be there at the latest."""
        if sequence.last_token_s is None:  # it gave its cells up, and has them again
            return 0.0
        return sequence.last_token_s + max(self._target_s(sequence), self._shortest_gap_s) / self._headroom.factor

    def _reads_interruptibly(self, first: Sequence, admitted: Listing[Sequence]) -> bool:
        if first.in_reader or not self._interruptible:
            return first.in_reader
        is_free = not any(s.in_reader for s in admitted)
        return is_free and first.computed_tokens == 0 and self._costs.chunk_s(0, first.unread_tokens) > LONG_S

    def _interruptible_chunk(self, first: Sequence, piece_s: float) -> tuple[Chunk, ...]:
        start = first.computed_tokens
        most = min(first.unread_tokens, self._step_tokens)
        # Less than a tile takes as long as a whole one.
        length = max(
            self._costs.longest_chunk(start, piece_s, most), min(max(LEAST_CHUNK, self._costs.tile_rows), most)
        )
        return (Chunk(first.id, start, _without_scraps(length, first.unread_tokens), interruptible=True),)

    def _decode_s(self, writing: Listing[Sequence], *, interrupting: bool = False) -> float:
        return self._costs.decode_s([s.computed_tokens + 1 for s in writing], interrupting=interrupting)

    def _piece_s(self, first: Sequence) -> float:
        """How long a step may read where nobody writes: as short as reads at nearly the best rate."""
        start, lengths = first.computed_tokens, [self._step_tokens]
        while lengths[-1] > LEAST_CHUNK:
            lengths.append(max(LEAST_CHUNK, lengths[-1] // 2))
        costs = [(length, self._costs.chunk_s(start, length)) for length in lengths]
        allowed = [(length, s) for length, s in costs if s <= LONGEST_PIECE_S] or costs[-1:]
        best_rate = max(length / s for length, s in allowed)
        return min(s for length, s in allowed if length / s >= NEARLY_BEST * best_rate)

    def _read(self, reading: Listing[Sequence], budget_s: float) -> tuple[Chunk, ...]:
        """Chunks that take about `budget_s`, of as many prompts as it takes to fill it.

        A prompt that is read to its end has its first token then, and its own gap begins.
        """
        chunks: list[Chunk] = []
        room = self._step_tokens
        for sequence in reading:
            start, unread = sequence.computed_tokens, sequence.unread_tokens
            length = self._costs.longest_chunk(start, budget_s, min(unread, room))
            if not chunks:
                length = max(length, min(LEAST_CHUNK, unread))
            length = _without_scraps(length, unread)
            if not 0 < length <= room:
                break
            took_s = self._costs.chunk_s(start, length)
            chunks.append(Chunk(sequence.id, start, length))
            room -= length
            budget_s -= took_s
            if length == unread:
                budget_s = min(budget_s, self._target_s(sequence) / self._headroom.factor - self._shortest_gap_s)
        return tuple(chunks)


def _without_scraps(length: int, unread: int) -> int:
    """About as many tokens, so that neither they nor what is left of the prompt are fewer than `LEAST_CHUNK`; or none.

    Scraps cost more a token, and the library rounds a single token's results in another way.
    """
    if length < min(LEAST_CHUNK, unread):
        return 0
    if unread - length >= LEAST_CHUNK or unread == length:
        return length
    return unread if unread < 2 * LEAST_CHUNK else unread - LEAST_CHUNK


def _writing(admitted: Listing[Sequence]) -> list[Sequence]:
    return [s for s in admitted if s.phase is Phase.DECODE and not s.in_reader]


def _ids(sequences: Listing[Sequence]) -> tuple[int, ...]:
    return tuple(s.id for s in sequences)
