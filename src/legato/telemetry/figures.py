"""How figures are rounded and taken together, everywhere the same."""

from __future__ import annotations

from collections.abc import Sequence


def milliseconds(seconds: float) -> float:
    """A duration in ms, to a microsecond."""
    return round(seconds * 1000, 3)


def per_second(count: int, seconds: float) -> float | None:
    """A rate, to a hundredth; None over no time."""
    return round(count / seconds, 2) if seconds > 0 else None


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The nearest-rank percentile of ascending values: a value that occurred, not one in between.

    Raises:
        ValueError: There are no values.
    """
    if not ordered:
        raise ValueError("there is no percentile of no values")
    rank = -(-len(ordered) * percent // 100)
    return ordered[max(0, int(rank) - 1)]
