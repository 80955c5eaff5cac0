"""Policy `adaptive`: every running answer keeps its pace, and prompts are prefilled in what that leaves.

Sarathi-Serve (Agrawal et al., OSDI 2024) prefills a fixed number of prompt tokens beside the decodes of a step. Here
the number follows from time: a step may last until the next token of a running answer is due, and prefills as much as
is predicted to fit before that. How long a token of a deep prompt takes, on this machine at this moment, is what the
cost model is for.

```text
          |<------------------ gap target ------------------>|
   decode | chunk, as long as is predicted to fit  | headroom | decode | chunk …
```
"""

from __future__ import annotations

import math
from collections.abc import Sequence as Listing
from dataclasses import dataclass

from legato.scheduling.costs import CostModel
from legato.scheduling.headroom import Headroom
from legato.scheduling.plan import Chunk, Plan
from legato.scheduling.sequence import Sequence
from legato.scheduling.turns import NOBODY, Turns

LEAST_CHUNK = 4
"""Tokens that a step prefills at least if a prompt waits: prefill is never starved, and scraps cost more a token."""
LONGEST_PIECE_S = 1.0
"""Where nobody decodes, no chunk takes longer than this: a newcomer waits for it."""
NEARLY_BEST = 0.98
"""Share of the best prefill rate that a shorter chunk may cost where nobody decodes."""
LONG_S = 0.5
"""A prompt that takes longer to prefill than this is prefilled interruptibly, where that is possible."""
EARLY = 0.1
"""Share of the gap by which a decode may come early for not having to interrupt a chunk that is about to begin."""
NODE_SHARE = 0.05
"""Share of the gap that an interruption may have to wait for the library's node: longer chunks have longer nodes."""
LEAST_PREFILL = 0.25
"""Time that prefill gets at least, over the time of the decode that interrupts it."""


@dataclass(frozen=True, slots=True)
class _Memo:
    """What a plan leaves to be known."""

    shortest_gap_s: float
    """What it allows."""
    turns: Turns


