"""`legato doctor`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from legato.cli.console import out, tell


def command(
    model: Annotated[
        str | None, typer.Argument(help="Model to look at; the one that would be served, if left out.")
    ] = None,
) -> None:
    """Say what hardware and library were found, what is slow about this set-up, and how to mend it."""
    # Imported here so that the other commands need not wait for the library.
    from legato.cli.diagnosis import examine

    facts, findings = examine(model)
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, value in facts:
        table.add_row(name, value)
    out.print(table)
    if not findings:
        out.print("\nNothing to mend.")
    for number, finding in enumerate(findings, 1):
        tell(f"\n{number}. {finding.what}\n   {finding.remedy}")
