"""What is remembered outside the engine's cells: entries in memory and on disk, and which of them to keep."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Literal

from legato.core.tokens import KvState, Tokens
from legato.kv.prefixes import PrefixTree

Place = Literal["memory", "disk"]
"""Where an entry's state can be."""


@dataclass(slots=True, eq=False)
class Entry:
    """The state of one prefix."""

    id: str
    scope: str
    """Whose requests may use it; empty for everybody's."""
    tokens: Tokens
    bytes: int
    """Of its state."""
    prefill_s: float
    """What prefilling its tokens takes."""
    used_s: float
    """When it was last used, on the clock of whoever adds it."""
    hits: int = 0
    """Requests that began with it."""
    pinned: bool = False
    """Kept whatever it is worth."""
    places: set[Place] = field(default_factory=set)
    """Where its state is now."""
    state: KvState | None = None
    """That in memory, which is let go with the place."""
    worth: dict[Place, float] = field(default_factory=dict)
    """By place: the one that is worth least has to go first."""


class Entries:
    """Entries by scope and prefix, within a budget of bytes for each place.

    Which to keep: those that save most prefill for their bytes, more so the more requests used them, counted from the
    worth of what was last given up, so that what is no longer used sinks below what is (GreedyDual-Size-Frequency;
    Cherkasova, 1998; but with the logarithm of the uses, for a conversation that has ended has many).

    Args:
        budgets: Bytes by place; 0 for nothing.
    """

    def __init__(self, budgets: dict[Place, int]) -> None:
        self.budgets = budgets
        """Bytes by place."""
        self._entries: dict[str, Entry] = {}
        self._trees: defaultdict[str, PrefixTree] = defaultdict(PrefixTree)
        self._used: dict[Place, int] = dict.fromkeys(budgets, 0)
        self._clock: dict[Place, float] = dict.fromkeys(budgets, 0.0)

    def __iter__(self) -> Iterator[Entry]:
        """All entries."""
        return iter(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, entry_id: str | None) -> Entry | None:
        """An entry by its id."""
        return self._entries.get(entry_id) if entry_id is not None else None

    def used_bytes(self, place: Place) -> int:
        """Bytes of the states in a place."""
        return self._used[place]

    def longest(self, tokens: Tokens, scope: str) -> tuple[int, list[Entry]]:
        """The longest prefix that entries share, and those that do."""
        length, ids = self._trees[scope].longest(tokens)
        return length, [self._entries[i] for i in ids]

    def beginnings(self, tokens: Tokens, scope: str) -> list[tuple[int, Entry]]:
        """The entries that are prefixes of a sequence, with their lengths; the longest first."""
        return [(n, self._entries[i]) for n, i in self._trees[scope].beginnings(tokens)]

    def covers(self, tokens: Tokens, scope: str) -> bool:
        """Whether an entry holds all of a prefix, and maybe more."""
        return self.longest(tokens, scope)[0] == len(tokens)

    def add(self, entry: Entry, place: Place) -> Entry:
        """Add an entry, or say that it is in another place too. The budget is kept by `shrink`.

        Returns:
            The entry as it is known: the one that was there, if there was one of that id.
        """
        known = self._entries.get(entry.id)
        if known is None:
            self._trees[entry.scope].insert(entry.id, entry.tokens)
            self._entries[entry.id] = known = entry
        if place not in known.places:
            known.places.add(place)
            self._used[place] += known.bytes
        self._rate(known)
        return known

    def use(self, entry: Entry, now_s: float) -> None:
        """A request began with it."""
        entry.hits += 1
        entry.used_s = now_s
        self._rate(entry)

    def _rate(self, entry: Entry) -> None:
        for place in entry.places:
            saves = math.log2(2 + entry.hits) * entry.prefill_s / max(1, entry.bytes)
            entry.worth[place] = self._clock[place] + saves

    def shrink(self, place: Place, busy: Collection[str] = ()) -> list[Entry]:
        """Give up what is worth least until a place's budget is kept; returns what is not there any more.

        Pinned entries stay, and those that are being used just now: `busy`, by id.
        """
        gone: list[Entry] = []
        while self._used[place] > self.budgets[place]:
            there = [e for e in self._entries.values() if place in e.places and not e.pinned and e.id not in busy]
            if not there:
                break
            least = min(there, key=lambda e: e.worth[place])
            self._clock[place] = max(self._clock[place], least.worth[place])
            self.drop(least, place)
            gone.append(least)
        return gone

    def drop(self, entry: Entry, place: Place) -> None:
        """Its state is not in that place any more; an entry without any place is gone."""
        if place in entry.places:
            entry.places.discard(place)
            entry.worth.pop(place, None)
            self._used[place] -= entry.bytes
            if place == "memory":
                entry.state = None
        if not entry.places and self._entries.get(entry.id) is entry:
            del self._entries[entry.id]
            self._trees[entry.scope].remove(entry.id)
