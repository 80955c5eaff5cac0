"""What raw times come to: percentiles, summaries, goodput, and the gaps around a stall. Pure functions; seconds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from statistics import median
from typing import Any

import numpy as np

from legato.bench.results import MeasuredRequest

FEWEST_FOR_INTERVAL = 5
"""Values on each side below which a bootstrap interval says too little: even its widest one misses too often."""
JOB = "job"
"""Role group of background jobs in `crowd`."""
_DRAWS_AT_ONCE = 1_000_000


@dataclass(frozen=True, slots=True)
class ServiceTarget:
    """What a request has to meet to count as good."""

    ttft_s: float = 5.0
    """Longest time to first token."""
    gap_s: float = 0.2
    """Longest gap between pieces of text: slower than this a reader waits."""

    @classmethod
    def of(cls, options: dict[str, Any]) -> ServiceTarget:
        """From a run's options `ttft_target_s` and `gap_target_s`; the defaults where they are missing or no times."""
        said = {"ttft_s": options.get("ttft_target_s"), "gap_s": options.get("gap_target_s")}
        times = {name: value for name, value in said.items() if isinstance(value, (int, float)) and value > 0}
        return cls(**times)

    def met_by(self, request: MeasuredRequest) -> bool:
        """True if the answer came whole, began in time, and no gap in it was longer than the target."""
        if request.error or request.ttft_s is None:
            return False
        return request.ttft_s <= self.ttft_s and (worst_gap_s(request) or 0.0) <= self.gap_s

    def goodput(self, requests: Sequence[MeasuredRequest]) -> float:
        """Requests that met both targets, per second of the span of all of them. A failed request meets none."""
        span = span_s(requests)
        return sum(map(self.met_by, requests)) / span if span > 0 else 0.0

    def percent_within(self, gaps_s: Sequence[float]) -> float | None:
        """The share of gaps no longer than the target, 0 to 100; None without gaps."""
        return 100 * sum(gap <= self.gap_s for gap in gaps_s) / len(gaps_s) if gaps_s else None


@dataclass(frozen=True, slots=True)
class Interval:
    """A ratio of medians and its 95 % bootstrap interval."""

    ratio: float
    bounds: tuple[float, float] | None
    """None for fewer than `FEWEST_FOR_INTERVAL` values on a side."""

    @property
    def shows_difference(self) -> bool:
        """True if the interval lies wholly on one side of 1."""
        return self.bounds is not None and not self.bounds[0] <= 1 <= self.bounds[1]


class RoleSummary:
    """The measures of one target's requests in one role. None where nothing was there to measure.

    A failed request counts as an error and its times are left out: what it got before it broke off is no answer.
    """

    def __init__(self, requests: Sequence[MeasuredRequest]) -> None:
        good = [request for request in requests if not request.error]
        self.count = len(requests)
        self.errors = len(requests) - len(good)
        self.not_streamed = sum(not request.streamed for request in good)
        """Answers that came in one piece: their TTFT is their whole time, and they have no gaps."""
        self.stopped_early = sum(request.stopped_early for request in good)
        self.prompt_tokens = median_of(request.prompt_tokens for request in good)
        """Median over requests, like all that follow; tokens."""
        self.cached_tokens = median_of(request.cached_tokens for request in good)
        """Of those that the server told."""
        self.prompt_rate = median_of(map(prompt_rate, good))
        """Prompt tokens that were read over TTFT, tokens/s."""
        self.tokens_per_event = median_of(request.tokens_per_event for request in good if request.streamed)
        """Above 1 the gaps are those between events that carry several tokens."""
        self.output_rate = median_of(request.output_rate for request in good)
        """Tokens/s."""
        self.total_s = median_of(map(total_s, good))
        """The whole time from sending to the end."""
        self._firsts_s = [request.ttft_s for request in good if request.ttft_s is not None]
        self._gaps_s = [gap for request in good for gap in request.gaps_s]

    def ttft_s(self, percent: float) -> float | None:
        """A percentile over requests; the longest for 100."""
        return percentile(self._firsts_s, percent)

    def gap_s(self, percent: float) -> float | None:
        """A percentile over all gaps of all requests; the longest for 100."""
        return percentile(self._gaps_s, percent)


def percentile(values: Sequence[float], percent: float) -> float | None:
    """The nearest-rank percentile: a value that occurred, not one in between; None if there are no values."""
    return float(np.percentile(values, percent, method="inverted_cdf")) if values else None


def median_of(values: Iterable[float | None]) -> float | None:
    """The median of those that are known; None if none is."""
    known = [value for value in values if value is not None]
    return median(known) if known else None


