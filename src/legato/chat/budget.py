"""What one rendering may take: time, memory, and the size of any one value."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from jinja2.runtime import Undefined

from legato.chat.errors import TemplateError
from legato.chat.weight import weigh

_T = TypeVar("_T")

MOST_ITEMS = 1_000_000
"""The longest list that a template may make."""

_ITEM_BYTES = 64
_MOST_BITS = 64
_BYTES_PER_GIVEN_CHARACTER = 64  # up to 4 bytes a character, and the dozen copies that a wordy template makes


@dataclass(frozen=True)
class Limits:
    """How much a chat template may take to render one prompt.

    Attributes:
        seconds: Wall-clock time.
        output: Characters of prompt text beyond the characters it was given.
        memory: Bytes of all the values it makes, used or not any more, beyond a multiple of what it was given.
    """

    seconds: float = 5.0
    output: int = 16 * 2**20
    memory: int = 256 * 2**20


DEFAULT_LIMITS = Limits()


class Budget:
    """Counts what one rendering takes, and ends it with a `TemplateError` when that is too much.

    Memory is only ever spent and never returned. That counts too much for a template that drops what it makes, which
    is why `Limits.memory` is generous; in return no operation can hide what it holds.
    """

    def __init__(self, limits: Limits, given: int) -> None:
        """Starts the clock.

        Args:
            limits: What the rendering may take.
            given: The weight of the messages and other variables that the template is given, in characters.
        """
        self._limits = limits
        self._deadline = time.monotonic() + limits.seconds
        self._memory_left = limits.memory + _BYTES_PER_GIVEN_CHARACTER * given
        self.longest = limits.output + given

    def _expect_memory(self, size: int) -> None:
        if size > self._memory_left:
            raise TemplateError("this model's chat template takes too much memory; use another chat template")

    def tick(self) -> None:
        """Ends the rendering if its time is over."""
        if time.monotonic() > self._deadline:
            raise TemplateError(
                f"this model's chat template takes longer than {self._limits.seconds:g} s; use another chat template"
            )

    def spend(self, size: int) -> None:
        """Counts `size` bytes of memory, and looks at the clock."""
        self._expect_memory(size)
        self._memory_left -= size
        self.tick()

    def expect_text(self, length: int) -> None:
        """Refuses to make a text of `length` characters if it is too long to be kept."""
        if length > self.longest:
            raise TemplateError(f"this model's chat template makes a text longer than {self.longest:,} characters")
        self._expect_memory(length)

    def expect_items(self, count: int) -> None:
        """Refuses to make a list of `count` items if it is too long."""
        if count > MOST_ITEMS:
            raise TemplateError(f"this model's chat template makes a list of more than {MOST_ITEMS:,} items")

    def keep(self, value: _T) -> _T:
        """Counts a value that an operation has made, and returns it."""
        if isinstance(value, str):
            self.expect_text(len(value))
            self.spend(sys.getsizeof(value))
        elif isinstance(value, (list, tuple, dict)):
            self.expect_items(len(value))
            self.spend(_ITEM_BYTES * (1 + len(value)))
        elif isinstance(value, int) and value.bit_length() > _MOST_BITS:
            raise TemplateError(f"this model's chat template computes a number of more than {_MOST_BITS} bits")
        else:
            self.tick()
        return value

    def weigh(self, value: object) -> int:
        """Weighs a value before something walks the whole of it; refuses what is too heavy or not plain data."""
        return weigh(value, self.longest, self.tick)

    def watch(self, items: Iterable[Any]) -> Iterator[Any]:
        """Passes `items` on, with a look at the clock before each."""
        for item in items:
            self.spend(_ITEM_BYTES)
            yield item

    def realize(self, value: Any) -> Any:
        """Turns an iterator (as `map` and `select` return) into a list, and returns everything else as it is."""
        if not isinstance(value, Iterator):
            return value
        items = []
        for item in self.watch(value):
            items.append(item)
            self.expect_items(len(items))
        return items

    def items(self, value: Any) -> list[Any]:
        """The items of any iterable value, as a new list."""
        value = self.realize(value)
        if hasattr(value, "__len__"):
            self.expect_items(len(value))
        return self.keep(list(value))

    def text(self, value: object) -> str:
        """The text of a value, as a template prints it."""
        if isinstance(value, str):
            return value
        if not isinstance(value, Undefined):
            self.weigh(value)
        return self.keep(str(value))
