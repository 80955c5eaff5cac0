from __future__ import annotations

import random

import pytest

from legato.bench.compare import Comparison, Row, compare
from legato.bench.results import BenchRun
from legato.errors import LegatoError

from . import sample


def solo(factor: float, seed: int, *, count: int = 12, name: str = "legato") -> BenchRun:
    noise = random.Random(seed)
    requests = [
        sample.request(ttft=factor * noise.lognormvariate(0, 0.05), gaps=[0.05 * noise.lognormvariate(0, 0.05)] * 5)
        for _ in range(count)
    ]
    return sample.bench(sample.target(name, requests))


def row(comparison: Comparison, measure: str) -> Row:
    return next(row for row in comparison.rows if row.measure.name == measure)


def test_a_real_change_is_told_from_noise() -> None:
    found = compare(solo(1.0, 1), solo(0.5, 2))
    assert row(found, "TTFT").verdict == "better"
    assert row(found, "Prefill rate").verdict == "better"
    assert row(found, "ITL, median").verdict == "no difference shown"
    assert row(found, "TTFT").counts == (12, 12)


def test_the_other_way_round_it_is_worse() -> None:
    found = compare(solo(0.5, 1), solo(1.0, 2))
    assert (row(found, "TTFT").verdict, row(found, "Prefill rate").verdict) == ("worse", "worse")


def test_few_requests_allow_no_verdict() -> None:
    assert {row.verdict for row in compare(solo(1.0, 1, count=2), solo(9.0, 2)).rows} == {"too few requests"}


def test_different_scenarios_are_refused() -> None:
    with pytest.raises(LegatoError, match="`solo` can't be compared with one of `crowd`"):
        compare(solo(1.0, 1), sample.crowd())


def test_runs_without_a_common_target_are_refused() -> None:
    with pytest.raises(LegatoError, match=r"no target in common \(legato in the first, other in the second\)"):
        compare(solo(1.0, 1), solo(1.0, 1, name="other"))


def test_what_is_only_in_one_run_is_noted() -> None:
    before, after = solo(1.0, 1), solo(1.0, 2)
    before.runs.append(sample.target("gone", [sample.request()]))
    after.runs.append(sample.target("new", [sample.request()]))
    after.runs[0].requests.append(sample.request("chat"))
    notes = compare(before, after).notes
    assert "gone is only in the first run." in notes
    assert "new is only in the second run." in notes
    assert "legato: `chat` is only in the second run." in notes


def test_what_makes_runs_less_alike_is_noted() -> None:
    before, after = solo(1.0, 1), solo(1.0, 2)
    after.complete, after.machine, after.options, after.runs[0].model = False, "2 cores", {"seed": 2}, "large"
    after.runs[0].requests.append(sample.failed())
    assert compare(before, after).notes == [
        "The second run was interrupted.",
        "The machines differ: 8 cores, 16 GiB / 2 cores.",
        "The option seed differs: unset / 2.",
        "legato ran small in the first run and large in the second.",
        "legato, question: 0 of 12 requests failed in the first run, 1 of 13 in the second; their times are left out.",
    ]


def test_failures_alone_leave_nothing_to_compare() -> None:
    run = sample.bench(sample.target("legato", [sample.failed()]))
    assert compare(run, run).rows == []
