"""Where a request's time went, in plain words with figures."""

from __future__ import annotations

from collections.abc import Sequence

from legato.core.causes import CAUSES, Blame, Cause, CauseTimes, merged
from legato.core.timings import Stall
from legato.telemetry.breakdown import PHASES, Breakdown, RequestPhase
from legato.telemetry.record import RequestRecord
from legato.telemetry.wording import count, duration, listed, rate, share_of

SLOWED_SHARE = 0.1
"""Others slowed a phase if their work took at least this share of it …"""
SLOWED_MS = 20.0
"""… and at least this long."""
WORTH_A_WORD_SHARE = 0.05
"""A phase beside the longest one is named from this share of the whole on."""
WORTH_A_WORD_MS = 1.0
"""… if it took at least this long."""
STALL_SHARE = 0.1
"""The parts of a gap are named from this share of it on."""
LONGEST_ERROR = 300
"""Characters of an error that are repeated."""

CAUSE_WORDS: dict[Cause, str] = {
    "own_decode": "its own next token",
    "others_decode": "other answers' tokens",
    "own_prefill": "its own prompt",
    "others_prefill": "others' prompts",
    "engine": "the engine's work between calls",
    "delivery": "delivery to the client",
}
"""What each cause is called."""
TIER_WORDS = {"live": "the engine's cells", "memory": "memory", "disk": "disk"}
"""Where prompts are remembered."""
CHANGE_WORDS = {
    "number": "a number changed",
    "inserted": "something was inserted",
    "removed": "something was removed",
    "replaced": "something was replaced",
    "reordered": "its parts came in another order",
    "rewritten": "it was rewritten",
}
"""What clients do to prompts that are remembered."""


def sentences(record: RequestRecord, times: Breakdown) -> list[str]:
    """What the wait was, longest part first, and whose it was; at least one sentence, no advice."""
    told = [
        _outcome(record),
        _headline(record, times),
        _beside(record, times),
        _cached(record),
        _reread(record),
        _prefill_pace(record, times),
        _decode_pace(record, times),
        _background(record, times),
        _engine(times),
        _stalls(record),
        _raised_target(record),
        _few_tokens(record),
    ]
    return [sentence for sentence in told if sentence]


def blamed_words(blamed: Sequence[Blame]) -> str:
    """Whose prompts were read: `512 tokens of a (1.2 s) and 64 tokens of b (90 ms)`."""
    return listed([f"{count(blame.tokens, 'token')} of {blame.request} ({duration(blame.ms)})" for blame in blamed])


def stall_words(stall: Stall) -> str:
    """What a gap was spent on: `1.9 s for others' prompts (64 tokens of a) and 200 ms for its own next token`."""
    parts = [(stall.parts.of(cause), cause) for cause in CAUSES]
    large = [(ms, cause) for ms, cause in parts if ms > 0 and ms >= STALL_SHARE * stall.gap_ms]
    if not large:
        return f"for {CAUSE_WORDS[stall.cause]}"
    large.sort(key=lambda part: -part[0])
    told = [f"{duration(ms)} for {CAUSE_WORDS[cause]}{_whose(stall, cause)}" for ms, cause in large]
    return listed(told, most=len(CAUSES))


def _whose(stall: Stall, cause: Cause) -> str:
    """Whose prompts a gap went on; the duration stands before it."""
    if cause != "others_prefill" or not stall.parts.blamed:
        return ""
    whose = [f"{count(blame.tokens, 'token')} of {blame.request}" for blame in merged(stall.parts.blamed)]
    return f" ({listed(whose)})"


def _outcome(record: RequestRecord) -> str:
    after = duration(record.timings.total_ms)
    if record.end == "failed":
        error = " ".join(record.error.split())[:LONGEST_ERROR].rstrip(".")
        return f"It failed after {after}: {error}." if error else f"It failed after {after}."
    if record.end == "cancelled":
        tokens = record.timings.decode_tokens
        got = f"with {count(tokens, 'token')} of the answer written" if tokens else "before the first token"
        return f"The client went away after {after}, {got}."
    return ""


def _headline(record: RequestRecord, times: Breakdown) -> str:
    if times.total_ms <= 0:
        return "It took no time that can be measured."
    phase = times.dominant
    took = share_of(times.phases_ms[phase], times.total_ms)
    return f"{took} went into {_phase_words(phase, record)}{_other_rate(phase, record)}."


