"""What raw times come to: percentiles, summaries, goodput, and the gaps around a stall. Pure functions; seconds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from legato.bench.results import Measured, TargetRun

TTFT_TARGET_S = 5.0
"""Time to first token that a request has to meet where the run's options name none."""
GAP_TARGET_S = 0.2
"""Gap that a request's text has to keep where the run's options name none: slower than this a reader waits."""
FEWEST_FOR_INTERVAL = 5
"""Values on each side below which a bootstrap interval says too little: even its widest one misses too often."""
JOB = "job"
"""Role group of background jobs in `crowd`."""
_DRAWS_AT_ONCE = 1_000_000


@dataclass(frozen=True, slots=True)
class ServiceTarget:
    """What a request has to meet to count as good."""

    ttft_s: float = TTFT_TARGET_S
    gap_s: float = GAP_TARGET_S

    @classmethod
    def of(cls, options: dict[str, Any]) -> ServiceTarget:
        """From a run's options `ttft_target_s` and `gap_target_s`; the defaults where they are missing."""
        return cls(
            _positive(options.get("ttft_target_s"), TTFT_TARGET_S), _positive(options.get("gap_target_s"), GAP_TARGET_S)
        )


@dataclass(frozen=True, slots=True)
class Interval:
    """A ratio of medians and its 95 % bootstrap interval."""

    ratio: float
    low: float | None
    """None, like `high`, for fewer than `FEWEST_FOR_INTERVAL` values on a side."""
    high: float | None

    @property
    def shows_difference(self) -> bool:
        """True if the interval lies wholly on one side of 1."""
        return self.low is not None and self.high is not None and not self.low <= 1 <= self.high


@dataclass(frozen=True, slots=True)
class Summary:
    """The measures of one target's requests in one role. None where nothing was there to measure."""

    count: int
    errors: int
    not_streamed: int
    """Answers that came in one piece: their TTFT is their whole time, and they have no gaps."""
    stopped_early: int
    prompt_tokens: float | None
    """Median."""
    cached_tokens: float | None
    """Median, of those that the server told."""
    prompt_rate: float | None
    """Median of the prompt tokens that were read over TTFT, tokens/s."""
    ttft_p50_s: float | None
    ttft_p95_s: float | None
    ttft_max_s: float | None
    gap_p50_s: float | None
    gap_p95_s: float | None
    gap_p99_s: float | None
    gap_max_s: float | None
    tokens_per_event: float | None
    """Median; above 1 the gaps are those between events that carry several tokens."""
    output_rate: float | None
    """Median over requests, tokens/s."""
    total_s: float | None
    """Median of the whole time from sending to the end."""


@dataclass(slots=True)
class Around:
    """The chat's gaps before, during and after another client's document was being read, seconds."""

    before: list[float] = field(default_factory=list)
    during: list[float] = field(default_factory=list)
    """Any gap that overlaps the time from the document's sending to its first token."""
    after: list[float] = field(default_factory=list)

    def worst(self) -> tuple[float | None, float | None, float | None]:
        """The longest gap of each part; None where there is none."""
        return (
            max(self.before, default=None),
            max(self.during, default=None),
            max(self.after, default=None),
        )


def percentile(values: Iterable[float], percent: float) -> float:
    """The nearest-rank percentile: a value that occurred, not one in between.

    Raises:
        ValueError: There are no values.
    """
    ordered = sorted(values)
    if not ordered:
        raise ValueError("there is no percentile of no values")
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def median(values: Iterable[float]) -> float:
    """The middle value; of an even count, the mean of the two in the middle.

    Raises:
        ValueError: There are no values.
    """
    ordered = sorted(values)
    if not ordered:
        raise ValueError("there is no median of no values")
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def ratio_of_medians(first: Sequence[float], second: Sequence[float], *, seed: int = 0, draws: int = 4000) -> Interval:
    """The second's median over the first's, with a percentile bootstrap interval of 95 %.

    Each side is drawn anew with replacement `draws` times. The values must be independent of each other: one for
    each request, not each gap within it.

    Args:
        first: Positive values, at least one.
        second: Likewise.
        seed: Same seed, same interval.
        draws: How many resamples.

    Raises:
        ValueError: A side has no values, or the first's median is 0.
    """
    if median(first) == 0:
        raise ValueError("there is no ratio to a median of 0")
    ratio = median(second) / median(first)
    if min(len(first), len(second)) < FEWEST_FOR_INTERVAL:
        return Interval(ratio, None, None)
    random = np.random.default_rng(seed)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = _medians(second, draws, random) / _medians(first, draws, random)
    low, high = np.nanpercentile(ratios, [2.5, 97.5], method="nearest")
    return Interval(ratio, float(low), float(high))


def prompt_rate(request: Measured) -> float | None:
    """Prompt tokens that were read over TTFT, tokens/s. With others waiting, the wait is in it."""
    if not request.prompt_tokens or not request.ttft_s or not request.streamed:
        return None
    return max(0, request.prompt_tokens - (request.cached_tokens or 0)) / request.ttft_s


def worst_gap_s(request: Measured) -> float | None:
    """The longest time in which nothing new came."""
    return max(request.gaps_s, default=None)


def total_s(request: Measured) -> float | None:
    """From sending to the end; None if the bench itself ended it, as its length then says nothing of the server."""
    return None if request.hung_up else request.ended_s


