"""What the scheduler knows of a request: counts and instants, no tokens."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from legato.kv.sources import Restore


class Phase(enum.Enum):
    """What a request is waiting for."""

    QUEUED = "queued"
    """A KV sequence."""
    PREFILL = "prefill"
    """Its prompt to be evaluated."""
    DECODE = "decode"
    """Its next token."""


@dataclass(slots=True)
class Sequence:
    """One request as it is planned for. Phase and progress are derived from its counts, never stored beside them.

    The first fields are as the request came. Those from `slot` on are written by the scheduler alone, or by whoever
    plans with a policy and owns the memory.
    """

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
    in_prefill_context: bool = False
    """Its KV state is in the context whose calls can be interrupted, not in its slot yet."""
    restore: Restore | None = None
    """What is to be moved into its cells; until then nothing of it is prefilled."""
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
        return Phase.PREFILL if self.prefill_left else Phase.DECODE

    @property
    def prefill_left(self) -> int:
        """Tokens to prefill before it can decode: of its prompt, and after a preemption of its answer so far."""
        left = self.prompt_tokens - self.computed_tokens
        return left if self.new_tokens < 2 else left + self.new_tokens - 1
