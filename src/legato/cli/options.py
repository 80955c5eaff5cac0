"""Command-line options made from the settings' declaration, so that nothing is declared twice."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
from pydantic.fields import FieldInfo

from legato.settings import Settings, flag_name


def with_settings_options(command: Callable[[dict[str, Any]], None]) -> Callable[..., None]:
    """A command that takes every setting as an option and is given those that were said, by field name."""

    def run(**values: Any) -> None:
        command({name: value for name, value in values.items() if value not in (None, [], ())})

    parameters = [_parameter(name, field) for name, field in Settings.model_fields.items()]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__doc__ = inspect.getdoc(command)
    return run


def _parameter(name: str, field: FieldInfo) -> inspect.Parameter:
    parts = get_args(field.annotation)
    is_open = type(None) in parts
    kind: Any = parts[0] if is_open else field.annotation
    choices = get_args(kind) if get_origin(kind) is Literal else ()
    text = field.description or ""
    if field.default not in (None, (), False):
        text += f" Default: {field.default}."
    if name == "model":
        shown: Any = typer.Argument(help=text, metavar="MODEL")
    else:
        flag = flag_name(name)
        if is_open and kind is bool:
            # A switch that may be left open can be turned off, too.
            flag += f"/--no-{flag.removeprefix('--')}"
        shown = typer.Option(flag, help=text, metavar="|".join(choices) or None)
    # The settings check choices and numbers, for all their sources in the same words.
    simple: Any = list[str] if get_origin(kind) is tuple else str if choices else kind
    annotation = Annotated[simple | None, shown]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
