"""The tests that templates may use (`x is defined`, `role is equalto "user"`), each with a limit on what it takes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import wraps
from types import MappingProxyType
from typing import Any

from jinja2 import tests as jinja
from jinja2.runtime import Context
from jinja2.utils import pass_context

from legato.chat.context import BoundedContext, bounded
from legato.chat.operators import comparable

_SHAPES = (
    "boolean callable defined false float integer iterable mapping none number sameas sequence string true undefined"
)
_JINJA: Mapping[str, Any] = MappingProxyType(jinja.TESTS)
_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = MappingProxyType(
    {
        **dict.fromkeys(("eq", "equalto", "=="), operator.eq),
        **dict.fromkeys(("ne", "!="), operator.ne),
        **dict.fromkeys(("gt", "greaterthan", ">"), operator.gt),
        **dict.fromkeys(("ge", ">="), operator.ge),
        **dict.fromkeys(("lt", "lessthan", "<"), operator.lt),
        **dict.fromkeys(("le", "<="), operator.le),
        "in": lambda value, values: value in values,
    }
)


def _shape(function: Callable[..., Any]) -> Callable[..., bool]:
    return lambda context, *args: function(*args)


def _comparison(function: Callable[[Any, Any], bool]) -> Callable[..., bool]:
    return lambda context, left, right: function(comparable(context, left), comparable(context, right))


def _remainder(context: BoundedContext, value: Any, divisor: Any) -> Any:
    # Jinja's own would let a text be the left side of "%", which is a format with any width.
    for number in (value, divisor):
        if not isinstance(number, (int, float)):
            raise TypeError(f"a number is needed, not a value of type {type(number).__name__}")
    return value % divisor


_TESTS: dict[str, Callable[..., Any]] = {
    **{name: _shape(_JINJA[name]) for name in _SHAPES.split()},
    **{name: _comparison(function) for name, function in _COMPARISONS.items()},
    "divisibleby": lambda context, value, divisor: _remainder(context, value, divisor) == 0,
    "even": lambda context, value: _remainder(context, value, 2) == 0,
    "odd": lambda context, value: _remainder(context, value, 2) == 1,
    "lower": lambda context, value: context.budget.text(value).islower(),
    "upper": lambda context, value: context.budget.text(value).isupper(),
}


def _counted(function: Callable[..., Any]) -> Callable[..., bool]:
    # Taking the context also keeps the compiler from running a test on constants, before there is a budget.
    @pass_context
    @wraps(function)
    def run(context: Context, *args: Any) -> bool:
        within = bounded(context)
        within.budget.tick()
        return bool(function(within, *args))

    return run


TESTS: Mapping[str, Callable[..., bool]] = MappingProxyType(
    {name: _counted(function) for name, function in _TESTS.items()}
)
"""Jinja's test table for chat templates."""
