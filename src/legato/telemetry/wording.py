"""Figures in words: durations, rates and counts as a person writes them."""

from __future__ import annotations

from collections.abc import Sequence


def duration(ms: float) -> str:
    """A duration with the unit that suits its size: `0 ms`, `4.2 ms`, `312 ms`, `5.9 s`, `3 min 20 s`, `1 h 5 min`."""
    ms = max(0.0, ms)
    if ms < 0.05:
        return "0 ms"
    if ms < 9.95:
        return f"{ms:.1f} ms"
    if ms < 999.5:
        return f"{ms:.0f} ms"
    if ms < 99_950:
        return f"{ms / 1000:.1f} s"
    seconds = round(ms / 1000)
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60:,} h {minutes % 60} min"


def share_of(ms: float, total_ms: float) -> str:
    """A part of a duration: `5.9 of 6.1 s`, `812 ms of 6.1 s`, `All 6.1 s` if no difference is to be seen."""
    part, whole = duration(ms), duration(total_ms)
    if part == whole:
        return f"All {whole}"
    value, *units = part.split()
    return f"{value if len(units) == 1 and units == whole.split()[1:] else part} of {whole}"


def count(number: int, thing: str) -> str:
    """A number of things: `1 token`, `4,812 tokens`."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def rate(tokens_per_second: float) -> str:
    """A rate: `815 tokens/s`, `3.4 tokens/s`."""
    if tokens_per_second < 9.95:
        return f"{tokens_per_second:.1f} tokens/s"
    return f"{tokens_per_second:,.0f} tokens/s"


def listed(things: Sequence[str], *, most: int = 3) -> str:
    """An enumeration of at least one thing: `a`, `a and b`, `a, b, c and 4 more` where `most` is 3."""
    named = list(things[:most])
    if len(things) > most:
        named.append(f"{len(things) - most:,} more")
    return named[0] if len(named) == 1 else f"{', '.join(named[:-1])} and {named[-1]}"
