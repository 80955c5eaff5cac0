"""`legato convert`."""

from __future__ import annotations

import logging
import re
from typing import Annotated

import typer

from legato.cli.console import out, say, tell
from legato.models import LocalModel, check_gguf, default_store
from legato.models.choice import file_stem
from legato.models.disk import readable_bytes


def command(
    model: Annotated[
        str,
        typer.Argument(help="Model to convert: a GGUF file, a catalogue name, or hf:owner/repo[:quant-or-file]."),
    ],
    weights: Annotated[str, typer.Argument(help="Weight type to convert to, such as Q8_0 or Q4_0.", metavar="TYPE")],
) -> None:
    """Keep a model in the store with another weight type too, under a name such as smollm2-Q8_0."""
    # The library's complaints are part of the sentence that says what went wrong.
    logging.basicConfig(level=logging.ERROR)
    # Imported here so that `legato --help` need not wait for the library.
    from legato.engine.quantize import convert, converted_bytes, weight_type

    type_name = weight_type(weights)
    store = default_store()
    source = store.resolve(model, progress=say)
    kind = check_gguf(source.path).file_type_name
    if kind == type_name:
        out.print(f"{source.name} has {type_name} weights already.", markup=False)
        return
    name = converted_name(source, kind, type_name)
    if (there := store.find_converted(name)) is not None:
        tell(
            f"{name} is there already ({readable_bytes(there.size_bytes)}, {there.path}); legato rm {name} removes it."
        )
        return
    say(f"Converting {source.name} from {kind or 'its weights'} to {type_name} …")

    made = store.add_converted(
        name,
        lambda target: convert(source.path, target, type_name),
        converted_bytes(source.size_bytes, kind, type_name),
        progress=say,
    )
    tell(
        f"{name} is at {made.path}: {readable_bytes(made.size_bytes)}, where {source.name} has "
        f"{readable_bytes(source.size_bytes)}. Serve it: legato serve {name}"
    )


def converted_name(source: LocalModel, kind: str | None, type_name: str) -> str:
    """What a converted model is called: its own name with the new weight type in place of `kind`, the old one."""
    name = source.name if source.source == "catalogue" else file_stem(source.path.name)
    if kind:
        name = re.sub(rf"[-._]{re.escape(kind)}$", "", name, flags=re.IGNORECASE)
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-.")
    return f"{name or 'model'}-{type_name}"
