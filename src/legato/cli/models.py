"""`legato pull`, `legato list`, `legato rm`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from legato.cli.console import out, say, tell
from legato.models import default_store
from legato.models.catalogue import DEFAULT_MODEL
from legato.models.disk import readable_bytes

Model = Annotated[
    str, typer.Argument(help="A catalogue name such as smollm2, or hf:owner/repo[:quant-or-file].", metavar="MODEL")
]


def pull(
    model: Model = DEFAULT_MODEL,
    force: Annotated[bool, typer.Option("--force", help="Download again, even if the file is there.")] = False,
) -> None:
    """Download a model into the store. A download that was cut off goes on where it stopped."""
    local = default_store().pull(model, force=force, progress=say)
    tell(f"{local.name} is at {local.path} ({readable_bytes(local.size_bytes)}).")


def list_models() -> None:
    """List the models in the store."""
    store = default_store()
    local = store.list()
    if not local:
        out.print(f"There are no models in {store.root} yet; `legato pull {DEFAULT_MODEL}` brings one.", markup=False)
        return
    table = Table("MODEL", "SIZE", "CHANGED", "FILE", box=None, pad_edge=False)
    for model in local:
        changed = model.modified.astimezone().strftime("%Y-%m-%d %H:%M")
        table.add_row(model.reference, readable_bytes(model.size_bytes), changed, str(model.path))
    out.print(table, soft_wrap=True)


def remove(model: Model) -> None:
    """Remove a model from the store."""
    freed = default_store().remove(model)
    out.print(f"{model} is removed; {readable_bytes(freed)} are free again.", markup=False)
