"""What the commands that ask a running server share: their options, and how they print."""

from __future__ import annotations

import datetime
from typing import Annotated

import typer
from rich.console import RenderableType
from rich.text import Text

from legato.cli.console import out
from legato.cli.plain_text import plain_text
from legato.telemetry.wording import duration, rate

PIPE_COLUMNS = 200
"""Columns where the output is no terminal: nothing is to be cut off for a program."""
CLIENT_CELLS = 12
"""How much of a client's name a table shows."""
SHORT_ID = 17
"""How much of an id a narrow table shows: enough to tell requests apart, and `legato explain` takes a beginning."""
WHOLE_ID_FROM = 150
"""Columns of the terminal from which on ids are shown whole."""

Url = Annotated[str | None, typer.Option(help="Server to ask, such as http://127.0.0.1:8383.")]
ApiKey = Annotated[str | None, typer.Option(envvar="LEGATO_CHAT_KEY", help="API key of that server.")]
Json = Annotated[bool, typer.Option("--json", help="Print the server's JSON.")]


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
