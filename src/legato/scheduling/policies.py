"""The policies: given who is decoding and whose prompt is being read, what the next step does.

`whole`: a prompt is read before anything else goes on, as servers without chunked prefill do. The baseline.

`chunked`: every step decodes all running answers first and then reads at most `chunk` prompt tokens, as Sarathi-Serve
does (Agrawal et al., OSDI 2024). The prompts being read take turns, one step each, so that a short question is not stuck
behind a long document, and no prompt waits more than one turn of each other one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

from legato.scheduling.state import Chunk, Phase, Plan, Sequence

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Sequence as Listing

PolicyName = Literal["whole", "chunked"]


class Policy(Protocol):
    """Plans one step from the sequences that hold KV cells, in the order in which they were admitted."""

    def plan(self, admitted: Listing[Sequence]) -> Plan:
        """The next step; empty only if nobody can go on."""
        ...


class Whole:
    """Reads the oldest prompt to its end before any answer goes on.

    Args:
        step_tokens: Most prompt tokens in one step. Nothing decodes between the steps of one prompt; they end only so
            that arrivals and cancellations are noticed.
    """

    def __init__(self, step_tokens: int) -> None:
        self._step_tokens = step_tokens

    def plan(self, admitted: Listing[Sequence]) -> Plan:
        """Read on in the oldest unread prompt; if there is none, decode everybody."""
        for sequence in admitted:
            if sequence.phase is Phase.PREFILL:
                return Plan(chunks=(next_chunk(sequence, self._step_tokens),))
        return Plan(decodes=_decoding(admitted))


class Chunked:
    """Decodes everybody in every step, and reads `chunk` prompt tokens beside it, the prompts taking turns.

    Args:
        chunk: Most prompt tokens that a step reads.
    """

    def __init__(self, chunk: int) -> None:
        self._chunk = chunk
        self._last_turn: int | None = None

    def plan(self, admitted: Listing[Sequence]) -> Plan:
        """Decode everybody; give the step's prompt tokens to the next prompt in turn, what it leaves to those behind."""
        chunks: list[Chunk] = []
        left = self._chunk
        for sequence in self._in_turn(admitted):
            if left == 0:
                break
            chunks.append(next_chunk(sequence, left))
            left -= chunks[-1].length
            self._last_turn = sequence.id
        return Plan(decodes=_decoding(admitted), chunks=tuple(chunks))

    def _in_turn(self, admitted: Listing[Sequence]) -> Iterator[Sequence]:
        """The prompts being read, beginning behind the one that was read last."""
        reading = [s for s in admitted if s.phase is Phase.PREFILL]
        turns = [s.id for s in reading]
        first = turns.index(self._last_turn) + 1 if self._last_turn in turns else 0
        yield from reading[first:]
        yield from reading[:first]


def next_chunk(sequence: Sequence, most: int) -> Chunk:
    """The next prompt tokens of a sequence, at most `most`."""
    return Chunk(sequence.id, sequence.computed_tokens, min(most, sequence.unread_tokens))


def _decoding(admitted: Listing[Sequence]) -> tuple[int, ...]:
    return tuple(s.id for s in admitted if s.phase is Phase.DECODE)


def make_policy(name: PolicyName, *, chunk: int, step_tokens: int) -> Policy:
    """The policy of that name.

    Args:
        name: As in the settings.
        chunk: Prompt tokens a step, for `chunked`.
        step_tokens: Most prompt tokens a step under any policy.
    """
    return Whole(step_tokens) if name == "whole" else Chunked(min(chunk, step_tokens))
