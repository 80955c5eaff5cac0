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
    found: list[Advice] = []
    if _weighty(times.phases_ms["load"], times):
        found.append("keep_running")
    # What waits because it is background work waits for an idle engine, however many places there are.
    if record.service_tier == "flex" and _weighty(times.behind_others_ms, times):
        found.append("default_tier")
    else:
        found += _answers_at_once(record, times)
    found += _own_prompt(record, times)
    if times.blamed and _weighty(times.causes_ms["others_prefill"], times):
        found.append("others_shorter_prompts")
    found += _chunks(record)
    if _model_is_slow(record, times):
        found.append("smaller_model")
    if _weighty(times.phases_ms["delivery"], times):
        found.append("slow_client")
    return found


def _weighty(ms: float, times: Breakdown) -> bool:
    return ms >= WEIGHTY_MS and times.share(ms) >= WEIGHTY_SHARE


def _answers_at_once(record: RequestRecord, times: Breakdown) -> list[Advice]:
    """More or fewer, by what cost this request more; never both."""
    queued = times.phases_ms["queue"] if record.behind else 0.0
    shared = times.causes_ms["others_decode"]
    if not _weighty(max(queued, shared), times):
        return []
    return ["more_at_once"] if queued > shared else ["fewer_at_once"]


def _own_prompt(record: RequestRecord, times: Breakdown) -> list[Advice]:
    timings = record.timings
    own = times.causes_ms["own_prefill"] if timings.prefill_parts is not None else times.phases_ms["prefill"]
    if timings.prefill_tokens < LONG_PROMPT_TOKENS or not _weighty(own, times):
        return []
    return ["shorter_prompt"]


def _model_is_slow(record: RequestRecord, times: Breakdown) -> bool:
    """Whether half of the time went into work that only a faster model would shorten."""
    own = times.causes_ms["own_decode"]
    if record.timings.prefill_tokens < LONG_PROMPT_TOKENS:
        own += times.causes_ms["own_prefill"]
    return _weighty(own, times) and times.share(own) >= 0.5


def _chunks(record: RequestRecord) -> list[Advice]:
    """By the most prompt tokens that one stall waited for."""
    held_up = [stall.parts for stall in record.stalls if stall.parts.others_prefill_ms >= 0.5 * stall.gap_ms > 0]
    most = max((sum(blame.tokens for blame in parts.blamed) for parts in held_up), default=0)
    if most > ONE_STEP_TOKENS:
        return ["adaptive_policy"]
    return ["smaller_chunk"] if most >= FEW_TOKENS else []
