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
    kind = _kind(field)
    text = field.description or ""
    if field.default not in (None, (), False):
        text += f" Default: {field.default}."
    if name == "model":
        shown: Any = typer.Argument(help=text, metavar="MODEL", show_default=False)
    else:
        choices = get_args(kind) if get_origin(kind) is Literal else ()
        shown = typer.Option(_spelled(name, field), help=text, show_default=False, metavar="|".join(choices) or None)
    # The settings check choices and numbers, for all their sources in the same words.
    optional: Any = _simple(kind) | None
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[optional, shown])


def _spelled(name: str, field: FieldInfo) -> str:
    """The option; a switch that may be left open can be turned off, too."""
    flag = flag_name(name)
    is_open_switch = _is_optional(field) and _kind(field) is bool
    return f"{flag}/--no-{flag.removeprefix('--')}" if is_open_switch else flag


def _kind(field: FieldInfo) -> Any:
    """The field's type without the None that leaves it open."""
    return next((kind for kind in get_args(field.annotation) if _is_optional(field)), field.annotation)


def _is_optional(field: FieldInfo) -> bool:
    return type(None) in get_args(field.annotation)


def _simple(kind: Any) -> Any:
    if get_origin(kind) is tuple:
        return list[str]
    return str if get_origin(kind) is Literal else kind
