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
class Sequence:
    """One request in the engine. Phase and progress are derived from its counts, never stored beside them."""

    id: int
    prompt_tokens: int
    max_new_tokens: int
    """Most tokens that the answer may have."""
    slot: int | None = None
    """The KV sequence that it holds, None while it is queued."""
    computed_tokens: int = 0
    """Tokens, of the prompt and then of the answer, whose KV state is in its cells."""
    new_tokens: int = 0
    """Tokens of the answer so far. The latest of them is not computed yet: it is the next decode's input."""

    @property
    def phase(self) -> Phase:
        """What it is waiting for."""
        if self.slot is None:
            return Phase.QUEUED
        return Phase.PREFILL if self.computed_tokens < self.prompt_tokens else Phase.DECODE

    @property
    def unread_tokens(self) -> int:
        """Prompt tokens still to be read."""
        return max(0, self.prompt_tokens - self.computed_tokens)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive prompt tokens of one sequence that one step reads."""

    id: int
    start: int
    """Position of the first of them."""
    length: int
    """Tokens."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One step: which answers get their next token, and which prompts are read on."""

    decodes: tuple[int, ...] = ()
    """Sequences that decode, by id."""
    chunks: tuple[Chunk, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.decodes or self.chunks)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a plan."""

    committed: Mapping[int, int] = field(default_factory=dict)
    """Tokens of the answer that a sequence gained, by id: one, or several when guesses were confirmed (speculative
    decoding). Every sequence that decoded is here, and every one whose prompt was read to its end."""
    finished: Collection[int] = ()
    """Sequences that wrote their last token, by id."""
