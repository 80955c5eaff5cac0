"""The filters that templates may use: those of Jinja that make sense in plain text, each with a limit on what it takes.

Left out are the ones for HTML and URLs, and the ones that no published chat template uses (`wordwrap`, `truncate`,
`groupby`, `batch`, `pprint` and the like). A template that reaches one fails with "No filter named ...".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from types import MappingProxyType
from typing import Any

from jinja2 import filters as jinja
from jinja2.runtime import Context, Undefined
from jinja2.utils import pass_context

from legato.chat import methods, operators
from legato.chat.context import BoundedContext, bounded
from legato.chat.errors import TemplateError
from legato.chat.formatting import json_text, percent

_MOST_PRECISION = 300  # decimal digits of the largest float
_LONGEST_NAME = 1000
_LONGEST_TITLE = 2**20


def _text_filter(function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that takes its value as text."""
    return lambda context, value, *args, **kwargs: function(context, context.budget.text(value), *args, **kwargs)


def _items_filter(function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that walks, compares or hashes all that its value holds."""

    def run(context: BoundedContext, value: Any, *args: Any, **kwargs: Any) -> Any:
        value = context.budget.realize(value)
        context.budget.weigh(value)
        _check_names(*args, *kwargs.values())
        return function(context, value, *args, **kwargs)

    return run


def _lazy_filter(function: Callable[..., Iterable[Any]], names: int = 1) -> Callable[..., Any]:
    """One of Jinja's filters that return iterators; its first arguments are `names` names."""

    def run(context: BoundedContext, value: Any, *args: Any, **kwargs: Any) -> Any:
        _check_names(*args[:names], kwargs.get("attribute"))
        # None and what is undefined have no items, as in Jinja.
        return function(context, context.budget.watch(value) if value else (), *args, **kwargs)

    return run


def _check_names(*names: Any) -> None:
    for name in names:
        # The hash of nested tuples can take forever.
        if not isinstance(name, (str, int, type(None), Undefined)):
            raise TypeError(f"a name must be text, not a value of type {type(name).__name__}")
        # Jinja takes names apart at each full stop.
        if isinstance(name, str) and len(name) > _LONGEST_NAME:
            raise TemplateError(f"this model's chat template has a name of more than {_LONGEST_NAME:,} characters")


def _replace(context: BoundedContext, text: str, old: Any, new: Any, count: int | None = None) -> str:
    return methods.replace(context, text, context.budget.text(old), context.budget.text(new), count)


def _center(context: BoundedContext, text: str, width: int = 80) -> str:
    return methods.pad(context, text, width)


def _indent(context: BoundedContext, text: str, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    lines = methods.line_count(text) + 1
    context.budget.expect_items(lines)
    context.budget.expect_text(len(text) + lines * (len(width) if isinstance(width, str) else width))
    return jinja.do_indent(text, width, first, blank)


def _title(context: BoundedContext, text: str) -> str:
    if len(text) > _LONGEST_TITLE:
        raise TemplateError(f"this model's chat template uses title on more than {_LONGEST_TITLE:,} characters")
    return jinja.do_title(text)


def _escape(context: BoundedContext, text: str) -> str:
    # Plain text, not Jinja's Markup, which would escape all that it later meets.
    return str(jinja.FILTERS["escape"](text))


def _join(context: BoundedContext, value: Any, d: str = "", attribute: str | int | None = None) -> str:
    items = context.budget.items(value)
    if attribute is not None:
        _check_names(attribute)
        items = list(map(jinja.make_attrgetter(context.environment, attribute), items))
    return methods.join(context, context.budget.text(d), [context.budget.text(item) for item in items])


def _sum(context: BoundedContext, value: Any, attribute: str | int | None = None, start: Any = 0) -> Any:
    _check_names(attribute)
    items = context.budget.items(value)
    if attribute is not None:
        items = list(map(jinja.make_attrgetter(context.environment, attribute), items))
    for item in items:
        start = operators.binary(context, "+", start, item)
    return start


def _first(context: BoundedContext, value: Any) -> Any:
    for item in value:
        return item
    return context.environment.undefined("there is no first item: the list is empty")


def _last(context: BoundedContext, value: Any) -> Any:
    for item in reversed(context.budget.realize(value)):
        return item
    return context.environment.undefined("there is no last item: the list is empty")


def _reverse(context: BoundedContext, value: Any) -> Any:
    return value[::-1] if isinstance(value, str) else context.budget.items(value)[::-1]


def _items(context: BoundedContext, value: Any) -> Any:
    if isinstance(value, Undefined):
        return []
    if not isinstance(value, dict):
        raise TypeError("items needs a dict")
    return value.items()


def _attribute(context: BoundedContext, value: Any, name: str) -> Any:
    return context.environment.getattr(value, context.budget.text(name))


def _number(value: Any) -> Any:
    if not isinstance(value, (int, float, Undefined)):
        raise TypeError(f"a number is needed, not a value of type {type(value).__name__}")
    return value


def _round(context: BoundedContext, value: Any, precision: int = 0, method: Any = "common") -> float:
    if abs(precision) > _MOST_PRECISION:
        raise TemplateError(f"this model's chat template rounds to more than {_MOST_PRECISION} digits")
    return jinja.do_round(_number(value), precision, method)


def _to_int(context: BoundedContext, value: Any, default: int = 0, base: int = 10) -> int:
    return jinja.do_int(value, default, base)


def _format(context: BoundedContext, text: str, *args: Any, **kwargs: Any) -> str:
    if args and kwargs:
        raise TypeError("format takes either positional or named values")
    return percent(context, text, kwargs or args)


def _unique(context: BoundedContext, value: Any, case_sensitive: bool = False, attribute: Any = None) -> list[Any]:
    return list(jinja.sync_do_unique(context.environment, value, case_sensitive, attribute))


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda context, *args, **kwargs: function(*args, **kwargs)


def _with_environment(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda context, *args, **kwargs: function(context.environment, *args, **kwargs)


def _counted(function: Callable[..., Any]) -> Callable[..., Any]:
    # Taking the context also keeps the compiler from running a filter on constants, before there is a budget.
    @pass_context
    @wraps(function)
    def run(context: Context, *args: Any, **kwargs: Any) -> Any:
        within = bounded(context)
        within.budget.tick()
        return within.budget.keep(function(within, *args, **kwargs))

    return run


_FILTERS: dict[str, Callable[..., Any]] = {
    "abs": lambda context, value: abs(_number(value)),
    "attr": _attribute,
    "capitalize": _text_filter(lambda _, text: text.capitalize()),
    "center": _text_filter(_center),
    "count": lambda context, value: len(value),
    "d": _plain(jinja.do_default),
    "default": _plain(jinja.do_default),
    "dictsort": _items_filter(_plain(jinja.do_dictsort)),
    "e": _text_filter(_escape),
    "escape": _text_filter(_escape),
    "first": _first,
    "float": _plain(jinja.do_float),
    "format": _text_filter(_format),
    "indent": _text_filter(_indent),
    "int": _to_int,
    "items": _items,
    "join": _join,
    "last": _last,
    "length": lambda context, value: len(value),
    "list": lambda context, value: context.budget.items(value),
    "lower": _text_filter(lambda _, text: text.lower()),
    "map": _lazy_filter(jinja.sync_do_map),
    "max": _items_filter(_with_environment(jinja.do_max)),
    "min": _items_filter(_with_environment(jinja.do_min)),
    "reject": _lazy_filter(jinja.sync_do_reject),
    "rejectattr": _lazy_filter(jinja.sync_do_rejectattr, names=2),
    "replace": _text_filter(_replace),
    "reverse": _reverse,
    "round": _round,
    "safe": _text_filter(lambda _, text: text),
    "select": _lazy_filter(jinja.sync_do_select),
    "selectattr": _lazy_filter(jinja.sync_do_selectattr, names=2),
    "sort": _items_filter(_with_environment(jinja.do_sort)),
    "string": _text_filter(lambda _, text: text),
    "sum": _sum,
    "title": _text_filter(_title),
    "tojson": json_text,
    "trim": _text_filter(methods.strip),
    "unique": _items_filter(_unique),
    "upper": _text_filter(lambda _, text: text.upper()),
}

FILTERS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {name: _counted(function) for name, function in _FILTERS.items()}
)
"""Jinja's filter table for chat templates."""
