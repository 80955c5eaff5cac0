"""`legato requests`: which requests run and ran, and where the time of each went."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from legato.cli.api_client import Listing, readable_json
from legato.cli.console import out
from legato.cli.plain_text import plain, plain_text
from legato.cli.server_options import ApiKey, Json, Url, asked_server
from legato.cli.tables import (
    CLIENT_CELLS,
    Column,
    client_text,
    columns,
    id_text,
    local_time,
    optional_duration,
    print_view,
    table_of,
)
from legato.telemetry.record import LiveRequest
from legato.telemetry.summary import RequestSummary
from legato.telemetry.wording import duration

Request = LiveRequest | RequestSummary
"""A running one, or one that has ended."""

WHY_FROM = 170
"""Columns of the terminal from which on there is room for the verdict."""
ARRIVED_FROM = 100
"""The same for when it arrived."""


def _if_ended(of: Callable[[RequestSummary], str]) -> Callable[[Request], str]:
    return lambda request: of(request) if isinstance(request, RequestSummary) else ""


FIGURES: tuple[Column[Request], ...] = (
    Column("PROMPT", lambda request: f"{request.prompt_tokens:,}"),
    Column("CACHED", lambda request: f"{request.cached_tokens:,}", shown_from=120),
    Column("ANSWER", lambda request: f"{request.answer_tokens:,}", shown_from=100),
    Column("WAITED", _if_ended(lambda ended: duration(ended.load_ms + ended.queue_ms))),
    Column("READ", _if_ended(lambda ended: duration(ended.prefill_ms))),
    Column("WROTE", _if_ended(lambda ended: duration(ended.decode_ms))),
    Column("GAP", lambda one: optional_duration(one.itl_max_ms if isinstance(one, RequestSummary) else one.gap_max_ms)),
    Column("STALLS", _if_ended(lambda ended: f"{ended.stalls:,}"), shown_from=110),
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
    with asked_server(url, api_key) as server:
        answer = server.listing(limit=limit, client=client, slower_than_ms=slower_than)
    if as_json:
        typer.echo(readable_json(answer.body))
        return
    listing = answer.decoded()
    if not listing.running and not listing.requests:
        out.print("No requests yet." if client is None and slower_than is None else "No such requests.")
        return
    print_view(requests_table(listing, width=columns()))


def requests_table(listing: Listing, *, width: int) -> Table:
    """The running requests, then the ended ones, a row each; the narrower the terminal, the less is shown."""
    shown: list[Column[Request]] = [
        Column("ID", lambda request: id_text(request.id, width), right=False),
        Column("ARRIVED", _arrived, ARRIVED_FROM, right=False),
        Column("CLIENT", lambda request: client_text(request.client), right=False, max_width=CLIENT_CELLS),
        Column("STATE", _state, right=False),
        *FIGURES,
    ]
    if any(ended.verdict for ended in listing.requests):
        why = _if_ended(lambda ended: plain(ended.verdict))
        shown.append(Column("WHY", why, WHY_FROM, right=False, wraps_from=40))
    requests: list[Request] = [*listing.running, *listing.requests]
    return table_of(shown, requests, width, lambda request: "bold" if isinstance(request, LiveRequest) else "")


def _arrived(request: Request) -> str:
    return (
        local_time(request.arrived_at) if isinstance(request, RequestSummary) else f"{duration(request.since_ms)} ago"
    )


def _state(request: Request) -> Text:
    if isinstance(request, LiveRequest):
        return Text(request.phase)
    return plain_text(request.end, style="red" if request.end == "failed" else "")
