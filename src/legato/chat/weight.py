"""How much work it is to walk the whole of a value: print it, compare it, hash it, write it as JSON."""

from __future__ import annotations

from collections.abc import Callable, Collection, ItemsView, KeysView, ValuesView

from jinja2.runtime import Undefined

from legato.chat.errors import TemplateError

ELEMENT = 16
"""What one element weighs, in characters: an empty string in a list costs about as much to visit as this much text."""

MOST_DEPTH = 100
"""The deepest nesting that is walked: some of Python's own walks are recursive in C and have no limit."""

_CALL_EVERY = 1024
_LEAVES = (int, float, type(None), Undefined)
_COLLECTIONS = (list, tuple, range, KeysView, ValuesView, ItemsView)


def weigh(value: object, most: int, pause: Callable[[], None]) -> int:
    """Counts the characters and elements that a walk over all of `value` meets.

    A value that is reached twice counts twice, as it does for whoever prints it: `[a, a]` of `[b, b]` of ... is a small
    object and an endless text.

    Args:
        value: Plain data: text, numbers, none, lists, tuples, dicts and their views.
        most: The weight, in characters, from which on the value is refused.
        pause: Called every thousand elements; may raise to end the walk.

    Returns:
        The weight in characters, each element counted as `ELEMENT` of them.

    Raises:
        TemplateError: The value is heavier than `most`, nested deeper than `MOST_DEPTH`, or not plain data.
    """
    total = ELEMENT
    steps = 0
    level: list[object] = [value]
    for _ in range(MOST_DEPTH):
        below: list[object] = []
        for item in level:
            steps += 1
            if steps % _CALL_EVERY == 0:
                pause()
            if isinstance(item, str):
                total += len(item)
            elif not isinstance(item, _LEAVES):
                children = _children(item)
                total += ELEMENT * len(children)
                # Asked before they are copied: a list of a million lists must not become a list of 10^12 entries.
                if total <= most:
                    below.extend(children)
            if total > most:
                raise TemplateError(f"a chat template cannot walk over a value of more than {most:,} characters")
        if not below:
            return total
        level = below
    raise TemplateError(f"a chat template cannot walk over a value that is nested deeper than {MOST_DEPTH} times")


def _children(item: object) -> Collection[object]:
    if isinstance(item, dict):
        return [*item.keys(), *item.values()]
    if isinstance(item, _COLLECTIONS):
        return item
    raise TemplateError(
        "a chat template can print and compare text, numbers, lists and dicts, "
        f"not a value of type {type(item).__name__}"
    )
