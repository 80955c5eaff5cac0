"""Tables of requests and of what is remembered: as wide as the terminal, and safe to print."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from legato.cli.console import out
from legato.cli.plain_text import plain_text
from legato.telemetry.breakdown import RequestPhase
from legato.telemetry.wording import duration, rate

PIPE_COLUMNS = 200
"""Columns where the output is no terminal: nothing is to be cut off for a program."""
CLIENT_CELLS = 12
"""How much of a client's name a table shows."""
SHORT_ID = 17
"""How much of an id a narrow table shows: enough to tell requests apart, and `legato explain` takes a beginning."""
WHOLE_ID_FROM = 150
"""Columns of the terminal from which on ids are shown whole."""

PHASE_NAMES: dict[RequestPhase, str] = {
    "load": "loading",
    "queue": "waiting",
    "prefill": "reading",
    "decode": "writing",
    "delivery": "delivery",
}
"""Where the time of a request goes, as people say it."""

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    """One column of a table."""

    name: str
    cell: Callable[[Row], str | Text]
    shown_from: int = 0
    """How wide the terminal must be for it."""
    right: bool = True
    max_width: int | None = None
    """Longer cells are cut off."""
    wraps_from: int | None = None
    """The fewest cells of one that wraps, so that it takes its room from no other."""


def table_of(
    columns: Sequence[Column[Row]], rows: Iterable[Row], width: int, style: Callable[[Row], str] = lambda _: ""
) -> Table:
    """A table with the columns for which a terminal of that width has room, each row in its style."""
    shown = [column for column in columns if width >= column.shown_from]
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for column in shown:
        table.add_column(
            column.name,
            justify="right" if column.right else "left",
            no_wrap=column.wraps_from is None,
            min_width=column.wraps_from,
            max_width=column.max_width,
        )
    for row in rows:
        cells = (column.cell(row) for column in shown)
        # Texts alone: rich would look for markup in strings.
        table.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in cells), style=style(row))
    return table


def columns() -> int:
    """How wide the output is."""
    return out.width if out.is_terminal else max(out.width, PIPE_COLUMNS)


def print_view(view: RenderableType) -> None:
    """Print it as wide as the output is."""
    out.print(view, width=columns(), crop=False)


def local_time(unix_s: float) -> str:
    """A moment on the clock of this machine; "?" if it is none."""
    try:
        return datetime.datetime.fromtimestamp(unix_s, tz=datetime.UTC).astimezone().strftime("%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return "?"


def id_text(request: str, width: int) -> Text:
    """A request's id, or its beginning where the terminal is narrow."""
    return plain_text(request if width >= WHOLE_ID_FROM else request[:SHORT_ID])


def client_text(client: str | None) -> Text:
    """The name of the client's API key; a dash without one."""
    return Text("-") if client is None else plain_text(client)


def optional_duration(ms: float | None) -> str:
    """A duration; a dash if there is none."""
    return "-" if ms is None else duration(ms)


def optional_rate(tokens_per_second: float | None) -> str:
    """A rate in tokens/s; a dash if there is none."""
    return "-" if tokens_per_second is None else rate(tokens_per_second)
