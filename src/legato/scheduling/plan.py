"""What a step does, and what became of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive prompt tokens of one sequence that one step prefills."""

    id: int
    start: int
    """Position of the first of them."""
    length: int
    """Tokens."""
    interruptible: bool = False
    """Prefill it in the context of its own, where steps of others may come in between."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One step: which answers get their next token, what is moved into cells, and which prompts are prefilled.

    A part of it that is one library call is a plan too.
    """

    decodes: tuple[int, ...] = ()
    """Sequences that decode, by id."""
    chunks: tuple[Chunk, ...] = ()
    shortest_gap_s: float = 0.0
    """No answer in it can see shorter gaps, for a step takes that long; 0 if that is not known."""
    restores: tuple[int, ...] = ()
    """Sequences whose remembered beginnings are moved into their cells, by id."""
    given_up: tuple[int, ...] = ()
    """Sequences whose beginnings are prefilled instead, because moving them has waited for too long."""
    memo: object = field(default=None, compare=False, repr=False)
    """What the policy wants to know again when the plan is applied."""

    def __bool__(self) -> bool:
        return bool(self.decodes or self.restores or self.chunks)

    @property
    def interruptible(self) -> Chunk | None:
        """The chunk that is prefilled interruptibly: there is one at most, the last."""
        return self.chunks[-1] if self.chunks and self.chunks[-1].interruptible else None

    def decodes_alone(self) -> Plan:
        """Its decodes alone."""
        return replace(self, chunks=(), restores=())

    def beside_interruptible(self) -> Plan:
        """What of it can be run while a chunk is prefilled interruptibly: all but that chunk."""
        return replace(self, chunks=self.chunks[:-1]) if self.interruptible else self


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a plan."""

    committed: Mapping[int, int] = field(default_factory=dict)
    """Tokens of the answer that a sequence gained, by id: one, or several when guesses were confirmed (speculative
    decoding). Every sequence that decoded is here, and every one whose prompt was prefilled to its end."""
    finished: Collection[int] = ()
    """Sequences that have their last token, by id."""
