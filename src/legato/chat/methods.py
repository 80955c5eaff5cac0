"""The methods that templates may call on text, lists, dicts and loops, by name. There are no others.

Python's own are called only where their cost is at most a small multiple of what they are given; the others are
foreseen first. Left out is what templates have no use for and what makes bytes, tables or wide texts: `encode`,
`translate`, `maketrans`, `expandtabs`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from jinja2.runtime import LoopContext

from legato.chat.budget import MOST_ITEMS
from legato.chat.context import BoundedContext
from legato.chat.errors import TemplateError
from legato.chat.formatting import brace_format
from legato.chat.operators import key

_MOST_COMPARISONS = 2**30
_LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"


@dataclass(frozen=True)
class Method:
    """A method of a value, looked up and not called yet.

    Not Python's own bound method, which would have attributes of its own and could be called without a budget.

    Attributes:
        owner: The value.
        run: What to call with the context, the value and the template's arguments.
    """

    owner: Any
    run: Callable[..., Any]

    def __call__(self, context: BoundedContext, *args: Any, **kwargs: Any) -> Any:
        """Calls the method, once its arguments are known to be plain data of a bearable size."""
        budget = context.budget
        args = tuple(budget.realize(value) for value in args)
        budget.weigh((args, kwargs))
        return budget.keep(self.run(context, self.owner, *args, **kwargs))


def find_method(owner: object, name: str) -> Method | None:
    """The method `name` of a value, or none where templates have no such method."""
    for kind, methods in _METHODS:
        if isinstance(owner, kind) and name in methods:
            return Method(owner, methods[name])
    return None


def strip(context: BoundedContext, text: str, chars: str | None = None, side: str = "strip") -> str:
    """Computes `text.strip(chars)`."""
    _expect_comparisons(text, chars)
    stripped: str = getattr(text, side)(chars)
    return stripped


def replace(context: BoundedContext, text: str, old: str, new: str, count: int | None = None) -> str:
    """Computes `text.replace(old, new, count)`."""
    count = -1 if count is None else count
    found = text.count(old)
    times = found if count < 0 else min(count, found)
    context.budget.expect_text(len(text) + times * (len(new) - len(old)))
    return text.replace(old, new, count)


def pad(context: BoundedContext, text: str, width: int, fill: str = " ", side: str = "center") -> str:
    """Computes `text.center(width, fill)`."""
    context.budget.expect_text(width)
    padded: str = getattr(text, side)(width, fill)
    return padded


def line_count(text: str) -> int:
    """The number of line ends in a text, by `str.splitlines`'s notion of them, or a few more."""
    return sum(map(text.count, _LINE_ENDS))


def join(context: BoundedContext, separator: str, pieces: list[str]) -> str:
    """Computes `separator.join(pieces)`."""
    context.budget.expect_text(sum(map(len, pieces)) + len(separator) * (len(pieces) - 1))
    return separator.join(pieces)


def _join_items(context: BoundedContext, separator: str, items: Any) -> str:
    return join(context, separator, context.budget.items(items))


def _zero_fill(context: BoundedContext, text: str, width: int) -> str:
    context.budget.expect_text(width)
    return text.zfill(width)


def _split(context: BoundedContext, text: str, sep: str | None = None, maxsplit: int = -1) -> list[str]:
    return _counted(context, text, text.split(sep, _most_splits(maxsplit)))


def _split_from_right(context: BoundedContext, text: str, sep: str | None = None, maxsplit: int = -1) -> list[str]:
    _expect_comparisons(text, sep)
    return _counted(context, text, text.rsplit(sep, _most_splits(maxsplit)))


def _split_lines(context: BoundedContext, text: str, keepends: bool = False) -> list[str]:
    context.budget.expect_items(line_count(text))
    return _counted(context, text, text.splitlines(keepends))


def _most_splits(maxsplit: int) -> int:
    # One more than may be made, so that a text with too many pieces is refused and not cut short.
    return MOST_ITEMS if maxsplit < 0 else min(maxsplit, MOST_ITEMS)


def _counted(context: BoundedContext, text: str, pieces: list[str]) -> list[str]:
    context.budget.spend(4 * len(text))
    return pieces


def _from_right(name: str) -> Callable[..., Any]:
    def search(context: BoundedContext, text: str, part: str, *span: int) -> Any:
        _expect_comparisons(text, part)
        return getattr(text, name)(part, *span)

    return search


def _expect_comparisons(text: str, other: str | None) -> None:
    # Stripping characters and searching from the right compare every character with every other.
    if other is not None and len(text) * len(other) > _MOST_COMPARISONS:
        raise TemplateError("this model's chat template searches a long text for another long text")


def _plain(kind: type, name: str) -> Callable[..., Any]:
    function = getattr(kind, name)
    return lambda context, owner, *args, **kwargs: function(owner, *args, **kwargs)


def _sided(function: Callable[..., str], side: str) -> Callable[..., str]:
    return lambda context, text, *args: function(context, text, *args, side=side)


def _items_search(kind: type, name: str) -> Callable[..., Any]:
    function = getattr(kind, name)

    def search(context: BoundedContext, owner: Any, *args: Any) -> Any:
        context.budget.weigh(owner)
        return function(owner, *args)

    return search


def _dict_get(context: BoundedContext, owner: dict[Any, Any], name: Any, default: Any = None) -> Any:
    return owner.get(key(context, name), default)


def _format(context: BoundedContext, template: str, *args: Any, **kwargs: Any) -> str:
    return brace_format(context, template, args, kwargs)


_PLAIN_TEXT_METHODS = (
    "capitalize casefold count endswith find index isalnum isalpha isascii isdecimal isdigit isidentifier islower "
    "isnumeric isspace istitle isupper lower partition removeprefix removesuffix startswith swapcase title upper"
)
_TEXT_METHODS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        **{name: _plain(str, name) for name in _PLAIN_TEXT_METHODS.split()},
        **{name: _sided(strip, name) for name in ("strip", "lstrip", "rstrip")},
        **{name: _sided(pad, name) for name in ("center", "ljust", "rjust")},
        **{name: _from_right(name) for name in ("rfind", "rindex", "rpartition")},
        "zfill": _zero_fill,
        "split": _split,
        "rsplit": _split_from_right,
        "splitlines": _split_lines,
        "replace": replace,
        "join": _join_items,
        "format": _format,
    }
)
_DICT_METHODS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {**{name: _plain(dict, name) for name in ("items", "keys", "values", "copy")}, "get": _dict_get}
)
_METHODS: tuple[tuple[type, Mapping[str, Callable[..., Any]]], ...] = (
    (str, _TEXT_METHODS),
    (dict, _DICT_METHODS),
    (list, MappingProxyType({name: _items_search(list, name) for name in ("index", "count")})),
    (tuple, MappingProxyType({name: _items_search(tuple, name) for name in ("index", "count")})),
    (LoopContext, MappingProxyType({name: _plain(LoopContext, name) for name in ("cycle", "changed")})),
)
