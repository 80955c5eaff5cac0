"""`legato cache`: what the running server remembers of prompts, to see, to clear and to pin."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from legato.cli.api_client import ApiClient, Cache, CacheTier, RememberedPrompt, readable_json
from legato.cli.background_server import server_address
from legato.cli.console import out
from legato.cli.plain_text import plain, plain_text, replace_what_the_terminal_lacks
from legato.cli.views import CLIENT_CELLS, ApiKey, Json, Url, client_text, columns, print_view
from legato.models.disk import readable_bytes
from legato.telemetry.wording import count, duration

SHORT_ID = 12
"""How much of an id is shown: enough to tell entries apart, and every command takes a beginning."""
WHOSE_FROM = 90
"""Columns of the terminal from which on there is room for whose it is."""

cache_app = typer.Typer(invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})

Entry = Annotated[str, typer.Argument(metavar="ID", help="Id of the prompt, or its beginning.", show_default=False)]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the table."""

    name: str
    shown_from: int
    """How wide the terminal must be for it."""
    text: Callable[[RememberedPrompt], str]
    justify_right: bool = True


COLUMNS = (
    Column("TOKENS", 0, lambda entry: f"{entry.tokens:,}"),
    Column("SIZE", 0, lambda entry: readable_bytes(entry.bytes) if entry.bytes else "-"),
    Column("WHERE", 0, lambda entry: plain(", ".join(entry.places)), justify_right=False),
    Column("HITS", 65, lambda entry: f"{entry.hits:,}"),
    Column("UNUSED", 0, lambda entry: duration(entry.unused_s * 1000)),
    Column("PINNED", 75, lambda entry: "pinned" if entry.pinned else "", justify_right=False),
)
"""Of an entry: its tokens, the size of its state outside the cells, the places where that is, and how it is used."""


@cache_app.callback()
def cache_command(context: typer.Context, as_json: Json = False, url: Url = None, api_key: ApiKey = None) -> None:
    """List what the running server remembers of prompts, so as not to read them again; clear it, or pin parts of it."""
    if context.invoked_subcommand is not None:
        _refuse_options(context)
        return
    replace_what_the_terminal_lacks()
    with ApiClient(server_address(url, api_key)) as server:
        if as_json:
            typer.echo(readable_json(server.cache_json()))
            return
        cache = server.cache()
    if cache.scope == "off":
        out.print("This server remembers no prompts: its cache_scope is off.")
        return
    tiers = cache.tiers
    if not (tiers.live.entries or tiers.memory.entries or tiers.disk.entries):
        out.print("Nothing is remembered yet.")
        return
    if cache.entries:
        print_view(cache_table(cache, width=columns()))
    else:
        out.print("Nothing is remembered that requests with this key may begin with.", soft_wrap=True)
    out.print()
    for line in totals(cache):
        out.print(line, markup=False, soft_wrap=True)


@cache_app.command(name="clear")
def clear_command(
    entry: Annotated[
        str | None,
        typer.Argument(
            metavar="ID", help="Id of one prompt, or its beginning; all of them, if left out, and pinned ones too."
        ),
    ] = None,
    url: Url = None,
    api_key: ApiKey = None,
) -> None:
    """Forget all remembered prompts, or one, and say what that freed."""
    replace_what_the_terminal_lacks()
    with ApiClient(server_address(url, api_key)) as server:
        freed = server.clear_cache(entry)
    if not freed.entries:
        out.print("Nothing was remembered.")
        return
    line = f"Forgotten: {count(freed.entries, 'prompt')}, {count(freed.tokens, 'token')}"
    line += f"; {readable_bytes(freed.bytes)} are free again." if freed.bytes else "."
    out.print(line, markup=False, soft_wrap=True)


@cache_app.command(name="pin")
def pin_command(entry: Entry, url: Url = None, api_key: ApiKey = None) -> None:
    """Keep a remembered prompt, whatever room others need."""
    _pin(entry, url, api_key, pinned=True)


@cache_app.command(name="unpin")
def unpin_command(entry: Entry, url: Url = None, api_key: ApiKey = None) -> None:
    """Let a pinned prompt go again when others need its room."""
    _pin(entry, url, api_key, pinned=False)


def _pin(entry: str, url: str | None, api_key: str | None, *, pinned: bool) -> None:
    replace_what_the_terminal_lacks()
    with ApiClient(server_address(url, api_key)) as server:
        changed = server.pin(entry, pinned=pinned)
    words = "is pinned: it stays, whatever room others need" if changed.pinned else "is not pinned any more"
    out.print(f"{plain(changed.id)} {words}.", markup=False, soft_wrap=True)


def _refuse_options(context: typer.Context) -> None:
    """What stands before a subcommand would have no effect on it."""
    for name, flag in (("as_json", "--json"), ("url", "--url"), ("api_key", "--api-key")):
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise typer.BadParameter(
                f"{flag} before {context.invoked_subcommand} has no effect; options go after it.", ctx=context
            )


def cache_table(cache: Cache, *, width: int) -> Table:
    """What is remembered, a row each.

    Args:
        cache: What the server said.
        width: Columns of the terminal; the narrower it is, the less is shown.
    """
    shown = [column for column in COLUMNS if width >= column.shown_from]
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("ID", no_wrap=True)
    for column in shown:
        table.add_column(column.name, justify="right" if column.justify_right else "left", no_wrap=True)
    if width >= WHOSE_FROM:
        table.add_column("WHOSE", overflow="ellipsis", no_wrap=True, max_width=CLIENT_CELLS)
    for entry in cache.entries:
        row = [plain_text(entry.id[:SHORT_ID] or "-"), *(Text(column.text(entry)) for column in shown)]
        table.add_row(*row, *([_whose(entry, cache)] if width >= WHOSE_FROM else []))
    return table


def _whose(entry: RememberedPrompt, cache: Cache) -> Text:
    if entry.scope or cache.scope == "key":
        return client_text(entry.scope or None)
    return Text("everybody")


def totals(cache: Cache) -> list[str]:
    """How much is remembered in each place, a sentence each."""
    tiers = cache.tiers
    # Where each key has its own, the table may show fewer than these.
    lines = ["Of all keys together:"] if cache.scope == "key" else []
    lines.append(f"In cells that no request holds: {_content(tiers.live)}.")
    lines.append(f"In memory: {_within_budget(tiers.memory)}.")
    lines.append(f"On disk: {_within_budget(tiers.disk)}.")
    return lines


def _content(tier: CacheTier) -> str:
    return f"{count(tier.entries, 'prompt')}, {count(tier.tokens, 'token')}" if tier.entries else "nothing"


def _within_budget(tier: CacheTier) -> str:
    if not tier.entries and not tier.budget_bytes:
        return "nothing is kept there"
    if not tier.entries:
        return f"nothing, of at most {readable_bytes(tier.budget_bytes)}"
    return f"{_content(tier)}, {readable_bytes(tier.bytes)} of at most {readable_bytes(tier.budget_bytes)}"
