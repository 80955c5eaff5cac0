"""What the scheduler knows of a request, what it plans, and what it is told of the outcome. Counts only, no tokens."""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field


class Phase(enum.Enum):
    """What a request is waiting for."""

    QUEUED = "queued"
    """A KV sequence."""
    PREFILL = "prefill"
    """Its prompt to be read."""
    DECODE = "decode"
    """Its next token."""


@dataclass(slots=True)
class Recall:
    """The beginning of a prompt that is remembered and is to be moved into its cells, before the rest is read."""

    tokens: int
    """How many tokens it has."""
    move_s: float | None
    """What moving them takes; None while they are not there: another request reads them, or they come from disk."""
    reading_s: float
    """What reading them takes instead."""
    since_s: float
    """Since when it could be moved, or is waited for, on the engine's clock."""
    follows: int | None = None
    """The request that is reading them just now, by id: it is served like those who wait for it."""


@dataclass(slots=True)
class Sequence:
    """One request in the engine. Phase and progress are derived from its counts, never stored beside them."""

    id: int
    prompt_tokens: int
    max_new_tokens: int
    """Most tokens that the answer may have."""
    client: str | None = None
    """Who asks; requests of different clients share fairly."""
    gap_target_s: float | None = None
    """Longest gap that its reader should see; None for the server's."""
    background: bool = False
    """It gets only what others leave."""
    arrived_s: float = 0.0
    """When it joined the queue, on the engine's clock."""
    slot: int | None = None
    """The KV sequence that it holds, None while it is queued."""
    in_reader: bool = False
    """Its KV state is in the context that is read in interruptibly, not in its slot yet."""
    recall: Recall | None = None
    """What is to be moved into its cells; until then nothing of it is read."""
    computed_tokens: int = 0
    """Tokens, of the prompt and then of the answer, whose KV state is in its cells."""
    new_tokens: int = 0
    """Tokens of the answer so far. The latest of them is not computed yet: it is the next decode's input."""
    last_token_s: float | None = None
    """When it got its latest token, on the engine's clock."""
    raised_gap_target_s: float = 0.0
    """The shortest gap that steps allow, as was said last; 0 if they allow its target."""

    @property
    def phase(self) -> Phase:
        """What it is waiting for."""
        if self.slot is None:
            return Phase.QUEUED
        return Phase.PREFILL if self.unread_tokens else Phase.DECODE

    @property
    def unread_tokens(self) -> int:
        """Tokens to be read before it can write on: of its prompt, and after a preemption of its answer so far."""
        return self.prompt_tokens + max(0, self.new_tokens - 1) - self.computed_tokens


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive prompt tokens of one sequence that one step reads."""

    id: int
    start: int
    """Position of the first of them."""
    length: int
    """Tokens."""
    interruptible: bool = False
    """Read it in the context of its own, where steps of others may come in between."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One step: which answers get their next token, what is moved, and which prompts are read on."""

    decodes: tuple[int, ...] = ()
    """Sequences that decode, by id."""
    chunks: tuple[Chunk, ...] = ()
    shortest_gap_s: float = 0.0
    """No answer in it can see shorter gaps, for a step takes that long; 0 if that is not known."""
    moves: tuple[int, ...] = ()
    """Sequences whose remembered beginnings are moved into their cells, by id."""

    def __bool__(self) -> bool:
        return bool(self.decodes or self.moves or self.chunks)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a plan."""

    committed: Mapping[int, int] = field(default_factory=dict)
    """Tokens of the answer that a sequence gained, by id: one, or several when guesses were confirmed (speculative
    decoding). Every sequence that decoded is here, and every one whose prompt was read to its end."""
    finished: Collection[int] = ()
    """Sequences that wrote their last token, by id."""
