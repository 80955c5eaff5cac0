"""Which plots a run's report has, and what each of them shows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from legato.bench.plots import NARROW, SERIES, WIDE, Axis, Chart, Size, axis, clipped
from legato.bench.results import BenchRun, MeasuredRequest, TargetRun
from legato.bench.statistics import (
    ServiceTarget,
    end_s,
    people,
    reading_of_document,
    rounds,
    span_s,
    worst_gap_s,
)
from legato.bench.table import duration, figure, limit, printable
from legato.bench.timeline import Lane, Lanes, Timeline

_MOST_LANES = 10
_CURVE_POINTS = 240
_TAIL_POINTS = 60
_STALL_TIMES_MEDIAN = 3.0
"""A gap is pointed at as a stall if it misses the gap target and is this many times the usual gap."""


@dataclass(frozen=True, slots=True)
class Key:
    """One entry of a legend."""

    mark: str
    """Class of its sample: a series, `waiting`, `reading` …"""
    text: str


@dataclass(frozen=True, slots=True)
class Figure:
    """A plot with what it takes to read it."""

    title: str
    says: str
    """One sentence: what it shows."""
    keys: list[Key]
    wide: str
    """SVG for wide screens."""
    narrow: str
    """SVG for phones."""


def figures(run: BenchRun) -> list[Figure]:
    """The plots of a run, the most telling first. A plot without anything to draw is left out."""
    drawn = [
        _timeline(run) if run.scenario == "interference" else None,
        _goodput(run) if run.scenario in ("crowd", "trace") else None,
        _ttft_by_role(run) if run.scenario == "cache" else None,
        _gaps(run),
        _ttft(run) if run.scenario != "cache" else None,
    ]
    return [one for one in drawn if one]


def series(index: int) -> str:
    """The class that gives a target its colour."""
    return f"s{index % SERIES}"


def _gaps(run: BenchRun) -> Figure | None:
    target = ServiceTarget.of(run.options)
    each = [sorted(_chat_gaps(run, one)) for one in run.runs]
    every = [gap for gaps in each for gap in gaps]
    if not every:
        return None
    x = axis("gap between two pieces of text", [*every, target.gap_s], limit, log=True)
    y = Axis("share of gaps up to this long", 0.0, 1.0, text=lambda share: f"{100 * share:.0f} %")

    def draw(chart: Chart) -> None:
        chart.upright(target.gap_s, f"target {limit(target.gap_s)}")
        for index, gaps in enumerate(each):
            if gaps:
                chart.steps([(gaps[0], 0.0), *_cumulative(gaps)], index)
                chart.dot(gaps[-1], 1.0, index, title=f"longest: {duration(gaps[-1])}")

    keys = [
        Key(series(index), f"{one.target}: median {duration(median(gaps))}, longest {duration(gaps[-1])}")
        for index, (one, gaps) in enumerate(zip(run.runs, each, strict=True))
        if gaps
    ]
    whose = "the chat's answers" if run.scenario == "interference" else "the answers"
    says = (
        f"How evenly {whose} came: the further left a curve rises, the shorter the gaps; a dot marks the longest gap."
    )
    return _chart("Gaps between tokens (ITL)", says, keys, x, y, draw)


def _chat_gaps(run: BenchRun, target: TargetRun) -> list[float]:
    """In `interference` only the chat is being watched; elsewhere every answer counts."""
    return [
        gap
        for request in target.requests
        if not request.error and (run.scenario != "interference" or request.role == "chat")
        for gap in request.gaps_s
    ]


def _cumulative(gaps: Sequence[float]) -> list[tuple[float, float]]:
    """The curve's points: few enough to draw, with the long tail, which matters, whole."""
    count = len(gaps)
    body, tail = max(0, count - _TAIL_POINTS), range(max(0, count - _TAIL_POINTS), count)
    indices = [*range(0, body, max(1, body // _CURVE_POINTS)), *tail]
    return [(gaps[index], (index + 1) / count) for index in indices]


def _first_tokens(run: BenchRun) -> list[tuple[int, MeasuredRequest, float]]:
    """Every answer that began: which target's it is, the request, and its TTFT, seconds."""
    return [
        (index, request, request.ttft_s)
        for index, target in enumerate(run.runs)
        for request in target.requests
        if not request.error and request.ttft_s is not None
    ]


def _target_keys(run: BenchRun, indices: Iterable[int]) -> list[Key]:
    return [Key(series(index), run.runs[index].target) for index in sorted(set(indices))]


def _ttft(run: BenchRun) -> Figure | None:
    points = [
        (index, request, float(tokens), ttft)
        for index, request, ttft in _first_tokens(run)
        if (tokens := request.prompt_tokens or request.depth)
    ]
    if not points:
        return None
    x = axis("prompt length, tokens", [tokens for _, _, tokens, _ in points], lambda value: f"{value:,.0f}")
    y = axis("time to first token (TTFT)", [ttft for *_, ttft in points], limit)

    def draw(chart: Chart) -> None:
        for index, request, tokens, ttft in points:
            title = _hint(run.runs[index], request.role, f"{tokens:,.0f} tokens, {duration(ttft)}")
            chart.dot(tokens, ttft, index, hollow=_mostly_cached(request), title=title)

    keys = _target_keys(run, (index for index, *_ in points))
    if any(_mostly_cached(request) for _, request, *_ in points):
        keys.append(Key("hollow-key", "more than half of the prompt was cached"))
    says = "How long each request waited for its first token, by the length of its prompt; lower is better."
    return _chart("Time to first token by prompt length", says, keys, x, y, draw)


def _mostly_cached(request: MeasuredRequest) -> bool:
    return (request.cached_tokens or 0) * 2 > (request.prompt_tokens or 0)


def _goodput(run: BenchRun) -> Figure | None:
    target = ServiceTarget.of(run.options)
    each = [people(one.requests) for one in run.runs]
    worst = [gap for requests in each for request in requests if (gap := worst_gap_s(request)) is not None]
    if not worst:
        return None
    x = axis("gap target that every gap has to meet", [min(worst), max(worst), target.gap_s], limit, log=True)
    curves = [_goodput_curve(requests, replace(target, gap_s=math.inf), x) for requests in each]
    y = axis("goodput, requests/s", [level for curve in curves for _, level in curve], "{:g}".format, log=False)

    def draw(chart: Chart) -> None:
        chart.upright(target.gap_s, f"target {limit(target.gap_s)}")
        for index, curve in enumerate(curves):
            chart.steps(curve, index)

    keys = [
        Key(series(index), f"{one.target}: {figure(target.goodput(requests))}/s at the target")
        for index, (one, requests) in enumerate(zip(run.runs, each, strict=True))
    ]
    says = (
        f"Requests per second that began within {limit(target.ttft_s)} and kept every gap within the target, "
        "from a strict target on the left to a loose one on the right; higher is better."
    )
    return _chart("Goodput by gap target", says, keys, x, y, draw)


def _goodput_curve(requests: Sequence[MeasuredRequest], any_gap: ServiceTarget, x: Axis) -> list[tuple[float, float]]:
    """Goodput from the strictest target to the loosest; it rises where a request's longest gap begins to be allowed."""
    span = span_s(requests)
    if span <= 0:
        return [(x.low, 0.0), (x.high, 0.0)]
    needed = sorted(worst_gap_s(request) or 0.0 for request in requests if any_gap.met_by(request))
    rises = [(max(gap, x.low), number / span) for number, gap in enumerate(needed, 1)]
    return [(x.low, 0.0), *rises, (x.high, len(needed) / span)]


def _ttft_by_role(run: BenchRun) -> Figure | None:
    """For requests whose prompts are alike, but not what a server already knows of them."""
    points = _first_tokens(run)
    if not points:
        return None
    roles = list(dict.fromkeys(request.role for _, request, _ in points))
    # The first role at the top, each target a little lower than the one before.
    rows = {role: len(roles) - number for number, role in enumerate(roles)}
    names = {float(row): clipped(printable(role), 80) for role, row in rows.items()}
    x = axis("time to first token (TTFT)", [ttft for _, _, ttft in points], limit)
    y = Axis("", 0.4, len(roles) + 0.6, text=lambda row: names[row], fixed=tuple(names))

    def draw(chart: Chart) -> None:
        for index, request, ttft in points:
            below = 0.5 * ((index + 0.5) / len(run.runs) - 0.5)
            title = _hint(run.runs[index], request.role, duration(ttft))
            chart.dot(ttft, rows[request.role] - below, index, title=title)

    keys = _target_keys(run, (index for index, *_ in points))
    says = (
        "How long requests waited for their first token: when their text was new (cold), at once again, in turns with "
        "somebody else's (other), and after a pause; further left is better."
    )
    return _chart("Time to first token by what was read before", says, keys, x, y, draw, left=92)


def _timeline(run: BenchRun) -> Figure | None:
    target = ServiceTarget.of(run.options)
    groups = [_lanes(one, _typical_round(one), target.gap_s) for one in run.runs if one.requests]
    lanes = [lane for group in groups for lane in group.lanes]
    if not lanes:
        return None
    x = Axis("time since the first request", 0.0, max(0.1, *(lane.end for lane in lanes)), text=limit)
    told = any(lane.reading is not None for lane in lanes)
    keys = [
        (told, Key("waiting", "waiting")),
        (True, Key("reading", "reading its prompt" if told else "waiting or reading its prompt")),
        (True, Key("tokens-key", "writing, a tick for each piece of text")),
        (any(lane.stall for lane in lanes), Key("stall", "stall: the chat's longest gap")),
        (True, Key("band", "the document is being read")),
        (any(lane.failed for lane in lanes), Key("failed-key", "failed")),
    ]
    says = (
        "A chat is being answered when another client sends a long document: a hole in the chat's row of ticks is the "
        "time for which its reader saw nothing new."
    )
    if any(len(rounds(one.requests)) > 1 for one in run.runs):
        says += " Of each target's rounds, this is the one in the middle by the chat's longest gap."
    seen = [key for is_seen, key in keys if is_seen]
    return _figure("What everyone saw", says, seen, lambda size: Timeline(size, x, groups))


def _typical_round(run: TargetRun) -> list[MeasuredRequest]:
    """The round in the middle by the chat's longest gap: neither the best nor the worst stands for the target."""

    def longest_gap(requests: Sequence[MeasuredRequest]) -> float:
        return max((worst_gap_s(request) or 0.0 for request in requests if request.role == "chat"), default=0.0)

    ranked = sorted(rounds(run.requests), key=longest_gap)
    return ranked[(len(ranked) - 1) // 2]


def _lanes(run: TargetRun, requests: Sequence[MeasuredRequest], gap_s: float) -> Lanes:
    origin = min(request.sent_s for request in requests)
    reading = reading_of_document(requests)
    band = reading and (reading[0] - origin, reading[1] - origin)
    count = len(rounds(run.requests))
    title = run.target + (f", round {requests[0].round + 1} of {count}" if count > 1 else "")
    if len(requests) > _MOST_LANES:
        title += f", {_MOST_LANES} of {len(requests)} requests"
    return Lanes(printable(title), [_lane(request, origin, gap_s) for request in requests[:_MOST_LANES]], band)


def _lane(request: MeasuredRequest, origin: float, gap_s: float) -> Lane:
    sent = request.sent_s - origin
    events = [sent + offset for offset in request.event_s]
    stall = _stall(events, gap_s) if request.role == "chat" else None
    waited = _waited_s(request)
    return Lane(
        name=printable(request.role),
        sent=sent,
        reading=None if waited is None else sent + waited,
        events=events,
        end=end_s(request) - origin,
        failed=bool(request.error),
        stall=stall,
    )


def _stall(events: Sequence[float], gap_s: float) -> tuple[float, float] | None:
    """The longest gap, if it stands out."""
    if len(events) < 3:
        return None
    usual = median(b - a for a, b in pairwise(events))
    begin, end = max(pairwise(events), key=lambda pair: pair[1] - pair[0])
    return (begin, end) if end - begin > max(gap_s, _STALL_TIMES_MEDIAN * usual) else None


def _waited_s(request: MeasuredRequest) -> float | None:
    """Waiting before reading began, if the server tells: `load_ms` and `queue_ms`."""
    timings = request.timings or {}
    told = [timings.get(name) for name in ("load_ms", "queue_ms")]
    parts = [float(part) for part in told if isinstance(part, (int, float)) and part >= 0]
    return sum(parts) / 1000 if parts else None


def _chart(
    title: str, says: str, keys: list[Key], x: Axis, y: Axis, draw: Callable[[Chart], None], left: float | None = None
) -> Figure:
    """A plot with two axes; `left` is the room for the vertical one if it isn't usual, px."""

    def drawn(size: Size) -> Chart:
        chart = Chart(size if left is None else replace(size, left=left), x, y)
        draw(chart)
        return chart

    return _figure(title, says, keys, drawn)


def _figure(title: str, says: str, keys: list[Key], drawn: Callable[[Size], Chart]) -> Figure:
    return Figure(title, says, keys, *(drawn(size).render(f"{title}. {says}") for size in (WIDE, NARROW)))


def _hint(target: TargetRun, role: str, text: str) -> str:
    return printable(f"{target.target}, {role}: {text}")
