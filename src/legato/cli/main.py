"""The `legato` command: its subcommands, and errors as sentences."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from legato import __version__
from legato.cli import chat, convert, doctor, explain, models, requests, serve, top, tune
from legato.cli.bench import bench_app
from legato.cli.cache import cache_app
from legato.cli.console import print_error
from legato.errors import LegatoError

app = typer.Typer(
    help="Legato serves a language model to several people at once, and shows where each wait came from.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(name="serve")(serve.command)
app.command(name="chat")(chat.command)
app.command(name="pull")(models.pull)
app.command(name="list")(models.list_models)
app.command(name="rm")(models.remove)
app.command(name="convert")(convert.command)
app.command(name="tune")(tune.command)
app.command(name="doctor")(doctor.command)
app.command(name="requests")(requests.requests_command)
app.command(name="explain")(explain.explain_command)
app.command(name="top")(top.top_command)
app.add_typer(cache_app, name="cache")
app.add_typer(bench_app, name="bench")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"legato {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line; an error that a person can mend is one sentence and exit code 1."""
    try:
        app()
    except LegatoError as error:
        print_error(str(error))
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
