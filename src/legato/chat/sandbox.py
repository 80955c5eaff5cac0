"""The environment that runs chat templates: what they can name, look up and call, and nothing else.

A template reaches the values it is given (plain data), the operations listed in `operators`, `methods`, `filters` and
`predicates`, and the few functions below. Attributes are looked up in those lists, never with `getattr`, so there is no
way from a value to Python's internals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from jinja2.exceptions import SecurityError
from jinja2.runtime import Context, LoopContext, Macro, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment, safe_range
from jinja2.utils import Namespace, pass_context

from legato.chat import operators
from legato.chat.context import BoundedContext, bounded
from legato.chat.errors import TemplateRefusalError
from legato.chat.filters import FILTERS
from legato.chat.formatting import date_text
from legato.chat.generation import GenerationTag
from legato.chat.methods import Method, find_method
from legato.chat.predicates import TESTS

_LONGEST_REASON = 500
_ARGUMENT_BYTES = 64
_KEYS = (str, int, float, type(None))
_SUBSCRIPTABLE = (dict, list, tuple, str, range)
_LOOP_VALUES = frozenset(
    ("index", "index0", "revindex", "revindex0", "first", "last", "length", "depth", "depth0", "previtem", "nextitem")
)


@dataclass(frozen=True)
class Operation:
    """Something that templates call and that needs the context.

    Attributes:
        run: What to call, with the context before the template's arguments.
    """

    run: Callable[..., Any]

    def __call__(self, context: BoundedContext, *args: Any, **kwargs: Any) -> Any:
        """Calls it."""
        return self.run(context, *args, **kwargs)


@pass_context
def _printed(context: Context, value: Any) -> str:
    budget = bounded(context).budget
    return budget.keep(budget.text(value))


def _raise_exception(context: BoundedContext, message: Any = "") -> None:
    reason = " ".join(context.budget.text(message)[:_LONGEST_REASON].split())
    raise TemplateRefusalError(reason or "it does not say why")


def _range(context: BoundedContext, *args: int) -> range:
    return safe_range(*args)


def _dict(context: BoundedContext, given: Any = (), /, **values: Any) -> dict[Any, Any]:
    pairs: Iterable[Any] = given.items() if isinstance(given, Mapping) else context.budget.items(given)
    named = {operators.key(context, name): value for name, value in pairs}
    return context.budget.keep({**named, **values})


def _namespace(context: BoundedContext, given: Any = (), /, **values: Any) -> Namespace:
    return Namespace(_dict(context, given, **values))


class ChatEnvironment(ImmutableSandboxedEnvironment):
    """Jinja's sandbox, narrowed to what chat templates use."""

    context_class = BoundedContext
    intercepted_binops = operators.BINARY_OPERATORS

    op_turn = Operation(operators.turn)
    op_concatenate = Operation(operators.concatenate)
    op_comparable = Operation(operators.comparable)
    op_cut = Operation(operators.cut)
    op_key = Operation(operators.key)
    op_made = Operation(operators.made)

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            # Nothing of an untrusted template is to run while it is compiled, when there is no budget yet.
            optimized=False,
            finalize=_printed,
            extensions=["jinja2.ext.loopcontrols", GenerationTag],
        )
        self.filters = dict(FILTERS)
        self.tests = dict(TESTS)
        self.globals = {
            "range": Operation(_range),
            "dict": Operation(_dict),
            "namespace": Operation(_namespace),
            "raise_exception": Operation(_raise_exception),
            "strftime_now": Operation(date_text),
        }

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Looks up `obj.attribute`: a method that templates may call, then an item of a dict, then nothing."""
        method = find_method(obj, attribute)
        if method is not None:
            return method
        if isinstance(obj, dict) and attribute in obj:
            return obj[attribute]
        if attribute.startswith("_"):
            raise SecurityError(f"{attribute[:40]!r} is not available in chat templates")
        if isinstance(obj, (Undefined, Namespace)) or (isinstance(obj, LoopContext) and attribute in _LOOP_VALUES):
            return getattr(obj, attribute, self.undefined(obj=obj, name=attribute))
        if not isinstance(obj, dict) and hasattr(type(obj), attribute):
            raise SecurityError(f"{attribute[:40]!r} is not available in chat templates")
        return self.undefined(obj=obj, name=attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """Looks up `obj[argument]`: an item, then an attribute."""
        if not isinstance(argument, (*_KEYS, Undefined)):
            # What is undefined prints its key when it complains, however long that takes.
            raise TypeError(f"a key must be text or a number, not a value of type {type(argument).__name__}")
        if isinstance(obj, Undefined):
            return obj[argument]
        if isinstance(obj, _SUBSCRIPTABLE) and isinstance(argument, _KEYS):
            container: Any = obj
            try:
                return container[argument]
            except (TypeError, LookupError):
                pass
        return self.getattr(obj, argument) if isinstance(argument, str) else self.undefined(obj=obj, name=argument)

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Calls what a template may call, and counts that."""
        within = bounded(context)
        within.budget.spend(_ARGUMENT_BYTES * (len(args) + len(kwargs)))
        if isinstance(obj, (Operation, Method)):
            for name in ("_loop_vars", "_block_vars"):  # added by the compiler, for functions that look at variables
                kwargs.pop(name, None)
            return obj(within, *args, **kwargs)
        if isinstance(obj, (Macro, LoopContext, Undefined)):
            return super().call(context, obj, *args, **kwargs)
        raise SecurityError(f"a value of type {type(obj).__name__} cannot be called in chat templates")

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Computes `left operator right` within the budget."""
        return operators.binary(bounded(context), operator, left, right)
