"""Rows of bars that show what happened to requests, under one axis of time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from legato.bench.plots import CHARACTER_PX, SERIES, Axis, Chart, Size, clipped
from legato.bench.table import duration

_BAR = 20.0
_ROOM_ABOVE = 18.0


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


@dataclass(frozen=True, slots=True)
class Lanes:
    """The requests of one target."""

    title: str
    lanes: list[Lane]
    band: tuple[float, float] | None = None
    """A time to tint behind all lanes."""


class Timeline(Chart):
    """All targets' lanes under one time axis: bars for waiting and reading, a tick for each event."""

    def __init__(self, size: Size, x: Axis, groups: Sequence[Lanes]) -> None:
        """Of the size only the widths count, as the height follows from the lanes."""
        super().__init__(replace(size, left=8 if size.narrow else 92), x, Axis("", 0, 1, fixed=()))
        top = 4.0
        for series, group in enumerate(groups):
            top = self._group(group, top, series)
        self.size = replace(self.size, height=top + size.bottom)

    def _group(self, group: Lanes, top: float, series: int) -> float:
        """Draw from `top` on; returns where the next group begins."""
        size, begin = self.size, top + 20
        end = begin + len(group.lanes) * (_BAR + _ROOM_ABOVE)
        if group.band:
            from_x, to_x = map(self.at, group.band)
            self.rectangle("band", from_x, begin + 4, max(1.0, to_x - from_x), end - begin)
        title = clipped(group.title, (size.width - 20) * 0.85)
        self.text(8 if size.narrow else 0, top + 16, title, "name", "start")
        for number, lane in enumerate(group.lanes):
            self._lane(lane, begin + _ROOM_ABOVE + number * (_BAR + _ROOM_ABOVE), series)
        return end + 14

    def _lane(self, lane: Lane, top: float, series: int) -> None:
        narrow = self.size.narrow
        label_at = (8.0, top - 4) if narrow else (0.0, top + _BAR / 2 + 4)
        self.text(*label_at, clipped(lane.name, 84), "tick", "start")
        first = lane.events[0] if lane.events else lane.end
        reading = lane.sent if lane.reading is None else min(max(lane.reading, lane.sent), first)
        self._bar("waiting", lane.sent, reading, top)
        self._bar("reading", reading, first, top)
        if lane.events:
            self._bar("writing", first, max(lane.end, lane.events[-1]), top)
            if lane.stall:
                self._bar("stall", *lane.stall, top)
            seen = dict.fromkeys(round(self.at(event) * 2) / 2 for event in lane.events)
            self.path(f"token s{series % SERIES}", "".join(f"M{x:g} {top:.1f}v{_BAR:g}" for x in seen))
        if lane.failed:
            x, middle = self.at(lane.end), top + _BAR / 2
            self.path("failed", f"M{x - 5:.1f} {middle - 5:.1f}l10 10m0 -10l-10 10")
        if lane.stall:
            # On a phone the lane's name stands where the label may want to be.
            self._stall_label(lane.stall, top, label_at[0] + (len(lane.name) + 1) * CHARACTER_PX if narrow else 0.0)

    def _stall_label(self, stall: tuple[float, float], top: float, taken: float) -> None:
        """The length of the hole: inside if there is room, else above, right of what is there already."""
        label = duration(stall[1] - stall[0])
        begin, end = map(self.at, stall)
        text, middle = len(label) * CHARACTER_PX, (begin + end) / 2
        if end - begin > text + 12:
            self.text(middle, top + _BAR / 2 + 4, label, "stall-name")
        else:
            self.text(max(middle, taken + text / 2), top - 4, label, "stall-name")

    def _bar(self, kind: str, begin: float, end: float, top: float) -> None:
        width = self.at(end) - self.at(begin)
        if width >= 0.05:
            self.rectangle(kind, self.at(begin), top, width, _BAR)