def _phase_words(phase: RequestPhase, record: RequestRecord) -> str:
    match phase:
        case "load":
            return "waiting for the model to load"
        case "queue":
            return _queue_words(record)
        case "prefill":
            return _prefill_words(record)
        case "decode":
            return _decode_words(record)
        case "delivery":
            return "delivery: the tokens were ready, but the server's process was busy or the client read slowly"


def _queue_words(record: RequestRecord) -> str:
    if not record.behind:
        return "taking the request in and waiting for a place"
    return f"waiting in the queue behind {count(len(record.behind), 'request')} ({listed(record.behind)})"


def _prefill_words(record: RequestRecord) -> str:
    timings = record.timings
    if timings.decode_tokens == 0:
        # An end may have come midway.
        got = sum(chunk.tokens for chunk in record.chunks)
        part = f"{got:,} of " if 0 < got < timings.prefill_tokens else ""
        return f"reading {part}the prompt's {count(timings.prefill_tokens, 'token')}, and no token of an answer came"
    if timings.prefill_tokens == 0:
        return "the step from the prompt, all of which was cached, to the first token"
    read = f"reading {count(timings.prefill_tokens, 'prompt token')}"
    return read + _at(timings.prefill_tokens_per_second)


def _decode_words(record: RequestRecord) -> str:
    timings = record.timings
    if timings.decode_tokens < 2:
        return "the time from the answer's only token to its end"
    return f"writing {count(timings.decode_tokens, 'token')}{_at(timings.decode_tokens_per_second)}"


def _at(tokens_per_second: float | None) -> str:
    return "" if tokens_per_second is None else f" at {rate(tokens_per_second)}"


def _other_rate(phase: RequestPhase, record: RequestRecord) -> str:
    """The rate of the other phase, since the two are often taken for one."""
    timings = record.timings
    if phase == "prefill" and timings.decode_tokens_per_second is not None:
        return f"; the answer's {rate(timings.decode_tokens_per_second)} is a different phase"
    if phase == "decode" and timings.decode_tokens > 1 and timings.prefill_tokens_per_second:
        return f"; the prompt's {rate(timings.prefill_tokens_per_second)} is a different phase"
    return ""


def _beside(record: RequestRecord, times: Breakdown) -> str:
    others = [phase for phase in PHASES if phase != times.dominant and _worth_a_word(phase, times)]
    if not others:
        return ""
    told = [f"{duration(times.phases_ms[phase])} went into {_phase_words(phase, record)}" for phase in others]
    return f"Beside that, {'; '.join(told)}."


def _worth_a_word(phase: RequestPhase, times: Breakdown) -> bool:
    ms = times.phases_ms[phase]
    return ms >= WORTH_A_WORD_MS and times.share(ms) >= WORTH_A_WORD_SHARE


def _cached(record: RequestRecord) -> str:
    timings = record.timings
    cached = timings.cached_tokens
    if cached == 0:
        return ""
    verb = "was" if cached == 1 else "were"
    where = f" from {TIER_WORDS[timings.cached_in]}" if timings.cached_in in TIER_WORDS else ""
    saved = f", which saved {duration(timings.saved_ms)}" if timings.saved_ms >= WORTH_A_WORD_MS else ""
    return f"{cached:,} of {count(record.prompt_tokens, 'prompt token')} {verb} remembered{where}{saved}."


def _reread(record: RequestRecord) -> str:
    """What its client changed, and that this cost time."""
    reread = record.timings.reread
    if reread is None:
        return ""
    change = CHANGE_WORDS.get(reread.kind, "it was changed")
    return (
        f"It looks like an earlier prompt, but {change} (from token {reread.at_token:,} on): "
        f"{count(reread.lost_tokens, 'token')} behind that had to be read again ({duration(reread.lost_ms)})."
    )


def _prefill_pace(record: RequestRecord, times: Breakdown) -> str:
    parts, timings = record.timings.prefill_parts, record.timings
    if parts is None or timings.prefill_tokens == 0:
        return ""
    if _slowed(parts, timings.prefill_ms):
        alone = _alone(timings.prefill_tokens, parts.own_prefill_ms)
        return f"Its prompt alone took {duration(parts.own_prefill_ms)}{alone}; {_others(parts)}."
    if _worth_a_word("prefill", times) and parts.own_prefill_ms >= 0.9 * timings.prefill_ms:
        return "Its prompt was read at full speed: nobody slowed it."
    return ""


