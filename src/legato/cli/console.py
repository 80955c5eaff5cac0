"""Printing for people."""

from __future__ import annotations

from rich.console import Console

out = Console(highlight=False)
"""Results go to standard output."""
err = Console(stderr=True, highlight=False)
"""Progress and errors go to standard error."""


def tell(lines: str) -> None:
    """Print a result: lines as they are, however narrow the terminal."""
    out.print(lines, markup=False, soft_wrap=True)


def print_error(sentence: str) -> None:
    """Print what went wrong."""
    err.print("[bold red]Error:[/] ", end="")
    err.print(sentence, markup=False, soft_wrap=True)


def say(line: str) -> None:
    """Print what is being done while it takes long."""
    err.print(line, markup=False, soft_wrap=True)
