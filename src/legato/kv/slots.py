"""The KV sequences of a context: lent to one request each, and what is left in them afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from legato.core.tokens import Tokens


class Holder(Protocol):
    """A request as the cells see it."""

    @property
    def id(self) -> int:
        """Its number."""
        ...

    @property
    def computed_tokens(self) -> int:
        """Tokens whose KV state is in its cells."""
        ...

    @property
    def in_reader(self) -> bool:
        """Its KV state is in another context until all of its prompt is read."""
        ...

    @property
    def recall(self) -> object | None:
        """What it waits for before it reads on: a beginning that is to be moved into its cells."""
        ...


@dataclass(slots=True, eq=False)
class Slot:
    """One KV sequence."""

    number: int
    tokens: Tokens | None = None
    """What its cells hold, of a request that has ended; of one that runs, its prompt."""
    scope: str = ""
    """Whose requests may go on from there."""
    holder: Holder | None = None
    """The request that it is lent to."""
    used_s: float = 0.0
    """When it was last lent or given back, on the engine's clock."""

    @property
    def length(self) -> int:
        """Tokens that its cells hold."""
        if self.holder is not None:
            return 0 if self.holder.in_reader else self.holder.computed_tokens
        return 0 if self.tokens is None else len(self.tokens)


@dataclass(frozen=True, slots=True)
class Lease:
    """A KV sequence for a request, and where the beginning of its prompt comes from."""

    slot: int
    source: Source | None = None
    """None if all of the prompt has to be read."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where the state of a prompt's first tokens is."""

    tokens: int
    """How many of them."""
    tier: str
    """`live`, `memory` or `disk`."""
    reading_s: float
    """What reading them takes."""
    slot: int | None = None
    """The KV sequence that holds them; the lent one itself, if they are in place."""
    entry: str | None = None
    """The remembered entry that holds them."""
    follows: int | None = None
    """The request that is reading them just now."""


class Lender(Protocol):
    """Lends KV sequences."""

    @property
    def sequences(self) -> int:
        """How many the context has."""
        ...

    @property
    def cells_per_sequence(self) -> int:
        """KV cells of each, in tokens."""
        ...

    @property
    def free(self) -> int:
        """Sequences that nobody holds."""
        ...

    def acquire(self, holder: Holder, now_s: float) -> Lease | None:
        """Lend a sequence, or None if all are lent."""
        ...

    def release(self, slot: int) -> None:
        """Take a sequence back."""
        ...


class KvSlots:
    """The KV sequences, and who holds them.

    Args:
        sequences: How many the context has.
        cells_per_sequence: KV cells of each, in tokens.
    """

    def __init__(self, sequences: int, cells_per_sequence: int) -> None:
        self.slots = [Slot(number) for number in range(sequences)]
        """All of them."""
        self.cells_per_sequence = cells_per_sequence
        """KV cells of each, in tokens."""

    @property
    def sequences(self) -> int:
        """How many the context has."""
        return len(self.slots)

    @property
    def free(self) -> int:
        """Sequences that nobody holds."""
        return sum(slot.holder is None for slot in self.slots)

    def lend(self, slot: Slot, holder: Holder, now_s: float) -> None:
        """Lend a certain one; what is in it is the holder's to keep or to clear.

        Raises:
            ValueError: It is lent already.
        """
        if slot.holder is not None:
            raise ValueError(f"sequence {slot.number} is lent already")
        slot.holder, slot.tokens, slot.used_s = holder, None, now_s

    def release(self, slot: int) -> None:
        """Take a sequence back.

        Raises:
            ValueError: It was not lent.
        """
        if not 0 <= slot < self.sequences or self.slots[slot].holder is None:
            raise ValueError(f"sequence {slot} was not lent")
        self.slots[slot].holder = None
        self.slots[slot].tokens = None
