"""Small static SVG: scales, axes, curves, points and lanes. Colours come from the page's classes; text is escaped."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

SERIES = 6
"""Colours that the page has for targets: the classes `s0` to `s5`."""
_CHARACTER_PX = 6.6
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
    fixed: tuple[float, ...] = ()
    """Ticks of a scale that counts things; empty to choose them."""

    def place(self, value: float) -> float:
        """Where a value lies, 0 … 1; what is outside of the scale goes to its edge."""
        value = min(max(value, self.low), self.high)
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def ticks(self, most: int) -> list[float]:
        """Round values on the scale, `most` or fewer."""
        if self.fixed:
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
            at, level = self._x(x), self._y(y)
            path += f"H{at:.1f}V{level:.1f}" if path else f"M{at:.1f} {level:.1f}"
        self.parts.append(f'<path class="curve s{series % SERIES}" d="{path}"/>')

    def dot(self, x: float, y: float, series: int, *, hollow: bool = False, title: str = "") -> None:
        """A point; the title shows when it is pointed at."""
        shape = f'class="dot {"hollow " if hollow else ""}s{series % SERIES}"'
        inside = f"<title>{escape(title)}</title>" if title else ""
        self.parts.append(f'<circle {shape} cx="{self._x(x):.1f}" cy="{self._y(y):.1f}" r="4">{inside}</circle>')

    def upright(self, x: float, label: str) -> None:
        """A dashed line over the whole height at a value of the horizontal axis, with its name at the top."""
        at = self._x(x)
        half = len(label) * _CHARACTER_PX / 2
        self.parts.append(f'<path class="target" d="M{at:.1f} {self.size.top:.1f}V{self._bottom:.1f}"/>')
        name_at = min(max(at, self.size.left + half), self.size.width - half)
        self.parts.append(_text(name_at, self.size.top - 6, label, "tick", "middle"))

    def render(self, name: str) -> str:
        """The whole drawing, named for those who can't see it."""
        height = self.size.height
        return _svg(self.size.width, height, name, [*self._grid(), *self.parts])

    @property
    def _bottom(self) -> float:
        return self.size.height - self.size.bottom

    def _x(self, value: float) -> float:
        return self.size.left + self.x.place(value) * (self.size.width - self.size.left - self.size.right)

    def _y(self, value: float) -> float:
        return self._bottom - self.y.place(value) * (self._bottom - self.size.top)

    def _grid(self) -> list[str]:
        size, right = self.size, self.size.width - self.size.right
        parts = []
        for value in self.y.ticks(6):
            at = self._y(value)
            parts.append(f'<path class="grid" d="M{size.left:.1f} {at:.1f}H{right:.1f}"/>')
            parts.append(_text(size.left - 7, at + 4, self.y.text(value), "tick", "end"))
        parts += _x_ticks(self.x, self._x, size, self._bottom)
        parts.append(f'<path class="axis" d="M{size.left:.1f} {self._bottom:.1f}H{right:.1f}"/>')
        parts.append(_text(2, 13, self.y.label, "label", "start"))
        parts.append(_text(right, size.height - 5, self.x.label, "label", "end"))
        return parts


@dataclass(frozen=True, slots=True)
class Lane:
    """One request in a timeline. Times are seconds from the timeline's beginning."""

    name: str
    sent: float
    reading: float | None
    """When the server began to read; None if it doesn't say."""
    events: list[float]
    """Arrival of each event; reading lasts until the first."""
    end: float
    failed: bool = False
    stall: tuple[float, float] | None = None
    """Begin and end of a hole to point at."""
    stall_label: str = ""


@dataclass(frozen=True, slots=True)
class Lanes:
    """The requests of one target."""

    title: str
    lanes: list[Lane]
    band: tuple[float, float] | None = None
    """A time to tint behind all lanes."""


def timeline(size: Size, groups: Sequence[Lanes], x: Axis, name: str) -> str:
    """All targets' lanes under one time axis: bars for waiting and reading, a tick for each event.

    Of the size only the widths count, as the height follows from the lanes. The name is for those who can't see it.
    """
    left, right = (8.0 if size.narrow else 92.0), size.width - size.right

    def place(value: float) -> float:
        return left + x.place(value) * (right - left)

    parts: list[str] = []
    y = 4.0
    for series, group in enumerate(groups):
        y = _draw_group(parts, group, place, y, series, size)
    grid = _x_ticks(x, place, size, y)
    grid.append(f'<path class="axis" d="M{left:.1f} {y:.1f}H{right:.1f}"/>')
    grid.append(_text(right, y + 39, x.label, "label", "end"))
    return _svg(size.width, y + size.bottom, name, [*grid, *parts])