def _decode_pace(record: RequestRecord, times: Breakdown) -> str:
    parts, timings = record.timings.decode_parts, record.timings
    if parts is None or timings.decode_tokens < 2:
        return ""
    if _slowed(parts, timings.decode_ms):
        alone = _alone(timings.decode_tokens - 1, parts.own_decode_ms)
        return f"Its answer alone took {duration(parts.own_decode_ms)}{alone}; {_others(parts)}."
    if _worth_a_word("decode", times) and parts.own_decode_ms >= 0.9 * timings.decode_ms:
        return "Its answer was written at its own pace: nobody slowed it."
    return ""


def _slowed(parts: CauseTimes, phase_ms: float) -> bool:
    others = max(0.0, parts.others_prefill_ms) + max(0.0, parts.others_decode_ms)
    return others >= SLOWED_MS and others >= SLOWED_SHARE * phase_ms


def _alone(tokens: int, ms: float) -> str:
    return f" ({rate(tokens * 1000 / ms)})" if ms >= 1 else ""


def _others(parts: CauseTimes) -> str:
    told = []
    if parts.others_prefill_ms >= WORTH_A_WORD_MS:
        whose = f": {blamed_words(merged(parts.blamed))}" if parts.blamed else ""
        told.append(f"{duration(parts.others_prefill_ms)} more went into reading others' prompts{whose}")
    if parts.others_decode_ms >= WORTH_A_WORD_MS:
        told.append(f"{duration(parts.others_decode_ms)} more went into writing others' answers")
    return "; ".join(told)


def _background(record: RequestRecord, times: Breakdown) -> str:
    """That it gave way to others, if it did, or had to because of how it was asked."""
    times_given = "once" if record.timings.preemptions == 1 else f"{record.timings.preemptions:,} times"
    gave_way = f"gave its place up to others {times_given}" if record.timings.preemptions else ""
    if record.service_tier != "flex":
        return f"It {gave_way}." if gave_way else ""
    if gave_way:
        return f"It was background work and waited for others: it {gave_way}."
    waited = times.behind_others_ms >= SLOWED_MS and times.share(times.behind_others_ms) >= SLOWED_SHARE
    return "It was background work and waited for others." if waited else ""


def _raised_target(record: RequestRecord) -> str:
    """That the target was beyond this machine, which makes longer gaps no stalls."""
    timings = record.timings
    target_ms, possible_ms = timings.gap_target_ms, timings.raised_gap_target_ms
    if target_ms is None or possible_ms is None:
        return ""
    answers = f" of {count(timings.raised_at_answers, 'answer')}" if timings.raised_at_answers else ""
    return (
        f"Its target of {duration(target_ms)} could not always be kept: one step{answers} took up to "
        f"{duration(possible_ms)}, and meanwhile only longer gaps counted."
    )


def _engine(times: Breakdown) -> str:
    ms = times.causes_ms["engine"]
    if ms < SLOWED_MS or times.share(ms) < SLOWED_SHARE:
        return ""
    return f"{duration(ms)} went into the engine's own work between the model's calls."


def _stalls(record: RequestRecord) -> str:
    number = record.timings.stalls
    if number == 0:
        return ""
    longest = max(record.stalls, key=lambda stall: stall.gap_ms, default=None)
    if number == 1:
        return f"1 gap between tokens was longer than the target{_longest(longest, ', ')}."
    together = duration(record.timings.stalled_ms)
    gaps = f"{number:,} gaps between tokens were longer than the target, {together} together"
    return f"{gaps}{_longest(longest, '; the longest was ')}."


def _longest(stall: Stall | None, before: str) -> str:
    if stall is None:
        return ""
    when = f"{duration(stall.gap_ms)} long, {duration(stall.at_ms)} after its arrival"
    return f"{before}{when}: {stall_words(stall)}"


def _few_tokens(record: RequestRecord) -> str:
    tokens = record.timings.decode_tokens
    if tokens == 1:
        return "The answer has one token, so that there is no pace of writing."
    if tokens == 0 and record.end in ("stop", "length"):
        return "The answer has no token."
    return ""
