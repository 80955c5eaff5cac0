"""Turns a parsed template into one whose every costly step goes through an operation that has a budget.

Jinja's sandbox lets its owner intercept calls, attributes, filters and arithmetic. It compiles the rest to plain
Python: loops, `~`, comparisons, slices, and lists that a template writes down. Those are replaced here, in the syntax
tree, by calls of the environment's `op_...` attributes, which no template can name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from jinja2 import nodes
from jinja2.visitor import NodeTransformer

from legato.chat.errors import TemplateError

_BYTES_PER_CHARACTER = 4
_MOST_NODES = 20_000

_ALLOWED = (
    *(nodes.Template, nodes.Output, nodes.TemplateData, nodes.Scope, nodes.For, nodes.If, nodes.Break, nodes.Continue),
    *(nodes.Macro, nodes.CallBlock, nodes.FilterBlock, nodes.With, nodes.Assign, nodes.AssignBlock, nodes.NSRef),
    *(nodes.Name, nodes.Const, nodes.List, nodes.Tuple, nodes.Dict, nodes.Pair, nodes.Keyword, nodes.CondExpr),
    *(nodes.Filter, nodes.Test, nodes.Call, nodes.Getattr, nodes.Getitem, nodes.Slice, nodes.Concat),
    *(nodes.Compare, nodes.Operand, nodes.And, nodes.Or, nodes.Not, nodes.Neg, nodes.Pos),
    *(nodes.Add, nodes.Sub, nodes.Mul, nodes.Div, nodes.FloorDiv, nodes.Mod, nodes.Pow),
)


def rewrite(tree: nodes.Template) -> None:
    """Rewrites a template's syntax tree in place.

    Raises:
        TemplateError: The template does what chat templates do not (includes, imports, inheritance, autoescaping), or
            is far too large.
    """
    for count, node in enumerate(tree.find_all(nodes.Node)):
        if count == _MOST_NODES:
            # Code is made of each, a hundred times as large. The longest published templates have a fifth of this.
            raise TemplateError(f"this model's chat template has more than {_MOST_NODES:,} steps; use another one")
        if not isinstance(node, _ALLOWED):
            raise TemplateError(
                f"this model's chat template does not compile: line {node.lineno}: "
                f"{type(node).__name__.lower()} is not available in chat templates"
            )
    _Rewriter().visit(tree)


class _Rewriter(NodeTransformer):
    def get_visitor(self, node: nodes.Node) -> Callable[..., Any] | None:
        """The step for a node whose children are rewritten already."""
        step = _STEPS.get(type(node))
        return None if step is None else lambda node: step(self.generic_visit(node))


def _for(node: nodes.For) -> nodes.Node:
    node.body.insert(0, _statement(node, "op_turn"))
    if node.test is not None:
        # The condition of a loop runs for every item, also when the body never does.
        node.test = _placed(nodes.And(_call(node, "op_turn"), node.test), node)
    return node


def _output(node: nodes.Output) -> list[nodes.Node]:
    # What a macro or a block prints is gathered unseen; values are counted one by one, the text between them here.
    length = sum(len(child.data) for child in node.nodes if isinstance(child, nodes.TemplateData))
    count = _statement(node, "op_turn", nodes.Const(_BYTES_PER_CHARACTER * length))
    return [count, node] if length else [node]


def _compare(node: nodes.Compare) -> nodes.Node:
    operands: tuple[Any, ...] = (node, *node.ops)
    for operand in operands:
        if not isinstance(operand.expr, nodes.Const):
            operand.expr = _call(node, "op_comparable", operand.expr)
    return node


def _concat(node: nodes.Concat) -> nodes.Node:
    return _call(node, "op_concatenate", *node.nodes)


def _getitem(node: nodes.Getitem) -> nodes.Node:
    if not isinstance(node.arg, nodes.Slice):
        return node
    bounds = (node.arg.start, node.arg.stop, node.arg.step)
    return _call(node, "op_cut", node.node, *(bound or nodes.Const(None) for bound in bounds))


def _pair(node: nodes.Pair) -> nodes.Node:
    if not isinstance(node.key, nodes.Const):
        node.key = _call(node, "op_key", node.key)
    return node


def _collection(node: nodes.Literal) -> nodes.Node:
    # A tuple of names is also what a loop or an assignment stores into.
    return node if isinstance(node, nodes.Tuple) and node.ctx != "load" else _call(node, "op_made", node)


_STEPS: Mapping[type[nodes.Node], Callable[..., Any]] = MappingProxyType(
    {
        nodes.For: _for,
        nodes.Output: _output,
        nodes.Compare: _compare,
        nodes.Concat: _concat,
        nodes.Getitem: _getitem,
        nodes.Pair: _pair,
        nodes.Dict: _collection,
        nodes.List: _collection,
        nodes.Tuple: _collection,
    }
)


def _statement(place: nodes.Node, operation: str, *args: nodes.Expr) -> nodes.ExprStmt:
    return nodes.ExprStmt(_call(place, operation, *args), lineno=place.lineno, environment=place.environment)


def _call(place: nodes.Node, operation: str, *args: nodes.Expr) -> nodes.Expr:
    return _placed(nodes.Call(nodes.EnvironmentAttribute(operation), list(args), [], None, None), place)


def _placed(node: nodes.Expr, place: nodes.Node) -> nodes.Expr:
    # New nodes get the place of the old one; what was there before keeps its own.
    for new in (node, *node.iter_child_nodes()):
        new.lineno = new.lineno or place.lineno
        new.environment = place.environment
    return node
