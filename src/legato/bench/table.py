"""A bench run as tables in the terminal: one for each role, the measures apart, the targets beside each other."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from legato.bench.compare import Comparison, Row
from legato.bench.results import BenchRun, TargetRun
from legato.bench.statistics import RoleSummary, ServiceTarget, by_role, gaps_around_document, people

MISSING = "\N{EN DASH}"
"""A cell with nothing to show."""


Lines = dict[str, list[str]]
"""Measures by label, with its unit: a cell for each target, in the run's order."""


@dataclass(frozen=True, slots=True)
class Section:
    """All measures of one role, or of the whole scenario."""

    title: str
    parts: dict[str, Lines]
    """Lines about one thing, by its name: the prompt, the answer."""


def sections(run: BenchRun) -> list[Section]:
    """The tables of a run: what the scenario is about first, then one for each role."""
    roles = dict.fromkeys(role for target in run.runs for role in by_role(target.requests))
    own = _interference if run.scenario == "interference" else _service
    return [*([own(run)] if roles else []), *(_role(run, role) for role in roles)]


def errors(run: TargetRun) -> list[str]:
    """What went wrong, each with how often and in which role."""
    counted = Counter((request.role, request.error) for request in run.requests if request.error)
    return [f"{role}: {error}" + (f" ({count} times)" if count > 1 else "") for (role, error), count in counted.items()]


def print_run(run: BenchRun, console: Console) -> None:
    """Print the tables, and under them every note and error."""
    if not run.complete:
        console.print(Text("Interrupted: these are the requests that were measured before.", style="yellow"))
    if not any(target.requests for target in run.runs):
        console.print("No request was measured.")
    for section in sections(run):
        # Not the table's own title: that one would be wrapped to the table's width.
        console.print(Text(printable(section.title), style="bold"))
        console.print(_table(section, run))
    for target in run.runs:
        for text, style in (*((note, "") for note in target.notes), *((error, "red") for error in errors(target))):
            console.print(Text.assemble((printable(target.target), "bold"), ": ", (printable(text), style)))


def print_comparison(comparison: Comparison, console: Console) -> None:
    """Print each measure of both runs, the ratio with its interval, and what it allows to say."""
    if comparison.rows:
        console.print(f"{comparison.scenario}: medians over requests, the second run against the first")
    else:
        console.print("The runs have no measure in common.")
    # A table for each target and role: as columns they would leave the figures no room on a terminal of 80.
    for (target, role), rows in groupby(comparison.rows, key=lambda row: (row.target, row.role)):
        table = Table(title=Text(printable(f"{target}: {role}")), title_justify="left", box=None, padding=(0, 1, 0, 0))
        table.add_column("measure", no_wrap=True)
        for heading in ("first", "second", "ratio", "95 % interval"):
            table.add_column(heading, justify="right", no_wrap=True)
        table.add_column("", no_wrap=True)
        for row in rows:
            table.add_row(*_comparison_cells(row))
        console.print(table)
    for note in comparison.notes:
        console.print(Text(printable(note)))


def figure(value: float | None) -> str:
    """A number with three digits that count, thousands apart; a dash for None."""
    if value is None:
        return MISSING
    rounded = abs(float(f"{value:.3g}"))
    places = min(max(0, 2 - math.floor(math.log10(rounded))), 6) if rounded else 0
    return f"{value:,.{places}f}"


def duration(seconds: float) -> str:
    """A time with its unit, for people."""
    return f"{figure(seconds)} s" if seconds >= 1 else f"{figure(seconds * 1000)} ms"


def limit(seconds: float) -> str:
    """A chosen time with its unit: a target or a tick, not a measure, so it needs no digits after the last."""
    return f"{seconds:g} s" if seconds >= 1 or seconds == 0 else f"{seconds * 1000:g} ms"


def printable(text: str) -> str:
    """Text from a server or a saved file without characters that would steer a terminal."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


def _interference(run: BenchRun) -> Section:
    service = ServiceTarget.of(run.options)
    around = [gaps_around_document(target.requests) for target in run.runs]
    longest, within = Lines(), Lines()
    for when in ("before", "during", "after"):
        longest |= _times(when, [max(gaps[when], default=None) for gaps in around])
        within |= _numbers(when, [service.percent_within(gaps[when]) for gaps in around])
    parts = {"Longest gap": longest, f"Gaps within {limit(service.gap_s)}, %": within}
    return Section("The chat, while another client's document is read", parts)


def _service(run: BenchRun) -> Section:
    service = ServiceTarget.of(run.options)
    each = [people(target.requests) for target in run.runs]
    gaps = [[gap for request in requests for gap in request.gaps_s] for requests in each]
    lines = {
        "requests that met both": [f"{sum(map(service.met_by, one))} of {len(one)}" for one in each],
        **_numbers("goodput, requests/s", map(service.goodput, each)),
        **_numbers("gaps within the target, %", map(service.percent_within, gaps)),
    }
    title = f"Service: TTFT within {limit(service.ttft_s)} and every gap within {limit(service.gap_s)}"
    return Section(title, {"": lines})


class _Measure(NamedTuple):
    """A line of every role's table."""

    part: str
    label: str
    of: Callable[[RoleSummary], float | None]
    is_time: bool = False
    above: float = -math.inf
    """Left out unless some target has more than this."""


