"""Two saved runs side by side: which measures moved by more than chance."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from legato.bench.results import BenchRun, MeasuredRequest, TargetRun
from legato.bench.statistics import (
    Interval,
    by_role,
    percentile,
    prompt_rate,
    ratio_of_medians,
    total_s,
    worst_gap_s,
)
from legato.errors import LegatoError


@dataclass(frozen=True, slots=True)
class RequestMeasure:
    """One figure of a request. Each request gives one value, so that the values are independent of each other."""

    name: str
    unit: str
    """ "s" or "tokens/s"."""
    of: Callable[[MeasuredRequest], float | None]

    @property
    def less_is_better(self) -> bool:
        """True for times, False for rates."""
        return self.unit == "s"


@dataclass(frozen=True, slots=True)
class Row:
    """One measure of one target and role in both runs."""

    target: str
    role: str
    measure: RequestMeasure
    before: float
    """Median over the requests of the first run, in the measure's unit."""
    after: float
    counts: tuple[int, int]
    """Requests on each side that have the measure."""
    interval: Interval

    @property
    def verdict(self) -> str:
        """What the interval allows to say."""
        if self.interval.bounds is None:
            return "too few requests"
        if not self.interval.shows_difference:
            return "no difference shown"
        return "better" if (self.interval.ratio < 1) == self.measure.less_is_better else "worse"


@dataclass(slots=True)
class Comparison:
    """Everything that two runs of one scenario say about each other."""

    scenario: str
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What makes the runs less alike than they look, and what was in only one of them."""


MEASURES = (
    RequestMeasure("Prefill rate", "tokens/s", prompt_rate),
    RequestMeasure("TTFT", "s", lambda request: request.ttft_s),
    RequestMeasure("ITL, median", "s", lambda request: percentile(request.gaps_s, 50)),
    RequestMeasure("ITL, p95", "s", lambda request: percentile(request.gaps_s, 95)),
    RequestMeasure("ITL, longest", "s", worst_gap_s),
    RequestMeasure("Output rate", "tokens/s", lambda request: request.output_rate),
    RequestMeasure("Total", "s", total_s),
)
"""What is compared, in the order of a request's life."""


def compare(before: BenchRun, after: BenchRun) -> Comparison:
    """Match targets and roles by name and compare the medians of their requests.

    Raises:
        LegatoError: The runs are of different scenarios, or have no target in common.
    """
    if before.scenario != after.scenario:
        raise LegatoError(
            f"A run of `{before.scenario}` can't be compared with one of `{after.scenario}`: both must be of the same "
            "scenario."
        )
    comparison = Comparison(before.scenario, notes=_differences(before, after))
    first, second = ({run.target: run for run in side.runs} for side in (before, after))
    if not first.keys() & second.keys():
        named = [", ".join(runs) or "none" for runs in (first, second)]
        raise LegatoError(
            f"The runs have no target in common ({named[0]} in the first, {named[1]} in the second): "
            "name the same server the same in both."
        )
    for name in _common(first, second, str, comparison.notes):
        _compare_target(first[name], second[name], comparison)
    return comparison


def _compare_target(before: TargetRun, after: TargetRun, comparison: Comparison) -> None:
    name = before.target
    if before.model != after.model:
        comparison.notes.append(f"{name} ran {before.model} in the first run and {after.model} in the second.")
    first, second = by_role(before.requests), by_role(after.requests)
    for role in _common(first, second, lambda role: f"{name}: `{role}`", comparison.notes):
        errors = [sum(bool(request.error) for request in side) for side in (first[role], second[role])]
        if any(errors):
            comparison.notes.append(
                f"{name}, {role}: {errors[0]} of {len(first[role])} requests failed in the first run, {errors[1]} of "
                f"{len(second[role])} in the second; their times are left out."
            )
        rows = (_row(name, role, measure, first[role], second[role]) for measure in MEASURES)
        comparison.rows += filter(None, rows)


def _row(
    target: str, role: str, measure: RequestMeasure, before: Sequence[MeasuredRequest], after: Sequence[MeasuredRequest]
) -> Row | None:
    """None if a side has no value above 0."""
    first, second = (
        [value for request in side if not request.error and (value := measure.of(request)) is not None]
        for side in (before, after)
    )
    if not first or not second or median(first) <= 0:
        return None
    interval = ratio_of_medians(first, second)
    return Row(target, role, measure, median(first), median(second), (len(first), len(second)), interval)


def _differences(before: BenchRun, after: BenchRun) -> list[str]:
    notes = [
        f"The {which} run was interrupted." for which, run in (("first", before), ("second", after)) if not run.complete
    ]
    if before.machine != after.machine:
        notes.append(f"The machines differ: {before.machine} / {after.machine}.")
    for name in sorted(before.options.keys() | after.options.keys()):
        first, second = (run.options.get(name, "unset") for run in (before, after))
        if first != second:
            notes.append(f"The option {name} differs: {first} / {second}.")
    return notes


def _common(
    first: Mapping[str, Any], second: Mapping[str, Any], called: Callable[[str], str], notes: list[str]
) -> Iterator[str]:
    """Names that are in both; each of the others gets a note, in which it is `called` so."""
    for name in dict.fromkeys([*first, *second]):
        if name in first and name in second:
            yield name
        else:
            notes.append(f"{called(name)} is only in the {'first' if name in first else 'second'} run.")
