"""`legato requests`: which requests run and ran, and where the time of each went."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from legato.cli.api_client import ApiClient, Listing, readable_json
from legato.cli.background_server import server_address
from legato.cli.console import out
from legato.cli.plain_text import plain_text, replace_what_the_terminal_lacks
from legato.cli.views import (
    CLIENT_CELLS,
    ApiKey,
    Json,
    Url,
    client_text,
    columns,
    id_text,
    local_time,
    optional_duration,
    print_view,
)
from legato.telemetry.record import LiveRequest
from legato.telemetry.summary import RequestSummary
from legato.telemetry.wording import duration

WHY_FROM = 170
"""Columns of the terminal from which on there is room for the verdict."""
ARRIVED_FROM = 100
"""The same for when it arrived."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the table."""

    name: str
    shown_from: int
    """How wide the terminal must be for it."""
    running: Callable[[LiveRequest], str]
    ended: Callable[[RequestSummary], str]


FIGURES = (
    Column("PROMPT", 0, lambda live: f"{live.prompt_tokens:,}", lambda ended: f"{ended.prompt_tokens:,}"),
    Column("CACHED", 120, lambda live: f"{live.cached_tokens:,}", lambda ended: f"{ended.cached_tokens:,}"),
    Column("ANSWER", 100, lambda live: f"{live.answer_tokens:,}", lambda ended: f"{ended.answer_tokens:,}"),
    Column("WAITED", 0, lambda live: "", lambda ended: duration(ended.load_ms + ended.queue_ms)),
    Column("READ", 0, lambda live: "", lambda ended: duration(ended.prefill_ms)),
    Column("WROTE", 0, lambda live: "", lambda ended: duration(ended.decode_ms)),
    Column(
        "GAP", 0, lambda live: optional_duration(live.gap_max_ms), lambda ended: optional_duration(ended.itl_max_ms)
    ),
    Column("STALLS", 110, lambda live: "", lambda ended: f"{ended.stalls:,}"),
)
"""Tokens, then durations: of loading and queueing, of reading, of writing, and the longest gap between tokens."""


def requests_command(
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Most ended requests to list.")] = 20,
    client: Annotated[str | None, typer.Option(help="Only requests with the API key of that name.")] = None,
    slower_than: Annotated[
        float | None, typer.Option(min=0, metavar="MS", help="Only requests that took longer, in ms.")
    ] = None,
    as_json: Json = False,
    url: Url = None,
    api_key: ApiKey = None,
) -> None:
    """List the running server's newest requests, running ones first, and where the time of each went."""
    replace_what_the_terminal_lacks()
    with ApiClient(server_address(url, api_key)) as server:
        if as_json:
            body = server.listing_json(limit=limit, client=client, slower_than_ms=slower_than)
            typer.echo(readable_json(body))
            return
        listing = server.listing(limit=limit, client=client, slower_than_ms=slower_than)
    if not listing.running and not listing.requests:
        out.print("No requests yet." if client is None and slower_than is None else "No such requests.")
        return
    print_view(requests_table(listing, width=columns()))


def requests_table(listing: Listing, *, width: int) -> Table:
    """The running requests, then the ended ones, a row each.

    Args:
        listing: What the server said.
        width: Columns of the terminal; the narrower it is, the less is shown.
    """
    figures = [column for column in FIGURES if width >= column.shown_from]
    reasons = width >= WHY_FROM and any(summary.verdict for summary in listing.requests)
    arrived = width >= ARRIVED_FROM
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("ID", no_wrap=True)
    if arrived:
        table.add_column("ARRIVED", no_wrap=True)
    table.add_column("CLIENT", overflow="ellipsis", no_wrap=True, max_width=CLIENT_CELLS)
    table.add_column("STATE", no_wrap=True)
    for column in figures:
        table.add_column(column.name, justify="right", no_wrap=True)
    if reasons:
        # The only column that wraps, so that it takes its room from no other.
        table.add_column("WHY", min_width=40)
    for live in listing.running:
        row = [id_text(live.id, width), *([Text(f"{duration(live.since_ms)} ago")] if arrived else [])]
        row += [client_text(live.client), Text(live.phase), *(Text(column.running(live)) for column in figures)]
        table.add_row(*row, *([Text()] if reasons else []), style="bold")
    for ended in listing.requests:
        row = [id_text(ended.id, width), *([Text(local_time(ended.arrived_at))] if arrived else [])]
        row += [client_text(ended.client), _end(ended), *(Text(column.ended(ended)) for column in figures)]
        table.add_row(*row, *([plain_text(ended.verdict)] if reasons else []))
    return table


def _end(ended: RequestSummary) -> Text:
    return plain_text(ended.end, style="red" if ended.end == "failed" else "")
