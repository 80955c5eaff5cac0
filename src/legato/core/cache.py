"""What is known of remembered prompts, as the engine tells it; never their content."""

from __future__ import annotations

from typing import Literal

import msgspec

CacheAction = Literal["list", "remove", "pin", "unpin"]
"""What can be done with what is remembered."""


class Restored(msgspec.Struct, frozen=True, array_like=True):
    """The beginning of a prompt did not have to be prefilled."""

    request: int
    tokens: int
    """How many tokens of it; 0 if that failed."""
    tier: str
    """Where their state was: `live`, `memory` or `disk`."""
    took_s: float
    """What moving it took."""
    prefill_s: float
    """What prefilling it would have taken."""


class CacheEntry(msgspec.Struct, frozen=True, array_like=True):
    """Something that is remembered; never its content."""

    id: str
    """Empty for what is in the cells of a sequence."""
    scope: str
    """Whose; empty for everybody's."""
    tokens: int
    bytes: int
    """Of its state outside the cells."""
    hits: int
    """Requests that began with it."""
    unused_s: float
    """Since when nobody has used it."""
    places: list[str]
    """`live`, `memory`, `disk`."""
    pinned: bool


class CacheFigures(msgspec.Struct, frozen=True, tag="cache_state", array_like=True):
    """How much is remembered."""

    parked_tokens: int
    """In cells that no request holds."""
    memory_bytes: int
    memory_budget: int
    memory_entries: int
    disk_bytes: int
    disk_budget: int
    disk_entries: int
    has_disk: bool = False
    """Whether there is a folder to keep states in."""