_MEASURES = (
    _Measure("", "requests", lambda one: one.count),
    _Measure("", "of them failed", lambda one: one.errors, above=0),
    _Measure("", "of them not streamed", lambda one: one.not_streamed, above=0),
    _Measure("", "of them stopped early", lambda one: one.stopped_early, above=0),
    _Measure("Reading the prompt (prefill)", "prompt, tokens", lambda one: one.prompt_tokens),
    _Measure("Reading the prompt (prefill)", "of it cached, tokens", lambda one: one.cached_tokens),
    _Measure("Reading the prompt (prefill)", "prefill rate, tokens/s", lambda one: one.prompt_rate),
    _Measure("Time to first token (TTFT)", "TTFT p50", lambda one: one.ttft_s(50), is_time=True),
    _Measure("Time to first token (TTFT)", "TTFT p95", lambda one: one.ttft_s(95), is_time=True),
    _Measure("Time to first token (TTFT)", "TTFT longest", lambda one: one.ttft_s(100), is_time=True),
    _Measure("Writing the answer (decode)", "ITL p50", lambda one: one.gap_s(50), is_time=True),
    _Measure("Writing the answer (decode)", "ITL p95", lambda one: one.gap_s(95), is_time=True),
    _Measure("Writing the answer (decode)", "ITL p99", lambda one: one.gap_s(99), is_time=True),
    _Measure("Writing the answer (decode)", "ITL longest", lambda one: one.gap_s(100), is_time=True),
    _Measure("Writing the answer (decode)", "tokens per event", lambda one: one.tokens_per_event, above=1.05),
    _Measure("Writing the answer (decode)", "output rate, tokens/s", lambda one: one.output_rate),
    _Measure("Whole", "from sending to the end, median", lambda one: one.total_s, is_time=True),
)


def _role(run: BenchRun, role: str) -> Section:
    """Measures that no target has are left out, so that a table shows figures, not dashes."""
    each = [RoleSummary(by_role(target.requests).get(role, [])) for target in run.runs]
    parts: dict[str, Lines] = {}
    for measure in _MEASURES:
        values = [measure.of(one) for one in each]
        if any(value is not None and value > measure.above for value in values):
            line = _times(measure.label, values) if measure.is_time else _numbers(measure.label, values)
            parts.setdefault(measure.part, {}).update(line)
    return Section(role, parts)


def _times(label: str, seconds: Sequence[float | None]) -> Lines:
    """One unit for the whole line, so that its cells can be compared at a glance."""
    if max((value for value in seconds if value is not None), default=0) < 1:
        return {f"{label}, ms": [figure(None if value is None else value * 1000) for value in seconds]}
    return {f"{label}, s": [figure(value) for value in seconds]}


def _numbers(label: str, values: Iterable[float | None]) -> Lines:
    return {label: [f"{value:,}" if isinstance(value, int) else figure(value) for value in values]}


def _table(section: Section, run: BenchRun) -> Table:
    table = Table("", header_style="")
    for target in run.runs:
        table.add_column(Text(printable(target.target), style="bold"), justify="right", overflow="fold")
    for part, lines in section.parts.items():
        table.add_section()
        if part:
            table.add_row(Text(part, style="dim"))
        for label, cells in lines.items():
            table.add_row(Text(f"  {label}" if part else label), *map(Text, cells))
    return table


def _comparison_cells(row: Row) -> list[Text]:
    interval = row.interval
    bounds = "{:.2f} to {:.2f}".format(*interval.bounds) if interval.bounds else MISSING
    style = {"better": "green", "worse": "red"}.get(row.verdict, "dim")
    milli = row.measure.unit == "s" and max(row.before, row.after) < 1
    scale, unit = (1000, "ms") if milli else (1, row.measure.unit)
    values = (figure(row.before * scale), figure(row.after * scale), f"{interval.ratio:.2f}", bounds)
    return [*map(Text, (f"{row.measure.name}, {unit}", *values)), Text(row.verdict, style=style)]