def end_s(request: Measured) -> float:
    """The last that was seen of a request, from the beginning of the target's run."""
    return request.sent_s + max([0.0, *request.event_s[-1:], *([request.ended_s] if request.ended_s else [])])


def people(requests: Iterable[Measured]) -> list[Measured]:
    """Requests that somebody waits for: all but those of background jobs, for which no target holds."""
    return [request for request in requests if role_group(request.role) != JOB]


def role_group(role: str) -> str:
    """The role without its number: "person 3" and "person 7" are summarised together."""
    name, _, number = role.rpartition(" ")
    return name if name and number.isdecimal() else role


def by_role(requests: Iterable[Measured]) -> dict[str, list[Measured]]:
    """Requests by role group, in the order in which the roles first appear."""
    groups: dict[str, list[Measured]] = {}
    for request in requests:
        groups.setdefault(role_group(request.role), []).append(request)
    return groups


def summarise(requests: Sequence[Measured]) -> Summary:
    """The measures of requests in one role.

    A failed request counts as an error and its times are left out: what it got before it broke off is no answer.
    """
    good = [request for request in requests if not request.error]
    first = sorted(request.ttft_s for request in good if request.ttft_s is not None)
    gaps = sorted(gap for request in good for gap in request.gaps_s)
    return Summary(
        count=len(requests),
        errors=len(requests) - len(good),
        not_streamed=sum(not request.streamed for request in good),
        stopped_early=sum(request.stopped_early for request in good),
        prompt_tokens=_median_of(request.prompt_tokens for request in good),
        cached_tokens=_median_of(request.cached_tokens for request in good),
        prompt_rate=_median_of(map(prompt_rate, good)),
        ttft_p50_s=_percentile_of(first, 50),
        ttft_p95_s=_percentile_of(first, 95),
        ttft_max_s=_percentile_of(first, 100),
        gap_p50_s=_percentile_of(gaps, 50),
        gap_p95_s=_percentile_of(gaps, 95),
        gap_p99_s=_percentile_of(gaps, 99),
        gap_max_s=_percentile_of(gaps, 100),
        tokens_per_event=_median_of(request.tokens_per_event for request in good if request.streamed),
        output_rate=_median_of(request.output_rate for request in good),
        total_s=_median_of(map(total_s, good)),
    )


def summaries(run: TargetRun) -> dict[str, Summary]:
    """A summary for each role group of one target."""
    return {role: summarise(requests) for role, requests in by_role(run.requests).items()}


def meets(request: Measured, ttft_s: float, gap_s: float) -> bool:
    """True if the answer came whole, began in time, and no gap in it was longer than the target."""
    if request.error or request.ttft_s is None:
        return False
    return request.ttft_s <= ttft_s and (worst_gap_s(request) or 0.0) <= gap_s


def span_s(requests: Sequence[Measured]) -> float:
    """From the first sending to the last end; 0 without requests."""
    if not requests:
        return 0.0
    return max(end_s(request) for request in requests) - min(request.sent_s for request in requests)


def goodput(requests: Sequence[Measured], ttft_s: float, gap_s: float) -> float:
    """Requests that met both targets, per second of the span of all of them. A failed request meets none."""
    span = span_s(requests)
    return sum(meets(request, ttft_s, gap_s) for request in requests) / span if span > 0 else 0.0


def share_within(gaps: Sequence[float], gap_s: float) -> float | None:
    """The share of gaps no longer than the target, 0 to 1; None without gaps."""
    return sum(gap <= gap_s for gap in gaps) / len(gaps) if gaps else None


def gaps_around_document(requests: Iterable[Measured]) -> Around:
    """The chat's gaps before, during and after the document was being read, over all rounds.

    A document without a first token counts as being read until its end. A round without a document is left out.
    """
    around = Around()
    for in_round in by_round(requests).values():
        document = next((request for request in in_round if request.role == "document"), None)
        if document is None:
            continue
        read_s = document.sent_s + document.ttft_s if document.ttft_s is not None else end_s(document)
        for chat in (request for request in in_round if role_group(request.role) == "chat"):
            _sort_gaps(chat, document.sent_s, read_s, around)
    return around


def by_round(requests: Iterable[Measured]) -> dict[int, list[Measured]]:
    """Requests by repetition, in the order in which they were sent."""
    rounds: dict[int, list[Measured]] = {}
    for request in sorted(requests, key=lambda request: request.sent_s):
        rounds.setdefault(request.round, []).append(request)
    return rounds


def _sort_gaps(chat: Measured, from_s: float, to_s: float, around: Around) -> None:
    for begin, end in pairwise(chat.sent_s + offset for offset in chat.event_s):
        part = around.before if end <= from_s else around.after if begin >= to_s else around.during
        part.append(end - begin)


def _medians(values: Sequence[float], draws: int, random: np.random.Generator) -> np.ndarray[Any, Any]:
    """Medians of resamples, made in blocks so that many values don't need much memory at once."""
    array = np.asarray(values, dtype=float)
    return np.concatenate(
        [
            np.median(array[random.integers(0, len(array), (rows, len(array)))], axis=1)
            for rows in _blocks(draws, max(1, _DRAWS_AT_ONCE // len(array)))
        ]
    )


def _blocks(total: int, size: int) -> Iterator[int]:
    for start in range(0, total, size):
        yield min(size, total - start)


def _median_of(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _percentile_of(values: Sequence[float], percent: float) -> float | None:
    return percentile(values, percent) if values else None


def _positive(value: object, default: float) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
        return float(value)
    return default
