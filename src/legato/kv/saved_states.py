"""The states that are remembered outside the cells, in memory and on disk."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator

from legato.core.clock import Clock
from legato.core.tokens import KvState, Tokens
from legato.kv.disk import DiskStore, entry_id
from legato.kv.disk_threads import Disk, Fetched, Written
from legato.kv.entries import Entries, Entry, Place
from legato.kv.move_costs import MoveCosts

logger = logging.getLogger(__name__)

MOST_GIVEN_UP = 10_000
"""Entries of which it is known that there was no room for them; beyond that they may be tried once more."""
WORTH_WRITING_S = 0.5
"""Prefixes that are prefilled faster than this are not kept on disk."""


class SavedStates:
    """Remembers states within budgets.

    Args:
        memory_bytes: Budget of those in memory.
        disk_bytes: Budget of those on disk, those of other models and settings included.
        clock: Says when they were used.
        store: The files, if there are to be any; what an earlier worker has left there is taken over.
        disk: Reads and writes them; None without a store.
        moves: Learns what reading from disk takes.
        can_cut: A longer state serves as a shorter one, which need not be kept beside it.
        awaited: Entries that are being waited for, by id; they stay.
    """

    def __init__(
        self,
        memory_bytes: int,
        disk_bytes: int,
        clock: Clock,
        *,
        store: DiskStore | None,
        disk: Disk | None,
        moves: MoveCosts,
        can_cut: bool,
        awaited: Callable[[], Collection[str]],
    ) -> None:
        self._others_bytes = store.others_bytes() if store is not None else 0
        self.entries = Entries({"memory": memory_bytes, "disk": max(0, disk_bytes - self._others_bytes)})
        """The account of them."""
        self.is_writing = False
        """Whether an entry is being written."""
        self._can_cut = can_cut
        self._moves = moves
        self._awaited = awaited
        self._clock = clock
        self._disk = disk
        self._fetching: set[str] = set()
        """Entries that are being read from disk."""
        self._given_up: dict[Place, set[str]] = {"memory": set(), "disk": set()}
        """Entries that there was no room for: keeping them again would only push out others."""
        for found in store.scan() if store is not None else ():
            entry = Entry(found.id, found.scope, found.tokens, found.state_bytes, found.prefill_s, found.used_at)
            self.entries.add(entry, "disk").pinned = found.pinned

    @property
    def has_disk(self) -> bool:
        """Whether there are files."""
        return self._disk is not None

    def was_given_up(self, scope: str, tokens: Tokens) -> bool:
        """Whether memory had no room for a prefix."""
        given_up = self._given_up["memory"]
        return bool(given_up) and entry_id(scope, tokens) in given_up

    # Coming

    def remember(self, scope: str, tokens: Tokens, state: KvState, prefill_s: float) -> None:
        """Keep a state in memory, if it is worth more than others; `prefill_s` is what prefilling it takes."""
        new = Entry(entry_id(scope, tokens), scope, tokens.copy(), len(state), prefill_s, self._clock.calendar_s())
        entry = self.entries.add(new, "memory")
        entry.state = state
        for shorter in self._continued(entry):
            entry.hits = max(entry.hits, shorter.hits)
            self.entries.drop(shorter, "memory")
        self.shrink()

    def use(self, entry: Entry) -> None:
        """A request begins with an entry."""
        self.entries.use(entry, self._clock.calendar_s())
        self._given_up["disk"].discard(entry.id)
        if self._disk is not None and "disk" in entry.places:
            self._disk.touch(entry.id)

    def fetch(self, entry: Entry) -> None:
        """Have an entry read from disk; `collect` takes it in."""
        if self._disk is not None and entry.id not in self._fetching:
            self._fetching.add(entry.id)
            self._disk.fetch(entry.id, entry.tokens)

    def write_some(self) -> bool:
        """Have the entry written that is worth most and not on disk; False if there is none, or it has to wait."""
        if self._disk is None or self.is_writing:
            return False
        worthy = [
            e
            for e in self.entries
            if e.places == {"memory"}
            and e.prefill_s >= WORTH_WRITING_S
            and e.bytes <= self.entries.budgets["disk"]
            and e.id not in self._given_up["disk"]
        ]
        entry = max(worthy, key=lambda e: e.prefill_s, default=None)
        if entry is None or entry.state is None:
            return False
        self.is_writing = True
        self._disk.write(entry.id, entry.scope, entry.tokens, entry.state, entry.prefill_s)
        return True

    def collect(self) -> None:
        """Take in what was read and written meanwhile."""
        for done in self._disk.done() if self._disk is not None else ():
            if isinstance(done, Fetched):
                self._take_fetched(done)
            else:
                self._take_written(done)
            self.shrink()

    def _take_fetched(self, done: Fetched) -> None:
        self._fetching.discard(done.entry)
        entry = self.entries.get(done.entry)
        if entry is None:
            return
        if done.state is None:
            self.entries.drop(entry, "disk")
            return
        self._moves.observe("fetching", len(entry.tokens), done.took_s)
        self.entries.add(entry, "memory").state = done.state

    def _take_written(self, done: Written) -> None:
        assert self._disk is not None, "it has written"
        self.is_writing = False
        entry = self.entries.get(done.entry)
        if done.on_disk is None:
            logger.warning("a remembered prompt could not be written to disk: %s", done.error)
            self._give_up(done.entry, "disk")
        elif entry is None:  # given up meanwhile
            self._disk.remove(done.entry)
        else:
            self.entries.add(entry, "disk")
            if entry.pinned:
                self._disk.pin(entry.id, pinned=True)
            # Only now that a longer one is on disk, those that it continues may go from there.
            for shorter in self._continued(entry):
                self._drop_file(shorter)

    def _continued(self, entry: Entry) -> Iterator[Entry]:
        """The entries that it can stand for."""
        for length, shorter in self.entries.beginnings(entry.tokens, entry.scope) if self._can_cut else ():
            if length < len(entry.tokens) and not shorter.pinned:
                yield shorter

    # Going

    def shrink(self) -> None:
        """Keep the budgets."""
        awaited = self._awaited()
        for entry in self.entries.shrink("memory", awaited):
            self._give_up(entry.id, "memory")
        for entry in self.entries.shrink("disk", awaited):
            self._give_up(entry.id, "disk")
            if self._disk is not None:
                self._disk.remove(entry.id)

    def set_budget(self, place: Place, budget: int | None) -> None:
        """Change how many bytes may be kept in a place, on disk with those of other models; None changes nothing."""
        if budget is not None:
            self.entries.budgets[place] = budget if place == "memory" else max(0, budget - self._others_bytes)
            self._given_up[place].clear()  # there may be room now
            self.shrink()

    def _give_up(self, name: str, place: Place) -> None:
        """Note that there was no room, or no way, to keep an entry in a place."""
        given_up = self._given_up[place]
        if len(given_up) >= MOST_GIVEN_UP:
            given_up.clear()
        given_up.add(name)

    def _drop_file(self, entry: Entry) -> None:
        if self._disk is not None and "disk" in entry.places:
            self._disk.remove(entry.id)
            self.entries.drop(entry, "disk")

    def forget(self, entry: Entry) -> None:
        """Remove an entry everywhere."""
        self._drop_file(entry)
        self.entries.drop(entry, "memory")

    def pin(self, entry: Entry, *, pinned: bool) -> None:
        """Keep an entry whatever it is worth, or no longer."""
        entry.pinned = pinned
        if self._disk is not None and "disk" in entry.places:
            self._disk.pin(entry.id, pinned=pinned)
        self.shrink()

    def close(self, within_s: float) -> None:
        """Finish what was begun, in at most so many seconds."""
        if self._disk is not None:
            self._disk.close(within_s)
