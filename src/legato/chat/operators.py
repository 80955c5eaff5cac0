"""The operators of the template language, each with a limit on what it makes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from jinja2.runtime import Undefined

from legato.chat.context import BoundedContext
from legato.chat.errors import TemplateError
from legato.chat.formatting import percent

_MOST_BITS = 64
_OPERANDS = (str, int, float, list, tuple, Undefined)
_KEYS = (str, int, float, type(None))


def _add(context: BoundedContext, left: Any, right: Any) -> Any:
    if isinstance(left, str) and isinstance(right, str):
        context.budget.expect_text(len(left) + len(right))
    elif isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        context.budget.expect_items(len(left) + len(right))
    return left + right


def _multiply(context: BoundedContext, left: Any, right: Any) -> Any:
    for value, times in ((left, right), (right, left)):
        if isinstance(times, int) and isinstance(value, str):
            context.budget.expect_text(len(value) * times)
        elif isinstance(times, int) and isinstance(value, (list, tuple)):
            context.budget.expect_items(len(value) * times)
    return left * right


def _power(context: BoundedContext, left: Any, right: Any) -> Any:
    if isinstance(left, int) and isinstance(right, int) and abs(left) > 1 and right > _MOST_BITS:
        raise TemplateError(f"this model's chat template computes a number of more than {_MOST_BITS} bits")
    return left**right


def _modulo(context: BoundedContext, left: Any, right: Any) -> Any:
    return percent(context, left, right) if isinstance(left, str) else left % right


_BINARY: Mapping[str, Callable[[BoundedContext, Any, Any], Any]] = MappingProxyType(
    {
        "+": _add,
        "-": lambda _, left, right: operator.sub(left, right),
        "*": _multiply,
        "/": lambda _, left, right: operator.truediv(left, right),
        "//": lambda _, left, right: operator.floordiv(left, right),
        "**": _power,
        "%": _modulo,
    }
)

BINARY_OPERATORS = frozenset(_BINARY)
"""The operators that `binary` knows: all that the template language has."""


def binary(context: BoundedContext, symbol: str, left: Any, right: Any) -> Any:
    """Computes `left symbol right` for text, numbers and lists."""
    for value in (left, right):
        # Others have operators of their own: the views of a dict make sets, and hash what they hold.
        if not (isinstance(value, _OPERANDS) or value is None or (symbol == "%" and isinstance(left, str))):
            raise TypeError(f"cannot compute with a value of type {type(value).__name__}")
    return context.budget.keep(_BINARY[symbol](context, left, right))


def concatenate(context: BoundedContext, *values: Any) -> str:
    """Computes `a ~ b ~ ...`."""
    texts = [context.budget.text(value) for value in values]
    context.budget.expect_text(sum(map(len, texts)))
    return context.budget.keep("".join(texts))


def cut(context: BoundedContext, value: Any, start: Any, stop: Any, step: Any) -> Any:
    """Computes `value[start:stop:step]`."""
    if not isinstance(value, (str, list, tuple, range, Undefined)):
        raise TypeError(f"cannot slice a value of type {type(value).__name__}")
    return context.budget.keep(value[start:stop:step])


def comparable(context: BoundedContext, value: Any) -> Any:
    """Returns an operand of a comparison, once it is known that comparing it is affordable."""
    value = context.budget.realize(value)
    if not isinstance(value, str):
        context.budget.weigh(value)
    return value


def key(context: BoundedContext, value: Any) -> Any:
    """Returns a key of a dict, if it is text, a number or none: the hash of nested tuples can take forever."""
    if not isinstance(value, _KEYS):
        raise TypeError(f"a key must be text or a number, not a value of type {type(value).__name__}")
    return value


def made(context: BoundedContext, value: Any) -> Any:
    """Counts a list, tuple or dict that the template wrote down."""
    return context.budget.keep(value)


def turn(context: BoundedContext, size: int = 0) -> bool:
    """Counts one turn of a loop, or `size` characters of text that the template prints as they are."""
    context.budget.spend(size)
    return True
