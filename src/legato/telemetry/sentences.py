"""Where a request's time went, in plain words with figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from legato.core.causes import CAUSES, Blame, Cause, CauseTimes
from legato.core.timings import ChangeKind, Stall, Timings
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
CHANGE_WORDS: dict[ChangeKind, str] = {
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
    told = (
        _outcome(record),
        _headline(record, times),
        _beside(record, times),
        _cached(record),
        _reread(record),
        _pace("prefill", record.timings, times),
        _pace("decode", record.timings, times),
        _background(record, times),
        _engine(times),
        _stalls(record),
        _raised_target(record.timings),
        _few_tokens(record),
    )
    return list(filter(None, told))


def _whose(blamed: Sequence[Blame], *, durations: bool) -> str:
    """Whose prompts were read: `512 tokens of a (1.2 s) and 64 tokens of b (90 ms)`, with or without the times."""
    words = "{} of {} ({})" if durations else "{} of {}"
    return listed([words.format(count(blame.tokens, "token"), blame.request, duration(blame.ms)) for blame in blamed])


def stall_words(stall: Stall) -> str:
    """What a gap was spent on: `1.9 s for others' prompts (64 tokens of a) and 200 ms for its own next token`."""
    whose = f" ({_whose(stall.parts.blamed, durations=False)})" if stall.parts.blamed else ""
    told = [
        f"{duration(ms)} for {CAUSE_WORDS[cause]}{whose if cause == 'others_prefill' else ''}"
        for cause in sorted(CAUSES, key=stall.parts.of, reverse=True)
        if (ms := stall.parts.of(cause)) > 0 and ms >= STALL_SHARE * stall.gap_ms
    ]
    return listed(told, most=len(CAUSES)) if told else f"for {CAUSE_WORDS[stall.cause]}"


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
        case "queue" if record.behind:
            return f"waiting in the queue behind {count(len(record.behind), 'request')} ({listed(record.behind)})"
        case "queue":
            return "taking the request in and waiting for a place"
        case "prefill":
            return _prefill_words(record)
        case "decode" if record.timings.decode_tokens < 2:
            return "the time from the answer's only token to its end"
        case "decode":
            written = count(record.timings.decode_tokens, "token")
            return f"writing {written}{_at(record.timings.decode_tokens_per_second)}"
        case "delivery":
            return "delivery: the tokens were ready, but the server's process was busy or the client read slowly"


def _prefill_words(record: RequestRecord) -> str:
    timings = record.timings
    if timings.decode_tokens == 0:
        # An end may have come midway.
        got = sum(chunk.tokens for chunk in record.chunks)
        part = f"{got:,} of " if 0 < got < timings.prefill_tokens else ""
        return f"reading {part}the prompt's {count(timings.prefill_tokens, 'token')}, and no token of an answer came"
    if timings.prefill_tokens == 0:
        return "the step from the prompt, all of which was cached, to the first token"
    return f"reading {count(timings.prefill_tokens, 'prompt token')}{_at(timings.prefill_tokens_per_second)}"


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
    return (
        f"It looks like an earlier prompt, but {CHANGE_WORDS[reread.kind]} (from token {reread.at_token:,} on): "
        f"{count(reread.lost_tokens, 'token')} behind that had to be read again ({duration(reread.lost_ms)})."
    )


def _pace(phase: Literal["prefill", "decode"], timings: Timings, times: Breakdown) -> str:
    """What a phase took without others' work, and what that added; or that nobody slowed it."""
    if phase == "prefill":
        parts, phase_ms, tokens = timings.prefill_parts, timings.prefill_ms, timings.prefill_tokens
        what, undisturbed, own = "prompt", "read at full speed", parts.own_prefill_ms if parts else 0.0
    else:
        parts, phase_ms, tokens = timings.decode_parts, timings.decode_ms, timings.decode_tokens - 1
        what, undisturbed, own = "answer", "written at its own pace", parts.own_decode_ms if parts else 0.0
    if parts is None or tokens < 1:
        return ""
    if others := _others(parts, phase_ms):
        alone = f" ({rate(tokens * 1000 / own)})" if own >= 1 else ""
        return f"Its {what} alone took {duration(own)}{alone}; {others}."
    if _worth_a_word(phase, times) and own >= 0.9 * phase_ms:
        return f"Its {what} was {undisturbed}: nobody slowed it."
    return ""


def _others(parts: CauseTimes, phase_ms: float) -> str:
    """What others' work took in a phase; nothing if that did not slow it."""
    prefill_ms, decode_ms = max(0.0, parts.others_prefill_ms), max(0.0, parts.others_decode_ms)
    if not _slows(prefill_ms + decode_ms, phase_ms):
        return ""
    told = []
    if prefill_ms >= WORTH_A_WORD_MS:
        whose = f": {_whose(parts.blamed, durations=True)}" if parts.blamed else ""
        told.append(f"{duration(prefill_ms)} more went into reading others' prompts{whose}")
    if decode_ms >= WORTH_A_WORD_MS:
        told.append(f"{duration(decode_ms)} more went into writing others' answers")
    return "; ".join(told)


def _slows(ms: float, phase_ms: float) -> bool:
    return ms >= SLOWED_MS and ms >= SLOWED_SHARE * phase_ms


def _background(record: RequestRecord, times: Breakdown) -> str:
    """That it gave way to others, if it did, or had to because of how it was asked."""
    preemptions = record.timings.preemptions
    told = []
    if record.service_tier == "flex" and (preemptions or _slows(times.behind_others_ms, times.total_ms)):
        told.append("was background work and waited for others")
    if preemptions:
        told.append(f"gave its place up to others {'once' if preemptions == 1 else f'{preemptions:,} times'}")
    return f"It {': it '.join(told)}." if told else ""


def _raised_target(timings: Timings) -> str:
    """That the target was beyond this machine, which makes longer gaps no stalls."""
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
    told = f"{duration(ms)} went into the engine's own work between the model's calls."
    return told if _slows(ms, times.total_ms) else ""


def _stalls(record: RequestRecord) -> str:
    number = record.timings.stalls
    if number == 0:
        return ""
    told, before = "1 gap between tokens was longer than the target", ", "
    if number > 1:
        together = duration(record.timings.stalled_ms)
        told = f"{number:,} gaps between tokens were longer than the target, {together} together"
        before = "; the longest was "
    if longest := max(record.stalls, key=lambda stall: stall.gap_ms, default=None):
        when = f"{duration(longest.gap_ms)} long, {duration(longest.at_ms)} after its arrival"
        told += f"{before}{when}: {stall_words(longest)}"
    return f"{told}."


def _few_tokens(record: RequestRecord) -> str:
    tokens = record.timings.decode_tokens
    if tokens == 1:
        return "The answer has one token, so that there is no pace of writing."
    if tokens == 0 and record.end in ("stop", "length"):
        return "The answer has no token."
    return ""
