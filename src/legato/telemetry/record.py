"""What is kept of a request and of the engine's calls: plain data, the same in memory, in history and in the API.

Offsets (`at_ms`) count from the request's arrival. Instants named `…_s` are seconds of the machine's monotonic clock.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from legato.core.origin import Endpoint, EndReason, ServiceTier
from legato.core.timings import ChunkRead, Stall, Timings


class RequestRecord(msgspec.Struct):
    """One ended request."""

    id: str
    """As in the answer's body; `ID-1` and so on for further choices of one request."""
    endpoint: Endpoint
    model: str
    client: str | None
    """Name of the API key that sent it; None without one."""
    arrived_at: float
    """Unix time, s."""
    end: EndReason
    error: str
    """A sentence, if it failed."""
    prompt_tokens: int
    timings: Timings
    """The phases apart; `prefill_parts` and `decode_parts` in it name the causes."""
    behind: list[str] = []
    """Requests that were running or waiting when this one arrived, if it had to wait: public ids."""
    stalls: list[Stall] = []
    """The longest ones, longest first; `timings.stalls` counts all."""
    chunks: list[ChunkRead] = []
    token_ms: list[float] = []
    """When each token of the answer left the server."""
    service_tier: ServiceTier = "default"


class LiveRequest(msgspec.Struct):
    """A request that has not ended, as it is now."""

    id: str
    endpoint: Endpoint
    client: str | None
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
    service_tier: ServiceTier = "default"
    preemptions: int = 0
    """How often it gave its KV cells up to others."""
    gap_target_ms: float | None = None
    """Longest gap that its reader should see, or what is possible instead."""
