"""The KV sequences of a context: lent to one request each, and what is left in them afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from legato.core.choices import CacheScope
from legato.core.tokens import Tokens
from legato.kv.sources import Restore, Source


class Holder(Protocol):
    """A request as the cells see it. Of its fields, only `awaits` is written here."""

    awaits: Source | None
    """Where the beginning of its prompt comes from, which is not in its cells yet."""
    id: int
    client: str | None
    """Who asks."""
    computed_tokens: int
    """Tokens whose KV state is in its cells."""
    in_prefill_context: bool
    """Its KV state is in another context until all of its prompt is prefilled."""
    restore: Restore | None
    """What is to be moved into its cells before it is prefilled on."""

    @property
    def tokens(self) -> Tokens:
        """Its prompt, and what it has written."""
        ...


def scope_of(holder: Holder, scope: CacheScope) -> str | None:
    """Whose remembered prompts a request may begin with; None for nobody's, not even its own."""
    if scope == "off":
        return None
    return (holder.client or "") if scope == "key" else ""


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
            return 0 if self.holder.in_prefill_context else self.holder.computed_tokens
        return 0 if self.tokens is None else len(self.tokens)


class KvSlots:
    """The KV sequences, and who holds them."""

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

    def lend(self, slot: Slot, holder: Holder, scope: str, now_s: float) -> None:
        """Lend a certain one; what is in its cells is the holder's to keep or to clear.

        Raises:
            ValueError: It is lent already.
        """
        if slot.holder is not None:
            raise ValueError(f"sequence {slot.number} is lent already")
        slot.holder, slot.tokens, slot.scope, slot.used_s = holder, holder.tokens, scope, now_s

    def release(self, slot: int) -> None:
        """Take a sequence back, empty.

        Raises:
            ValueError: It was not lent.
        """
        if not 0 <= slot < self.sequences or self.slots[slot].holder is None:
            raise ValueError(f"sequence {slot} was not lent")
        self.slots[slot].holder = self.slots[slot].tokens = None