def clipped(text: str, width: float) -> str:
    """Text cut so that it fits about `width` px."""
    most = max(2, int(width / _CHARACTER_PX))
    return text if len(text) <= most else text[: most - 1] + "\N{HORIZONTAL ELLIPSIS}"


_BAR = 20.0
_ROOM_ABOVE = 18.0


def _draw_group(
    parts: list[str], group: Lanes, place: Callable[[float], float], y: float, series: int, size: Size
) -> float:
    """Draw from `y` on; returns where the next group begins."""
    begin = y + 20
    end = begin + len(group.lanes) * (_BAR + _ROOM_ABOVE)
    if group.band:
        from_x, to_x = map(place, group.band)
        parts.append(
            f'<rect class="band" x="{from_x:.1f}" y="{begin + 4:.1f}" '
            f'width="{max(1.0, to_x - from_x):.1f}" height="{end - begin:.1f}"/>'
        )
    parts.append(
        _text(0 if not size.narrow else 8, y + 16, clipped(group.title, (size.width - 20) * 0.85), "name", "start")
    )
    for number, lane in enumerate(group.lanes):
        top = begin + _ROOM_ABOVE + number * (_BAR + _ROOM_ABOVE)
        label_at = (8.0, top - 4) if size.narrow else (0.0, top + _BAR / 2 + 4)
        parts.append(_text(*label_at, clipped(lane.name, 84), "tick", "start"))
        _draw_lane(parts, lane, place, top, series)
        if lane.stall:
            # On a phone the lane's name stands where the label may want to be.
            taken = label_at[0] + (len(lane.name) + 1) * _CHARACTER_PX if size.narrow else 0.0
            parts.append(_stall_label(lane, place, top, taken))
    return end + 14


def _draw_lane(parts: list[str], lane: Lane, place: Callable[[float], float], top: float, series: int) -> None:
    first = lane.events[0] if lane.events else lane.end
    reading = lane.sent if lane.reading is None else min(max(lane.reading, lane.sent), first)
    parts.append(_bar("waiting", place(lane.sent), place(reading), top))
    parts.append(_bar("reading", place(reading), place(first), top))
    if lane.events:
        parts.append(_bar("writing", place(first), place(max(lane.end, lane.events[-1])), top))
        if lane.stall:
            parts.append(_bar("stall", place(lane.stall[0]), place(lane.stall[1]), top))
        seen = dict.fromkeys(round(place(event) * 2) / 2 for event in lane.events)
        path = "".join(f"M{x:g} {top:.1f}v{_BAR:g}" for x in seen)
        parts.append(f'<path class="token s{series % SERIES}" d="{path}"/>')
    if lane.failed:
        x, middle = place(lane.end), top + _BAR / 2
        parts.append(f'<path class="failed" d="M{x - 5:.1f} {middle - 5:.1f}l10 10m0 -10l-10 10"/>')


def _stall_label(lane: Lane, place: Callable[[float], float], top: float, taken: float) -> str:
    """The length of the hole: inside if there is room, else above, right of what is there already."""
    begin, end = map(place, lane.stall or (0.0, 0.0))
    text = len(lane.stall_label) * _CHARACTER_PX
    if end - begin > text + 12:
        return _text((begin + end) / 2, top + _BAR / 2 + 4, lane.stall_label, "stall-name", "middle")
    return _text(max((begin + end) / 2, taken + text / 2), top - 4, lane.stall_label, "stall-name", "middle")


def _bar(kind: str, begin: float, end: float, top: float) -> str:
    if end - begin < 0.05:
        return ""
    return f'<rect class="{kind}" x="{begin:.1f}" y="{top:.1f}" width="{end - begin:.1f}" height="{_BAR:g}"/>'


def _x_ticks(scale: Axis, place: Callable[[float], float], size: Size, bottom: float) -> list[str]:
    parts = []
    for value in scale.ticks(5 if size.narrow else 10):
        at, text = place(value), scale.text(value)
        half = len(text) * _CHARACTER_PX / 2
        parts.append(f'<path class="grid" d="M{at:.1f} {size.top:.1f}V{bottom + 4:.1f}"/>')
        parts.append(_text(min(max(at, half), size.width - half), bottom + 19, text, "tick", "middle"))
    return parts


def _text(x: float, y: float, text: str, kind: str, anchor: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _svg(width: float, height: float, name: str, parts: Iterable[str]) -> str:
    return (
        f'<svg class="{"wide" if width > NARROW.width else "narrow"}" viewBox="0 0 {width:g} {height:g}" role="img" '
        f'aria-label="{escape(name)}">' + "".join(parts) + "</svg>"
    )
