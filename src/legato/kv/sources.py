"""Where the beginning of a prompt comes from, if not all of it has to be prefilled."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Source:
    """Where the KV state of a prompt's first tokens is."""

    tokens: int
    """How many of them."""
    tier: str
    """`live`, `memory` or `disk`."""
    prefill_s: float
    """What prefilling them takes."""
    bring_s: float
    """What bringing them into other cells takes instead, with what waiting for them counts for; infinite if they can't
    be moved."""
    slot: int | None = None
    """The KV sequence that holds them; the lent one itself, if they are in place."""
    entry: str | None = None
    """The remembered entry that holds them."""
    follows: int | None = None
    """The request that is prefilling them just now."""


@dataclass(frozen=True, slots=True)
class Lease:
    """A KV sequence for a request, and where the beginning of its prompt comes from."""

    slot: int
    source: Source | None = None
    """None if all of the prompt has to be prefilled."""


@dataclass(frozen=True, slots=True)
class Restore:
    """The remembered beginning of a prompt, which is to be moved into cells before the rest is prefilled."""

    tokens: int
    """How many tokens it has."""
    move_s: float | None
    """What moving them takes; None while they are not there: another request prefills them, or they come from disk."""
    prefill_s: float
    """What prefilling them takes instead."""
    since_s: float
    """Since when it could be moved, or is waited for, on the engine's clock."""
    follows: int | None = None
    """The request that is prefilling them just now, by id: it is served like those who wait for it."""
