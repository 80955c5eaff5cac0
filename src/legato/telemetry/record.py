"""What is kept of a request and of the engine's calls: plain data, the same in memory, in history and in the API.

Offsets (`at_ms`) count from the request's arrival. Instants named `…_s` are seconds of the machine's monotonic clock.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from legato.core.origin import EndReason, Origin
from legato.core.timings import ChunkRead, Stall, Timings


class RequestRecord(Origin, frozen=True, kw_only=True):
    """One ended request."""

    model: str
    arrived_at: float
    """Unix time, s."""
    end: EndReason
    error: str
    """A sentence, if it failed."""
    prompt_tokens: int
    timings: Timings
    """The phases apart; `prefill_parts` and `decode_parts` in it name the causes."""
    behind: list[str] = msgspec.field(default_factory=list)
    """Requests that were running or waiting when this one arrived, if it had to wait: public ids."""
    stalls: list[Stall] = msgspec.field(default_factory=list)
    """The longest ones, longest first; `timings.stalls` counts all."""
    chunks: list[ChunkRead] = msgspec.field(default_factory=list)
    token_ms: list[float] = msgspec.field(default_factory=list)
    """When each token of the answer left the server."""


class LiveRequest(Origin, frozen=True, kw_only=True):
    """A request that has not ended, as it is now."""

    phase: Literal["load", "queue", "prefill", "decode"]
    since_ms: float
    """Time since its arrival."""
    prompt_tokens: int
    cached_tokens: int
    read_tokens: int
    """Prompt tokens read so far, cached ones included."""
    answer_tokens: int
    prefill_left_ms: float | None
    """Estimated time until its prompt is read; None if it is read, or nothing is known yet."""
    decode_tokens_per_second: float | None
    """Over its latest tokens; None before the second."""
    gap_ms: float | None
    """The latest gap between tokens."""
    gap_max_ms: float | None
    ahead: int = 0
    """Requests before it in the queue, while it waits."""
    preemptions: int = 0
    """How often it gave its KV cells up to others."""
    gap_target_ms: float | None = None
    """Longest gap that its reader should see, or what is possible instead."""
