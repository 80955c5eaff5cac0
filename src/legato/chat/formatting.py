"""Values to text: two kinds of formats, JSON, dates. Each of them can be told to write a gigabyte of spaces."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from jinja2.sandbox import SandboxedFormatter

from legato.chat.context import BoundedContext
from legato.chat.errors import TemplateError

_MOST_WIDTH = 1000
_LONGEST_FORMAT = 2**20
_NUMBER_LENGTH = 400  # "%f" of the largest float has 316 characters
_MOST_PADDING = 16  # of JSON: the indent and the separators
_MOST_DATE_FORMAT = 1000

# Keys with parentheses are left out: Python counts the pairs in them, and a width behind could be missed.
_PERCENT = re.compile(r"%(?:\([^()]*\))?[#0\- +]*([0-9]*)(?:\.([0-9]*))?[hlL]?[a-zA-Z%]")
_DIGITS = re.compile(r"[0-9]+")


def percent(context: BoundedContext, template: str, values: Any) -> str:
    """Computes `template % values`."""
    budget = context.budget
    _check_length(template)
    heaviest = budget.weigh(values)
    length = len(template)
    start = template.find("%")
    while start >= 0:
        match = _PERCENT.match(template, start)
        if match is None:
            raise TemplateError("this model's chat template uses a %-format that is not supported")
        width, precision = (_width(digits or "0") for digits in match.groups())
        length += width + precision + _NUMBER_LENGTH + heaviest
        budget.expect_text(length)
        budget.tick()
        start = template.find("%", match.end())
    return budget.keep(str(template % values))


def brace_format(context: BoundedContext, template: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Computes `template.format(*args, **kwargs)`."""
    _check_length(template)
    return context.budget.keep(str(_BoundedFormatter(context).vformat(template, args, kwargs)))


class _BoundedFormatter(SandboxedFormatter):
    """Looks fields up as the template itself would, and limits each field and all of them together."""

    def __init__(self, context: BoundedContext) -> None:
        super().__init__(context.environment)
        self._budget = context.budget
        self._length = 0

    def convert_field(self, value: Any, conversion: str | None) -> Any:
        self._budget.weigh(value)
        return super().convert_field(value, conversion)

    def format_field(self, value: Any, format_spec: str) -> str:
        if not format_spec:
            text = self._budget.text(value)
        elif isinstance(value, (str, int, float)):
            for digits in _DIGITS.findall(format_spec):
                _width(digits)
            text = format(value, format_spec)
        else:
            raise TypeError(f"cannot format a value of type {type(value).__name__} with {format_spec[:20]!r}")
        self._length += len(text)
        self._budget.expect_text(self._length)
        self._budget.spend(len(text))
        return text


def _check_length(template: str) -> None:
    if len(template) > _LONGEST_FORMAT:
        raise TemplateError(f"this model's chat template has a format of more than {_LONGEST_FORMAT:,} characters")


def _width(digits: str) -> int:
    if len(digits) > len(str(_MOST_WIDTH)) or int(digits) > _MOST_WIDTH:
        raise TemplateError(f"this model's chat template formats a field wider than {_MOST_WIDTH:,} characters")
    return int(digits)


def json_text(
    context: BoundedContext,
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Writes a value as JSON, with the arguments and the order of them that Hugging Face's `tojson` has.

    Unlike Jinja's own it does not escape `<`, `>`, `&` and `'` for HTML, and keeps text that is not ASCII.
    """
    budget = context.budget
    budget.weigh(value)
    for padding in (indent, *(separators or ())):
        if (len(padding) if isinstance(padding, str) else padding or 0) > _MOST_PADDING:
            raise TemplateError(f"this model's chat template pads JSON by more than {_MOST_PADDING} characters")
    encoder = json.JSONEncoder(
        ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys, allow_nan=True
    )
    pieces: list[str] = []
    length = 0
    for piece in encoder.iterencode(budget.realize(value)):
        pieces.append(piece)
        length += len(piece)
        budget.expect_text(length)
        budget.spend(len(piece))
    return budget.keep("".join(pieces))


def date_text(context: BoundedContext, template: str) -> str:
    """Writes the time of the rendering with a strftime format."""
    if len(template) > _MOST_DATE_FORMAT:
        raise TemplateError(
            f"this model's chat template has a date format of more than {_MOST_DATE_FORMAT:,} characters"
        )
    return context.budget.keep(context.now.strftime(template))