def ratio_of_medians(first: Sequence[float], second: Sequence[float], *, seed: int = 0, draws: int = 4000) -> Interval:
    """The second's median over the first's, with a percentile bootstrap interval of 95 %.

    Each side is drawn anew with replacement `draws` times; the same seed gives the same interval. The values must be
    positive, and independent of each other: one for each request, not each gap within it.

    Raises:
        ValueError: A side has no values, or the first's median is 0.
    """
    if median(first) == 0:
        raise ValueError("there is no ratio to a median of 0")
    ratio = median(second) / median(first)
    if min(len(first), len(second)) < FEWEST_FOR_INTERVAL:
        return Interval(ratio, None)
    random = np.random.default_rng(seed)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = _medians(second, draws, random) / _medians(first, draws, random)
    low, high = np.nanpercentile(ratios, [2.5, 97.5], method="nearest")
    return Interval(ratio, (float(low), float(high)))


def prompt_rate(request: MeasuredRequest) -> float | None:
    """Prompt tokens that were read over TTFT, tokens/s. With others waiting, the wait is in it."""
    if not request.prompt_tokens or not request.ttft_s or not request.streamed:
        return None
    return max(0, request.prompt_tokens - (request.cached_tokens or 0)) / request.ttft_s


def worst_gap_s(request: MeasuredRequest) -> float | None:
    """The longest time in which nothing new came."""
    return max(request.gaps_s, default=None)


def total_s(request: MeasuredRequest) -> float | None:
    """From sending to the end; None if the bench itself ended it, as its length then says nothing of the server."""
    return None if request.hung_up else request.ended_s


def end_s(request: MeasuredRequest) -> float:
    """The last that was seen of a request, from the beginning of the target's run."""
    return request.sent_s + max(0.0, *request.event_s[-1:], request.ended_s or 0.0)


def people(requests: Iterable[MeasuredRequest]) -> list[MeasuredRequest]:
    """Requests that somebody waits for: all but those of background jobs, for which no target holds."""
    return [request for request in requests if role_group(request.role) != JOB]


def role_group(role: str) -> str:
    """The role without its number: "person 3" and "person 7" are summarised together."""
    name, _, number = role.rpartition(" ")
    return name if name and number.isdecimal() else role


def by_role(requests: Iterable[MeasuredRequest]) -> dict[str, list[MeasuredRequest]]:
    """Requests by role group, in the order in which the roles first appear."""
    groups: dict[str, list[MeasuredRequest]] = {}
    for request in requests:
        groups.setdefault(role_group(request.role), []).append(request)
    return groups


def span_s(requests: Sequence[MeasuredRequest]) -> float:
    """From the first sending to the last end; 0 without requests."""
    if not requests:
        return 0.0
    return max(end_s(request) for request in requests) - min(request.sent_s for request in requests)


def reading_of_document(in_round: Iterable[MeasuredRequest]) -> tuple[float, float] | None:
    """From the sending of a round's document to its first token, in the target's time; None without a document.

    A document without a first token counts as being read until its end.
    """
    document = next((request for request in in_round if request.role == "document"), None)
    if document is None:
        return None
    return document.sent_s, end_s(document) if document.ttft_s is None else document.sent_s + document.ttft_s


def gaps_around_document(requests: Iterable[MeasuredRequest]) -> dict[str, list[float]]:
    """The chat's gaps "before", "during" and "after" the document was being read, over all rounds that have one.

    Any gap that overlaps the reading is one during it.
    """
    around: dict[str, list[float]] = {"before": [], "during": [], "after": []}
    for in_round in rounds(requests):
        reading = reading_of_document(in_round)
        if reading is None:
            continue
        for chat in (request for request in in_round if request.role == "chat"):
            for begin, end in pairwise(chat.sent_s + offset for offset in chat.event_s):
                when = "before" if end <= reading[0] else "after" if begin >= reading[1] else "during"
                around[when].append(end - begin)
    return around


def rounds(requests: Iterable[MeasuredRequest]) -> list[list[MeasuredRequest]]:
    """The repetitions of a scenario, and in each its requests in the order in which they were sent."""
    ordered = sorted(requests, key=lambda request: (request.round, request.sent_s))
    return [list(one) for _, one in groupby(ordered, lambda request: request.round)]


def _medians(values: Sequence[float], draws: int, random: np.random.Generator) -> np.ndarray[Any, Any]:
    """Medians of resamples, made in blocks so that many values don't need much memory at once."""
    array = np.asarray(values, dtype=float)
    rows = max(1, _DRAWS_AT_ONCE // len(array))
    blocks = [
        np.median(array[random.integers(0, len(array), (min(rows, draws - done), len(array)))], axis=1)
        for done in range(0, draws, rows)
    ]
    return np.concatenate(blocks)
