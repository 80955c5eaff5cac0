"""The `{% generation %}` tag, with which templates mark for training what the assistant wrote."""

from __future__ import annotations

from jinja2 import Environment, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser


class GenerationTag(Extension):
    """Renders `{% generation %}...{% endgeneration %}` as its body; variables set inside stay inside."""

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self.tags = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node:
        """Parses the tag and all up to its end."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)
