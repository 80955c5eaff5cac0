"""`legato cache`: what the running server remembers of prompts, to see, to clear and to pin."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from legato.cli.api_client import CacheContents, CacheTier, RememberedPrompt, readable_json
from legato.cli.console import out, tell
from legato.cli.plain_text import plain, plain_text
from legato.cli.server_options import ApiKey, Json, Url, asked_server
from legato.cli.tables import CLIENT_CELLS, Column, client_text, columns, print_view, table_of
from legato.models.disk import readable_bytes
from legato.telemetry.wording import count, duration

SHORT_ID = 12
"""How much of an id is shown: enough to tell entries apart, and every command takes a beginning."""
WHOSE_FROM = 90
"""Columns of the terminal from which on there is room for whose it is."""

cache_app = typer.Typer(invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})

Entry = Annotated[str, typer.Argument(metavar="ID", help="Id of the prompt, or its beginning.", show_default=False)]


COLUMNS: tuple[Column[RememberedPrompt], ...] = (
    Column("ID", lambda entry: plain_text(entry.id[:SHORT_ID] or "-"), right=False),
    Column("TOKENS", lambda entry: f"{entry.tokens:,}"),
    Column("SIZE", lambda entry: readable_bytes(entry.bytes) if entry.bytes else "-"),
    Column("WHERE", lambda entry: plain(", ".join(entry.places)), right=False),
    Column("HITS", lambda entry: f"{entry.hits:,}", shown_from=65),
    Column("UNUSED", lambda entry: duration(entry.unused_s * 1000)),
    Column("PINNED", lambda entry: "pinned" if entry.pinned else "", shown_from=75, right=False),
)
"""Of an entry: its tokens, the size of its state outside the cells, the places where that is, and how it is used."""


@cache_app.callback()
def cache_command(context: typer.Context, as_json: Json = False, url: Url = None, api_key: ApiKey = None) -> None:
    """List what the running server remembers of prompts, so as not to read them again; clear it, or pin parts of it."""
    if context.invoked_subcommand is not None:
        _refuse_options(context)
        return
    with asked_server(url, api_key) as server:
        answer = server.cache()
    if as_json:
        typer.echo(readable_json(answer.body))
        return
    cache = answer.decoded()
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
        tell("Nothing is remembered that requests with this key may begin with.")
    tell("\n".join(["", *totals(cache)]))


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
    with asked_server(url, api_key) as server:
        freed = server.clear_cache(entry)
    if not freed.entries:
        out.print("Nothing was remembered.")
        return
    line = f"Forgotten: {count(freed.entries, 'prompt')}, {count(freed.tokens, 'token')}"
    line += f"; {readable_bytes(freed.bytes)} are free again." if freed.bytes else "."
    tell(line)


@cache_app.command(name="pin")
def pin_command(entry: Entry, url: Url = None, api_key: ApiKey = None) -> None:
    """Keep a remembered prompt, whatever room others need."""
    _pin(entry, url, api_key, pinned=True)


@cache_app.command(name="unpin")
def unpin_command(entry: Entry, url: Url = None, api_key: ApiKey = None) -> None:
    """Let a pinned prompt go again when others need its room."""
    _pin(entry, url, api_key, pinned=False)


def _pin(entry: str, url: str | None, api_key: str | None, *, pinned: bool) -> None:
    with asked_server(url, api_key) as server:
        changed = server.pin(entry, pinned=pinned)
    words = "is pinned: it stays, whatever room others need" if changed.pinned else "is not pinned any more"
    tell(f"{plain(changed.id)} {words}.")


def _refuse_options(context: typer.Context) -> None:
    """What stands before a subcommand would have no effect on it."""
    for name, flag in (("as_json", "--json"), ("url", "--url"), ("api_key", "--api-key")):
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise typer.BadParameter(
                f"{flag} before {context.invoked_subcommand} has no effect; options go after it.", ctx=context
            )


def cache_table(cache: CacheContents, *, width: int) -> Table:
    """What is remembered, a row each; the narrower the terminal, the less is shown."""

    def whose(entry: RememberedPrompt) -> Text:
        shared = cache.scope != "key" and not entry.scope
        return Text("everybody") if shared else client_text(entry.scope or None)

    last = Column("WHOSE", whose, WHOSE_FROM, right=False, max_width=CLIENT_CELLS)
    return table_of((*COLUMNS, last), cache.entries, width)


def totals(cache: CacheContents) -> list[str]:
    """How much is remembered in each place, a sentence each."""
    tiers = cache.tiers
    return [
        # Where each key has its own, the table may show fewer than these.
        *(["Of all keys together:"] if cache.scope == "key" else []),
        f"In cells that no request holds: {_content(tiers.live)}.",
        f"In memory: {_within_budget(tiers.memory)}.",
        f"On disk: {_within_budget(tiers.disk)}.",
    ]


def _content(tier: CacheTier) -> str:
    return f"{count(tier.entries, 'prompt')}, {count(tier.tokens, 'token')}" if tier.entries else "nothing"


def _within_budget(tier: CacheTier) -> str:
    if not tier.entries and not tier.budget_bytes:
        return "nothing is kept there"
    if not tier.entries:
        return f"nothing, of at most {readable_bytes(tier.budget_bytes)}"
    return f"{_content(tier)}, {readable_bytes(tier.bytes)} of at most {readable_bytes(tier.budget_bytes)}"