class Adaptive:
    """Decodes what is due, and prefills as much as fits before the next token is due.

    Args:
        costs: Predicts calls.
        gap_target_s: Of answers that have no target of their own.
        step_tokens: Most prompt tokens in one step.
        interruptible: Whether there is a context for interruptible prefill.
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
        self._headroom = Headroom()
        self._node_share = 0.01
        """Longest node of an interruptible call over the whole call, lately."""
        self._applied = _Memo(0.0, NOBODY)

    def plan(self, admitted: Listing[Sequence], now_s: float) -> Plan:
        """The next step.

        Args:
            admitted: Those that hold KV cells.
            now_s: When the step begins.
        """
        decoding, prefilling = _by_phase(admitted)
        if not prefilling:
            decode_s = self._decode_s(decoding)
            return Plan(_ids(decoding), shortest_gap_s=decode_s, memo=_Memo(decode_s, NOBODY))
        prefilling, turns = self._applied.turns.order(prefilling)
        first = prefilling[0]
        is_interruptible = self._is_interruptible(first, admitted)
        if not is_interruptible:
            prefilling = [s for s in prefilling if not s.in_prefill_context]
        if not decoding:
            if is_interruptible:
                chunks = self._interruptible_chunk(first, LONGEST_PIECE_S)
            else:
                chunks = self._chunks(prefilling, self._piece_s(first), 0.0)
            return Plan(chunks=chunks, memo=_Memo(0.0, turns))
        # All of them: those whose first tokens come meanwhile decode in the next step too, but are few.
        decode_s = self._decode_s(decoding, interrupting=is_interruptible)
        if is_interruptible:
            least_s = LEAST_PREFILL * decode_s
        else:
            least_s = self._costs.chunk_s(first.computed_tokens, min(LEAST_CHUNK, first.prefill_left))
        headroom = self._headroom.factor
        shortest_s = (decode_s + least_s) * headroom
        gap_s = max(shortest_s, min(self._targets_s(decoding))) / headroom
        # Whoever can't wait for another gap decodes together with whoever is due, so that they keep step.
        latest_s = self._latest_s(decoding, shortest_s)
        until_s = now_s + decode_s + gap_s
        due = [s for s, at_s in zip(decoding, latest_s, strict=True) if at_s < until_s]
        if is_interruptible:
            if min(latest_s) > now_s + decode_s + EARLY * gap_s:
                due = []
            piece_s = min(LONGEST_PIECE_S, NODE_SHARE * gap_s / self._node_share)
            chunks = self._interruptible_chunk(first, piece_s)
        else:
            ends_s = min(now_s + gap_s, min(latest_s)) if self._joined else now_s + gap_s
            chunks = self._chunks(prefilling, ends_s - now_s - decode_s, shortest_s)
        return Plan(_ids(due), chunks, shortest_s, memo=_Memo(shortest_s, turns))

    def apply(self, plan: Plan) -> None:
        """What the step allows is what gaps are judged by, and whose turn it was counts."""
        if isinstance(plan.memo, _Memo):
            self._applied = plan.memo

    def due_s(self, admitted: Listing[Sequence]) -> float:
        """When prefill has to be interrupted so that no answer's next token is late."""
        decoding, _ = _by_phase(admitted)
        if not decoding:
            return math.inf
        latest_s = min(self._latest_s(decoding, self._applied.shortest_gap_s))
        return latest_s - self._decode_s(decoding, interrupting=True)

    def room_s(self, admitted: Listing[Sequence]) -> float:
        """What a step that decodes all of them has left for other work that can't be cut, such as moving KV state."""
        decoding, _ = _by_phase(admitted)
        if not decoding:
            return math.inf
        return min(self._targets_s(decoding)) / self._headroom.factor - self._decode_s(decoding)

    def note_prefill(self, sequence: Sequence, took_s: float) -> None:
        """So much time was spent on prefilling a prompt."""
        self._applied = _Memo(self._applied.shortest_gap_s, self._applied.turns.after(sequence, took_s))

    def note_gap(self, sequence: Sequence, gap_s: float) -> None:
        """An answer's token came so long after the one before it."""
        self._headroom.note(gap_s, max(self._target_s(sequence), self._applied.shortest_gap_s))

    def note_node(self, share: float) -> None:
        """An interruptible call could not be interrupted for this share of its time."""
        self._node_share += 0.2 * (max(share, 1e-4) - self._node_share)

    def _target_s(self, sequence: Sequence) -> float:
        return self._gap_target_s if sequence.gap_target_s is None else sequence.gap_target_s

    def _targets_s(self, sequences: Listing[Sequence]) -> list[float]:
        own_s = self._gap_target_s
        return [own_s if s.gap_target_s is None else s.gap_target_s for s in sequences]

    def _latest_s(self, decoding: Listing[Sequence], shortest_gap_s: float) -> list[float]:
        """When the next token of each is to be there at the latest; long ago if it has its cells again."""
        headroom = self._headroom.factor
        return [
            0.0 if s.last_token_s is None else s.last_token_s + max(target_s, shortest_gap_s) / headroom
            for s, target_s in zip(decoding, self._targets_s(decoding), strict=True)
        ]

    def _is_interruptible(self, first: Sequence, admitted: Listing[Sequence]) -> bool:
        if first.in_prefill_context or not self._interruptible:
            return first.in_prefill_context
        is_free = not any(s.in_prefill_context for s in admitted)
        return is_free and first.computed_tokens == 0 and self._costs.chunk_s(0, first.prefill_left) > LONG_S

    def _interruptible_chunk(self, first: Sequence, piece_s: float) -> tuple[Chunk, ...]:
        start = first.computed_tokens
        most = min(first.prefill_left, self._step_tokens)
        # Less than a tile takes as long as a whole one.
        length = max(
            self._costs.longest_chunk(start, piece_s, most), min(max(LEAST_CHUNK, self._costs.tile_rows), most)
        )
        return (Chunk(first.id, start, _without_scraps(length, first.prefill_left), interruptible=True),)

    def _decode_s(self, decoding: Listing[Sequence], *, interrupting: bool = False) -> float:
        return self._costs.decode_s([s.computed_tokens + 1 for s in decoding], interrupting=interrupting)

    def _piece_s(self, first: Sequence) -> float:
        """How long a step may prefill where nobody decodes: as short as prefills at nearly the best rate."""
        start, lengths = first.computed_tokens, [self._step_tokens]
        while lengths[-1] > LEAST_CHUNK:
            lengths.append(max(LEAST_CHUNK, lengths[-1] // 2))
        costs = [(length, self._costs.chunk_s(start, length)) for length in lengths]
        allowed = [(length, s) for length, s in costs if s <= LONGEST_PIECE_S] or costs[-1:]
        best_rate = max(length / s for length, s in allowed)
        return min(s for length, s in allowed if length / s >= NEARLY_BEST * best_rate)

    def _chunks(self, prefilling: Listing[Sequence], budget_s: float, shortest_gap_s: float) -> tuple[Chunk, ...]:
        """Chunks that take about `budget_s`, of as many prompts as it takes to fill it.

        A prompt that is prefilled to its end has its first token then, and its own gap begins.
        """
        chunks: list[Chunk] = []
        room = self._step_tokens
        for sequence in prefilling:
            start, left = sequence.computed_tokens, sequence.prefill_left
            length = self._costs.longest_chunk(start, budget_s, min(left, room))
            if not chunks:
                length = max(length, min(LEAST_CHUNK, left))
            length = _without_scraps(length, left)
            if not 0 < length <= room:
                break
            took_s = self._costs.chunk_s(start, length)
            chunks.append(Chunk(sequence.id, start, length))
            room -= length
            budget_s -= took_s
            if length == left:
                budget_s = min(budget_s, self._target_s(sequence) / self._headroom.factor - shortest_gap_s)
        return tuple(chunks)


def _without_scraps(length: int, left: int) -> int:
    """About as many tokens, so that neither they nor what is left of the prompt are fewer than `LEAST_CHUNK`; or none.

    Scraps cost more a token, and the library rounds a single token's results in another way.
    """
    if length < min(LEAST_CHUNK, left):
        return 0
    if left - length >= LEAST_CHUNK or left == length:
        return length
    return left if left < 2 * LEAST_CHUNK else left - LEAST_CHUNK


def _by_phase(admitted: Listing[Sequence]) -> tuple[list[Sequence], list[Sequence]]:
    """Those that decode, and those that are prefilled; by their counts, for this is done for all in every step."""
    decoding: list[Sequence] = []
    prefilling: list[Sequence] = []
    for sequence in admitted:
        if sequence.prefill_left:
            prefilling.append(sequence)
        elif not sequence.in_prefill_context:
            decoding.append(sequence)
    return decoding, prefilling


def _ids(sequences: Listing[Sequence]) -> tuple[int, ...]:
    return tuple([s.id for s in sequences])
