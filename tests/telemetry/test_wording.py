"""Figures in words."""

from __future__ import annotations

import pytest

from legato.telemetry.wording import count, duration, listed, rate, share_of


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (-3, "0 ms"),
        (0.01, "0 ms"),
        (4.21, "4.2 ms"),
        (9.96, "10 ms"),
        (312.4, "312 ms"),
        (999.6, "1.0 s"),
        (5900, "5.9 s"),
        (99_960, "1 min 40 s"),
        (3_599_700, "1 h 0 min"),
        (3_900_000, "1 h 5 min"),
    ],
)
def test_durations(ms: float, text: str) -> None:
    assert duration(ms) == text


def test_other_figures() -> None:
    assert share_of(5900, 6100) == "5.9 of 6.1 s"
    assert share_of(812, 6100) == "812 ms of 6.1 s"
    assert share_of(6100, 6101) == "All 6.1 s"
    assert share_of(120_000, 180_000) == "2 min 0 s of 3 min 0 s"
    assert (count(1, "token"), count(4812, "token")) == ("1 token", "4,812 tokens")
    assert (rate(3.44), rate(815.4), rate(12_345)) == ("3.4 tokens/s", "815 tokens/s", "12,345 tokens/s")
    assert [listed("a"), listed("ab"), listed("abcde")] == ["a", "a and b", "a, b, c and 2 more"]
