"""`legato explain`: why one request took as long as it did."""

from __future__ import annotations

import statistics
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from legato.cli.api_client import ApiClient, Explained, readable_json
from legato.cli.plain_text import plain, plain_text
from legato.cli.server_options import ApiKey, Json, Url, asked_server
from legato.cli.tables import PHASE_NAMES, local_time, print_view
from legato.core.causes import CAUSES
from legato.core.timings import ChunkRead, Stall
from legato.errors import LegatoError
from legato.telemetry.breakdown import PHASES, breakdown
from legato.telemetry.record import RequestRecord
from legato.telemetry.sentences import CAUSE_WORDS, stall_words
from legato.telemetry.wording import count, duration, listed

BAR_CELLS = 30
LISTED_STALLS = 8
SEARCHED = 100
"""Ended requests among which the beginning of an id is looked for."""


def explain_command(
    request: Annotated[
        str | None, typer.Argument(metavar="ID", help="Request, or the beginning of its id; the last one, if left out.")
    ] = None,
    as_json: Json = False,
    url: Url = None,
    api_key: ApiKey = None,
) -> None:
    """Say where one request's time went, whose prompt it waited for, and what would have shortened it."""
    with asked_server(url, api_key) as server:
        whole_id = _last_id(server) if request is None else _found_id(server, request)
        answer = server.explained(whole_id)
    if as_json:
        typer.echo(readable_json(answer.body))
    else:
        print_view(explanation(answer.decoded()))


def _last_id(server: ApiClient) -> str:
    ended = server.listing(limit=1).decoded().requests
    if not ended:
        raise LegatoError("No request has ended yet, so that there is none to explain.")
    return ended[0].id


def _found_id(server: ApiClient, beginning: str) -> str:
    """The id that begins so.

    Raises:
        LegatoError: None does, several do, or that request still runs.
    """
    listing = server.listing(limit=SEARCHED, id=beginning).decoded()
    ended = [summary.id for summary in listing.requests if summary.id.startswith(beginning)]
    running = [live.id for live in listing.running if live.id.startswith(beginning)]
    if beginning in ended or not (ended or running):
        # Where the list has nothing, the server may still know the whole id, or says best that it does not.
        return beginning
    if len(ended) + len(running) > 1:
        names = listed([plain(name) for name in ended + running])
        raise LegatoError(f"Several requests begin with {plain(beginning)}: {names}; write more of the id.")
    if running:
        raise LegatoError(f"Request {plain(running[0])} has not ended yet; `legato top` shows how far it is.")
    return ended[0]


def explanation(explained: Explained) -> RenderableType:
    """Everything about one request: sentences first, then the figures they come from."""
    record = explained.request
    blocks: list[RenderableType] = [_title(record), Text()]
    blocks += [plain_text(sentence) for sentence in explained.verdict.sentences]
    blocks += [Text(), phase_bars(record)]
    if record.timings.prefill_parts is not None or record.timings.decode_parts is not None:
        blocks += [Text(), cause_table(record)]
    if record.stalls:
        longest = sorted(record.stalls, key=lambda stall: -stall.gap_ms)[:LISTED_STALLS]
        more = record.timings.stalls - len(longest)
        title = f"Longest gaps ({more:,} shorter ones are not listed):" if more > 0 else "Gaps longer than the target:"
        blocks += [Text(), Text(title), *map(stall_line, longest)]
    if record.chunks:
        blocks += [Text(), Text(chunks_summary(record.chunks))]
    return Group(*blocks)


def _title(record: RequestRecord) -> Text:
    facts = [record.id, record.model, *([record.client] if record.client is not None else [])]
    facts += [local_time(record.arrived_at), *(["background"] if record.service_tier == "flex" else []), record.end]
    return plain_text(" · ".join(facts), style="bold")


def phase_bars(record: RequestRecord) -> Table:
    """A bar for each phase; together they are as long as one whole bar."""
    times = breakdown(record)
    table = Table(box=None, pad_edge=False, show_header=False)
    for side in ("left", "right", "right", "left"):
        table.add_column(justify=side, no_wrap=True)
    before = 0.0
    for phase in PHASES:
        ms = times.phases_ms[phase]
        share = times.share(ms)
        table.add_row(PHASE_NAMES[phase], duration(ms), f"{share:.0%}", bar(before, share))
        before += share
    table.add_row("total", duration(times.total_ms), "", "")
    return table


def bar(begin: float, share: float, *, cells: int = BAR_CELLS) -> str:
    """A stretch of a whole of so many cells: blank up to `begin`, 0 to 1, then filled for its `share`, 0 to 1."""
    if share <= 0:
        return ""
    filled = round((begin + share) * cells) - round(begin * cells)
    first = min(round(begin * cells), cells - 1)
    # What took any time is seen, if only as a line.
    return " " * first + ("█" * min(filled, cells - first) or "▏")


def cause_table(record: RequestRecord) -> Table:
    """What the time before and after the first token went into, a row each cause."""
    prefill, decode = record.timings.prefill_parts, record.timings.decode_parts
    table = Table("WENT INTO", box=None, pad_edge=False)
    for heading in ("BEFORE THE FIRST TOKEN", "BETWEEN TOKENS"):
        table.add_column(heading, justify="right")
    for cause in CAUSES:
        before = prefill.of(cause) if prefill is not None else 0.0
        between = decode.of(cause) if decode is not None else 0.0
        if before or between:
            table.add_row(CAUSE_WORDS[cause], _signed(before), _signed(between))
    return table


def _signed(ms: float) -> str:
    """Delivery is below zero where an earlier delay was made good."""
    return f"-{duration(-ms)}" if ms <= -0.05 else duration(ms)


def stall_line(stall: Stall) -> Text:
    """When a gap began, how long it was, and what held it up."""
    return plain_text(f"  after {duration(stall.at_ms)}: {duration(stall.gap_ms)}, {stall_words(stall)}")


def chunks_summary(chunks: list[ChunkRead]) -> str:
    """In how many pieces of which size the prompt was read, and how long they took."""
    sizes = [chunk.tokens for chunk in chunks]
    size = count(max(sizes), "token") if min(sizes) == max(sizes) else f"{min(sizes):,} to {count(max(sizes), 'token')}"
    slowest = max(chunks, key=lambda chunk: chunk.took_ms)
    if len(chunks) == 1:
        return f"Its prompt was read in 1 piece of {size}, which took {duration(slowest.took_ms)}."
    median = duration(statistics.median(chunk.took_ms for chunk in chunks))
    return (
        f"Its prompt was read in {count(len(chunks), 'piece')} of {size}: half of them took {median} or less, "
        f"the slowest {duration(slowest.took_ms)}, at token {slowest.start:,}."
    )
