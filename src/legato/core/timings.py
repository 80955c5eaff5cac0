"""The measures of one answer, kept apart by phase, as the API and the history show them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import msgspec

from legato.core.causes import Cause, CauseTimes

ChangeKind = Literal["number", "inserted", "removed", "replaced", "reordered", "rewritten"]
"""What a client did to a prompt that was remembered; `number`: changed a clock or a counter in it."""


class Stall(msgspec.Struct, frozen=True):
    """A gap between two tokens that was longer than the gap target."""

    at_ms: float
    """When the gap began."""
    gap_ms: float
    cause: Cause
    """The largest of the parts."""
    parts: CauseTimes


class Reread(msgspec.Struct, frozen=True):
    """Why a prompt was read again that looks like one that was remembered: what its client had changed."""

    kind: ChangeKind
    at_token: int
    """The first token of the prompt that differs."""
    lost_tokens: int
    """Tokens that need not have been read without the change."""
    lost_ms: float
    """What reading them took, about."""
    was: str | None = None
    """The words there in the earlier prompt; only for the client that sent both."""
    now: str | None = None
    """The words there now; likewise."""


class ChunkRead(msgspec.Struct, frozen=True):
    """A chunk of this request's own prompt."""

    at_ms: float
    took_ms: float
    start: int
    """Position of its first token."""
    tokens: int


@dataclass(frozen=True, slots=True)
class Timings:
    """The phases of one answer, apart. `load_ms + queue_ms + prefill_ms + decode_ms = total_ms`."""

    load_ms: float
    """Waiting while no model was ready."""
    queue_ms: float
    """Taking the request in (parsing, tokenizing) and waiting for KV cells, again too, as long as no token came."""
    prefill_ms: float
    """From admission to the first token, without such waits: reading the prompt, beside others' work."""
    prefill_tokens: int
    """Prompt tokens that were read."""
    cached_tokens: int
    """Prompt tokens that did not have to be read."""
    prefill_tokens_per_second: float | None
    """`prefill_tokens` over `prefill_ms`; null if no token came."""
    ttft_ms: float | None
    """Time to first token: from arrival to the first token leaving the server; null if none came."""
    decode_ms: float
    """From the first token to the end of the answer."""
    decode_tokens: int
    """Tokens of the answer."""
    decode_tokens_per_second: float | None
    """Tokens after the first over the time from the first to the last; null for fewer than two tokens."""
    itl_p50_ms: float | None
    """Median of the gaps between tokens; null without gaps, like the next two."""
    itl_p95_ms: float | None
    itl_max_ms: float | None
    """The longest gap."""
    total_ms: float
    """From arrival to the end of the answer."""
    prefill_parts: CauseTimes | None = None
    """Where `prefill_ms` went; the parts add up to it. Null while nothing was recorded, like the next one."""
    decode_parts: CauseTimes | None = None
    """Where the gaps between tokens went, all together; the parts add up to them."""
    stalls: int = 0
    """Gaps longer than the gap target, or than what it was raised to at that time."""
    stalled_ms: float = 0.0
    """Those gaps, added up."""
    gap_target_ms: float | None = None
    """Longest gap that its reader should see; null where no target was recorded."""
    raised_gap_target_ms: float | None = None
    """What was possible instead, because one step alone took longer than the target, at most; null where none did."""
    raised_at_answers: int = 0
    """Answers that were being written in such a step; 0 where the target was not raised."""
    preemptions: int = 0
    """How often it gave its KV cells up to others; it then waited, and its prompt was read again."""
    cached_in: str | None = None
    """Where the state of cached tokens was: `live` (the engine's cells), `memory` or `disk`; null if there are none."""
    recall_ms: float = 0.0
    """What bringing that state to where it was needed took; a wait for the disk is not in it."""
    saved_ms: float = 0.0
    """What reading the cached tokens would have taken, as the engine predicts, less what bringing them took."""
    reread: Reread | None = None
    """Why most of the prompt was read though it looks like an earlier one; null if it does not, or was not."""
