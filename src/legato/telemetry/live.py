"""Requests that have not ended, as a person watching would describe them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, linear_regression
from typing import Literal

import msgspec

from legato.core.origin import Origin
from legato.core.timings import ChunkRead
from legato.telemetry.figures import milliseconds, per_second
from legato.telemetry.record import LiveRequest
from legato.telemetry.timeline import Timeline

LATEST_TOKENS = 20
"""Tokens that the present decode rate is taken over."""
DEPTHS = 4
"""Chunks that a growth of cost with depth can be told from."""


def live_request(origin: Origin, timeline: Timeline, now_s: float, *, loading: bool, ahead: int) -> LiveRequest:
    """Describe a request that is running, or waiting behind `ahead` others, at an instant of the monotonic clock.

    While it waits, `loading` says whether that is because no model is ready.
    """
    times = timeline.token_times_s
    latest = times[-LATEST_TOKENS:]
    return LiveRequest(
        **msgspec.structs.asdict(origin),
        phase=_phase(timeline, loading=loading),
        since_ms=milliseconds(now_s - timeline.arrived_s),
        prompt_tokens=timeline.prompt_tokens,
        cached_tokens=timeline.cached_tokens,
        read_tokens=timeline.read_tokens,
        answer_tokens=len(times),
        prefill_left_ms=None if times else prefill_left_ms(timeline.latest_chunks, timeline.prompt_tokens),
        decode_tokens_per_second=per_second(len(latest) - 1, latest[-1] - latest[0]) if len(latest) > 1 else None,
        gap_ms=milliseconds(times[-1] - times[-2]) if len(times) > 1 else None,
        gap_max_ms=milliseconds(timeline.longest_gap_s) if len(times) > 1 else None,
        ahead=ahead,
        preemptions=timeline.preemptions,
        gap_target_ms=milliseconds(timeline.stall_from_s),
    )


def prefill_left_ms(chunks: Sequence[ChunkRead], prompt_tokens: int) -> float | None:
    """Estimate how long the rest of a prompt takes to read after these chunks of it, in ms.

    Attention makes a token dearer the deeper it stands: a straight line through what tokens have cost at their depths,
    other requests' turns in between included, is followed to the prompt's end. None before the first chunk is read.
    """
    if not chunks:
        return None
    read = chunks[-1].start + chunks[-1].tokens
    left = prompt_tokens - read
    if left <= 0:
        return 0.0
    # From one chunk's begin to the next one's: with what was done for others in between.
    spans = [(b.at_ms - a.at_ms, a) for a, b in pairwise(chunks)]
    spans.append((chunks[-1].took_ms, chunks[-1]))
    depths = [chunk.start + chunk.tokens / 2 for _, chunk in spans]
    costs = [span / max(1, chunk.tokens) for span, chunk in spans]
    mean_depth, mean_cost = fmean(depths), fmean(costs)
    slope = linear_regression(depths, costs).slope if len(spans) >= DEPTHS else 0.0
    middle = read + left / 2
    return round(left * max(0.0, mean_cost + max(0.0, slope) * (middle - mean_depth)), 3)


def _phase(timeline: Timeline, *, loading: bool) -> Literal["load", "queue", "prefill", "decode"]:
    if timeline.token_times_s:
        return "decode"  # preempted or not: its phases do not go back
    if timeline.holds_cells:
        return "prefill"
    return "load" if loading else "queue"
