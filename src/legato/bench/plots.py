"""Small static SVG: scales, axes, curves, points and lanes. Colours come from the page's classes; text is escaped."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

SERIES = 6
"""Colours that the page has for targets: the classes `s0` to `s5`."""
CHARACTER_PX = 6.6
"""About the width of a character of the page's small text."""
_MOST_LINEAR = 30.0
"""Spread of values above which a plot needs a logarithmic axis."""
_SMALLEST = 1e-4
"""The smallest value that a logarithmic axis shows."""
_ROUND = [float(f"{factor}e{power}") for power in range(-12, 13) for factor in (1, 2, 5)]
"""Values that an axis begins, ends and goes on with."""


@dataclass(frozen=True, slots=True)
class Size:
    """A drawing's space, px. The same plot is drawn for wide and for narrow screens: scaling would shrink its text."""

    width: float
    height: float
    left: float
    """Room for the labels of the vertical axis."""
    right: float = 14
    top: float = 40
    bottom: float = 44

    @property
    def narrow(self) -> bool:
        """True on a phone."""
        return self.width < 500


WIDE = Size(760, 330, 60)
NARROW = Size(350, 300, 46)


@dataclass(frozen=True, slots=True)
class Axis:
    """A scale from values to 0 … 1, with its ticks."""

    label: str
    """With its unit."""
    low: float
    high: float
    log: bool = False
    text: Callable[[float], str] = str
    """How a tick is written."""
    fixed: tuple[float, ...] | None = None
    """Ticks of a scale that counts things; None to choose them."""

    def place(self, value: float) -> float:
        """Where a value lies, 0 … 1; what is outside of the scale goes to its edge."""
        value = min(max(value, self.low), self.high)
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def ticks(self, most: int) -> list[float]:
        """Round values on the scale, `most` or fewer."""
        if self.fixed is not None:
            return list(self.fixed)
        choices = self._log_ticks() if self.log else self._linear_ticks()
        return next((ticks for ticks in choices if len(ticks) <= most), [self.low, self.high])

    def _linear_ticks(self) -> Iterable[list[float]]:
        """Ever fewer ticks, a round step apart."""
        for step in _ROUND:
            if step * 100 > self.high - self.low:
                first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
                yield [round(i * step, 12) for i in range(first, last + 1)]

    def _log_ticks(self) -> Iterable[list[float]]:
        """Ever fewer ticks: 1, 2, 5 of each decade, then whole decades, then every second one and so on."""
        for every in (1, 3, 6, 9, 15):
            yield [value for value in _ROUND[::every] if self.low * 0.999 <= value <= self.high * 1.001]


def axis(label: str, values: Sequence[float], text: Callable[[float], str], *, log: bool | None = None) -> Axis:
    """A scale that has room for all values, from 0 if it is linear.

    It is logarithmic by itself, if `log` is None, where they are far apart.
    """
    positive = [max(value, _SMALLEST) for value in values if value > 0] or [1.0]
    if log is None:
        log = max(positive) / min(positive) > _MOST_LINEAR
    if log:
        low = max(value for value in _ROUND if value <= min(positive) * 1.000001)
        high = min(value for value in _ROUND if value >= max(positive) * 0.999999)
        return Axis(label, low, high if high > low else low * 10, log=True, text=text)
    return Axis(label, 0.0, max(positive) * 1.05, text=text)


@dataclass(slots=True)
class Chart:
    """A plot with two axes."""

    size: Size
    x: Axis
    y: Axis
    parts: list[str] = field(default_factory=list)

    def steps(self, points: Iterable[tuple[float, float]], series: int) -> None:
        """A curve that holds each value until the next one."""
        path = ""
        for x, y in points:
            at, level = self.at(x), self._level(y)
            path += f"H{at:.1f}V{level:.1f}" if path else f"M{at:.1f} {level:.1f}"
        self.path(f"curve s{series % SERIES}", path)

    def dot(self, x: float, y: float, series: int, *, hollow: bool = False, title: str) -> None:
        """A point; the title shows when it is pointed at."""
        shape = f'class="dot {"hollow " if hollow else ""}s{series % SERIES}"'
        inside = f"<title>{escape(title)}</title>"
        self.parts.append(f'<circle {shape} cx="{self.at(x):.1f}" cy="{self._level(y):.1f}" r="4">{inside}</circle>')

    def upright(self, x: float, label: str) -> None:
        """A dashed line over the whole height at a value of the horizontal axis, with its name at the top."""
        at = self.at(x)
        half = len(label) * CHARACTER_PX / 2
        self.path("target", f"M{at:.1f} {self.size.top:.1f}V{self._bottom:.1f}")
        self.text(min(max(at, self.size.left + half), self.size.width - half), self.size.top - 6, label, "tick")

    def render(self, name: str) -> str:
        """The whole drawing, named for those who can't see it."""
        drawn, self.parts = self.parts, []
        self._grid()
        size = self.size
        return (
            f'<svg class="{"narrow" if size.narrow else "wide"}" viewBox="0 0 {size.width:g} {size.height:g}" '
            f'role="img" aria-label="{escape(name)}">' + "".join(self.parts + drawn) + "</svg>"
        )

    def at(self, value: float) -> float:
        """Where a value of the horizontal axis is, px from the left."""
        return self.size.left + self.x.place(value) * (self.size.width - self.size.left - self.size.right)

    def path(self, kind: str, data: str) -> None:
        """A line along SVG's path data."""
        self.parts.append(f'<path class="{kind}" d="{data}"/>')

    def rectangle(self, kind: str, x: float, y: float, width: float, height: float) -> None:
        """A box, px from the top left."""
        self.parts.append(f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"/>')

    def text(self, x: float, y: float, text: str, kind: str, anchor: str = "middle") -> None:
        """Words at a place, px from the top left; the anchor is the part of them that is there."""
        self.parts.append(f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>')

    @property
    def _bottom(self) -> float:
        return self.size.height - self.size.bottom

    def _level(self, value: float) -> float:
        return self._bottom - self.y.place(value) * (self._bottom - self.size.top)

    def _grid(self) -> None:
        size, right, bottom = self.size, self.size.width - self.size.right, self._bottom
        for value in self.y.ticks(6):
            level = self._level(value)
            self.path("grid", f"M{size.left:.1f} {level:.1f}H{right:.1f}")
            self.text(size.left - 7, level + 4, self.y.text(value), "tick", "end")
        for value in self.x.ticks(5 if size.narrow else 10):
            at, label = self.at(value), self.x.text(value)
            half = len(label) * CHARACTER_PX / 2
            self.path("grid", f"M{at:.1f} {size.top:.1f}V{bottom + 4:.1f}")
            self.text(min(max(at, half), size.width - half), bottom + 19, label, "tick")
        self.path("axis", f"M{size.left:.1f} {bottom:.1f}H{right:.1f}")
        if self.y.label:
            self.text(2, 13, self.y.label, "label", "start")
        self.text(right, size.height - 5, self.x.label, "label", "end")


def clipped(text: str, width: float) -> str:
    """Text cut so that it fits about `width` px."""
    most = max(2, int(width / CHARACTER_PX))
    return text if len(text) <= most else text[: most - 1] + "\N{HORIZONTAL ELLIPSIS}"
