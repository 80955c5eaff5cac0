"""The sandbox that chat templates run in.

A template is code from a model file, so it must reach nothing: jinja2's immutable sandbox keeps it from Python's
internals, from files and from other templates. Its appetite is bounded too (the size of a product, of a range and of
the output), but not airtight: whoever runs a model file lets it use this machine's memory and time anyway.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn

from jinja2 import Undefined
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, LoopControlExtension
from jinja2.nodes import Node, Scope
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from legato.chat.message_error import TemplateRefusalError

LARGEST_PRODUCT = 2**20
"""Longest text or list that `*` may make, and largest exponent that `**` may have."""


class GenerationTag(Extension):
    """Renders `{% generation %}…{% endgeneration %}`, which marks the assistant's words for training, as its body."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it so

    def parse(self, parser: Parser) -> Node:
        """Parse the tag and all up to its end."""
        line = next(parser.stream).lineno
        return Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


class ChatEnvironment(ImmutableSandboxedEnvironment):
    """Jinja as published chat templates expect it: Hugging Face's options, helpers and filters."""

    intercepted_binops = frozenset({"*", "**"})

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[LoopControlExtension, GenerationTag])
        # Jinja's playthings; templates have no use for them, and they reach functions of Python's.
        for name in ("lipsum", "cycler", "joiner"):
            del self.globals[name]
        self.globals["raise_exception"] = _raise_exception
        self.filters["tojson"] = _tojson

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Multiply or raise, unless the result would be huge."""
        sequences = [value for value in (left, right) if isinstance(value, str | list | tuple)]
        numbers = [value for value in (left, right) if isinstance(value, int | float)]
        if operator == "**":
            size = abs(right) if isinstance(right, int | float) else 0
        else:
            size = len(sequences[0]) * numbers[0] if sequences and numbers else 0
        if size > LARGEST_PRODUCT:
            raise SecurityError(f"a result of {operator} would be too large")
        return super().call_binop(context, operator, left, right)

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Look up an attribute; an internal one is an error at once, not an undefined value."""
        return _refuse_unsafe(super().getattr(obj, attribute))

    def getitem(self, obj: Any, argument: Any) -> Any:
        """Look up an item; an internal one is an error at once, not an undefined value."""
        return _refuse_unsafe(super().getitem(obj, argument))


def _refuse_unsafe(value: Any) -> Any:
    if isinstance(value, Undefined) and value._undefined_exception is SecurityError:
        value._fail_with_undefined_error()
    return value


def _raise_exception(message: Any = "") -> NoReturn:
    raise TemplateRefusalError(str(message)[:500] or "it does not say why")


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as Hugging Face's templates get it: characters as they are, nothing escaped for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
