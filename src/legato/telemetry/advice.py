"""What would have shortened a wait, only where the figures of the request show it."""

from __future__ import annotations

from typing import Literal

from legato.telemetry.breakdown import Breakdown
from legato.telemetry.record import RequestRecord

Advice = Literal[
    "keep_running",
    "more_at_once",
    "fewer_at_once",
    "shorter_prompt",
    "others_shorter_prompts",
    "default_tier",
    "adaptive_policy",
    "smaller_chunk",
    "smaller_model",
    "slow_client",
]
"""An advice, as a word for programs; `ADVICE` has the sentences."""

ADVICE: dict[Advice, str] = {
    "keep_running": "A server that keeps running loads its model only once: start it before the first question.",
    "more_at_once": "More answers at once (a higher --parallel), if memory allows, would have let it begin sooner.",
    "fewer_at_once": "Fewer answers at once (a lower --parallel) would make each of them faster; others then wait.",
    "shorter_prompt": "A shorter prompt would be read sooner.",
    "others_shorter_prompts": "Shorter prompts of the others would have held it up less.",
    "default_tier": "As a request of the default service tier, not as background work, it would not wait for others.",
    "adaptive_policy": (
        "With --policy adaptive no more of a prompt comes between two tokens than the gap target allows; "
        "if it is adaptive already, a lower gap target shortens the gaps."
    ),
    "smaller_chunk": (
        "A lower gap target (with --policy adaptive) or a smaller --chunk (with --policy chunked) would shorten the "
        "gaps between tokens."
    ),
    "smaller_model": "A smaller model, or smaller weights of the same one, would read and write faster.",
    "slow_client": "The tokens were ready sooner: look at the client, which may read slowly, and at the network to it.",
}
"""The sentence of each advice."""

WEIGHTY_SHARE = 0.2
"""An advice is given for what took at least this share of the whole …"""
WEIGHTY_MS = 100.0
"""… and at least this long: below it nobody feels the difference."""
ONE_STEP_TOKENS = 512
"""More prompt tokens than this between two tokens are more than one step reads, unless --batch was raised."""
LONG_PROMPT_TOKENS = 256
"""There is little to cut from a prompt shorter than this: templates and a question have as many."""
FEW_TOKENS = 32
"""Fewer prompt tokens than this between two tokens leave nothing for a smaller chunk to gain."""


def advice(record: RequestRecord, times: Breakdown) -> list[Advice]:
    """What would have shortened this request's wait, most direct first; nothing for a request that failed."""
    if record.end == "failed":
        return []

    def weighty(ms: float) -> bool:
        return ms >= WEIGHTY_MS and times.share(ms) >= WEIGHTY_SHARE

    timings, phases, causes = record.timings, times.phases_ms, times.causes_ms
    # What waits because it is background work waits for an idle engine, however many places there are.
    background = record.service_tier == "flex" and weighty(times.behind_others_ms)
    # More answers at once or fewer, by what cost this request more; never both.
    queued, shared = phases["queue"] if record.behind else 0.0, causes["others_decode"]
    places = not background and weighty(max(queued, shared))
    long_prompt = timings.prefill_tokens >= LONG_PROMPT_TOKENS
    own_prompt = causes["own_prefill"] if timings.prefill_parts is not None else phases["prefill"]
    # Work that only a faster model would shorten.
    own_work = causes["own_decode"] + (0.0 if long_prompt else causes["own_prefill"])
    between_tokens = _most_read_in_a_stall(record)
    rules: dict[Advice, bool] = {
        "keep_running": weighty(phases["load"]),
        "default_tier": background,
        "more_at_once": places and queued > shared,
        "fewer_at_once": places and queued <= shared,
        "shorter_prompt": long_prompt and weighty(own_prompt),
        "others_shorter_prompts": bool(times.blamed) and weighty(causes["others_prefill"]),
        "adaptive_policy": between_tokens > ONE_STEP_TOKENS,
        "smaller_chunk": FEW_TOKENS <= between_tokens <= ONE_STEP_TOKENS,
        "smaller_model": weighty(own_work) and times.share(own_work) >= 0.5,
        "slow_client": weighty(phases["delivery"]),
    }
    return [word for word, holds in rules.items() if holds]


def _most_read_in_a_stall(record: RequestRecord) -> int:
    """The most prompt tokens that one stall waited for, of those that others' prompts took half of."""
    held_up = [stall.parts for stall in record.stalls if stall.parts.others_prefill_ms >= 0.5 * stall.gap_ms > 0]
    return max((sum(blame.tokens for blame in parts.blamed) for parts in held_up), default=0)
