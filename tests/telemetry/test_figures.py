"""Rounded figures, and the nearest-rank percentile."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legato.telemetry.figures import milliseconds, per_second, percentile

FIVE = [15, 20, 35, 40, 50]
"""The usual worked example of this definition."""


@pytest.mark.parametrize(
    ("percent", "value"), [(0, 15), (5, 15), (20, 15), (21, 20), (30, 20), (40, 20), (50, 35), (95, 50), (100, 50)]
)
def test_five_values(percent: float, value: float) -> None:
    assert percentile(FIVE, percent) == value


@pytest.mark.parametrize(("percent", "value"), [(50, 50), (95, 95), (99, 99), (99.5, 100), (1, 1), (0.5, 1)])
def test_a_hundred_values(percent: float, value: float) -> None:
    assert percentile(range(1, 101), percent) == value


def test_the_median_of_an_even_number_is_the_lower_middle() -> None:
    assert percentile([1, 2, 3, 4], 50) == 2


@pytest.mark.parametrize("percent", [0, 50, 100])
def test_of_one_value_it_is_that_value(percent: float) -> None:
    assert percentile([7.5], percent) == 7.5


def test_of_no_values_there_is_none() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 50)


@given(
    values=st.lists(st.floats(allow_nan=False), min_size=1, max_size=200).map(sorted),
    percent=st.integers(1, 100),
)
def test_it_is_the_smallest_value_that_so_many_percent_do_not_exceed(values: list[float], percent: int) -> None:
    assert percentile(values, percent) == values[math.ceil(len(values) * percent / 100) - 1]


def test_figures_are_rounded_once_and_alike() -> None:
    assert milliseconds(0.0123456789) == 12.346
    assert per_second(10, 3.0) == 3.33
    assert per_second(10, 0.0) is None
