"""Moves KV state between cells, memory and disk, as `placement` decides, and never when an answer would wait for it."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from legato.core.cache import CacheAction, CacheEntry, CacheFigures, Restored
from legato.core.choices import CacheScope
from legato.core.clock import Clock
from legato.core.engine_errors import EngineError
from legato.core.tokens import KvState, Tokens, common_prefix
from legato.kv.disk import DiskStore
from legato.kv.disk_threads import Disk, DiskThreads
from legato.kv.entries import Entry
from legato.kv.move_costs import MoveCosts
from legato.kv.placement import Placement, PrefillCosts
from legato.kv.saved_states import SavedStates
from legato.kv.slots import Holder, Slot, scope_of
from legato.kv.sources import Lease, Restore, Source

logger = logging.getLogger(__name__)

WORTH_KEEPING_S = 0.05
"""Prefixes that are prefilled faster than this are not kept outside the cells."""
TOUCH_BYTES = 8 << 20
"""Memory that is made ready at a time: its first use takes longer than filling it."""
TOUCH_S = 0.02
"""That takes no longer than this."""
PAGE = 4096
WRITING_LOOK_S = 0.005
"""How often an idle engine looks whether a write has ended."""
CLOSING_S = 3.0
"""Longest time that a stopping engine writes on."""


class Cells(Protocol):
    """The KV cells of a context."""

    sequences: int
    """How many KV sequences it has."""
    cells_per_sequence: int
    """KV cells of each, in tokens."""

    def length(self, sequence: int) -> int:
        """Tokens of a sequence that have KV state, counted from its start."""
        ...

    def remove(self, sequence: int) -> bool:
        """Free a sequence's cells."""
        ...

    def cut(self, sequence: int, length: int) -> bool:
        """Keep the first tokens of a sequence alone; False if it can't be cut there, and must be cleared."""
        ...

    def state_bytes(self, sequence: int) -> int:
        """Bytes of a sequence's KV state as `save_state` gives it."""
        ...

    def save_state(self, sequence: int, into: KvState | None = None) -> KvState:
        """A sequence's KV state, in given memory or in new one."""
        ...

    def load_state(self, sequence: int, state: KvState) -> None:
        """Replace a sequence's KV state.

        Raises:
            EngineError: The library refuses; the sequence is empty then.
        """
        ...


@dataclass(frozen=True, slots=True)
class Limits:
    """What may be remembered."""

    memory_bytes: int
    disk_bytes: int
    scope: CacheScope = "server"
    """Whose remembered prompts requests may begin with."""
    can_cut: bool = True
    """The cells of a sequence can be cut at any token."""
    can_cut_states: bool = True
    """So can what was saved of them."""


@dataclass(slots=True)
class _Saving:
    """A state on its way out of the cells: memory for it is made ready bit by bit."""

    slot: Slot
    tokens: Tokens
    buffer: KvState
    touched: int = 0


class KvManager:
    """Remembers prefixes, and puts them where requests need them.

    Args:
        cells: Where they come from and go to.
        clock: Measures what moves take.
        costs: What computing takes.
        bytes_per_token: Of KV state, about.
        limits: What may be remembered.
        store: The entries on disk, if there are to be any.
        make_disk: Makes who reads and writes them, given whether the engine works (asked from other threads).
    """

    def __init__(
        self,
        cells: Cells,
        clock: Clock,
        costs: PrefillCosts,
        *,
        bytes_per_token: float,
        limits: Limits,
        store: DiskStore | None,
        make_disk: Callable[[DiskStore, Callable[[], bool]], Disk] = DiskThreads,
    ) -> None:
        self._cells = cells
        self._clock = clock
        self._limits = limits
        self._moves = MoveCosts(bytes_per_token)
        self._saving: _Saving | None = None
        self._told: CacheFigures | None = None
        self._states = SavedStates(
            limits.memory_bytes,
            limits.disk_bytes,
            clock,
            store=store,
            disk=make_disk(store, lambda: self.lender.free < cells.sequences) if store is not None else None,
            moves=self._moves,
            can_cut=limits.can_cut_states,
            awaited=self._awaited,
        )
        self.lender = Placement(
            cells.sequences,
            cells.cells_per_sequence,
            self._states.entries,
            costs,
            self._moves,
            scope=limits.scope,
            can_cut=limits.can_cut,
            can_cut_states=limits.can_cut_states,
        )
        """Lends the context's sequences."""
        self._states.shrink()  # an earlier worker may have had more room

    @property
    def remembers(self) -> bool:
        """Whether anything is kept after its request."""
        return self._limits.scope != "off"

    def _awaited(self) -> set[str]:
        """Entries that requests wait for."""
        holders = (slot.holder for slot in self.lender.slots)
        return {h.awaits.entry for h in holders if h is not None and h.awaits is not None and h.awaits.entry}

    # A request's way

    def begin(self, request: Holder, lease: Lease, now_s: float) -> Restored | Restore | None:
        """A request has cells: clear them, or keep what it can go on from.

        Returns:
            What it goes on from, if that is in place; what is to be moved in, if anything is.
        """
        source = lease.source
        if source is not None and source.slot == lease.slot and self._cells.cut(lease.slot, source.tokens):
            return Restored(request.id, source.tokens, source.tier, 0.0, source.prefill_s)
        self._cells.remove(lease.slot)
        return self._await(request, source, now_s) if source is not None and source.slot != lease.slot else None

    def between_steps(self, held_back: Iterable[Holder], now_s: float) -> Iterator[tuple[int, Restore | None]]:
        """See who of those whose beginnings could not be moved yet has what it waited for, and who waits no longer.

        Yields:
            What is to be moved from now on, by request; None where all is prefilled. Each is to be taken in before the
            next is asked for: one may follow another.
        """
        self._states.collect()
        for request in held_back:
            source, restore = request.awaits, request.restore
            assert source is not None, "it waits"
            assert restore is not None, "likewise"
            if source.follows is not None:
                slot = self._slot(source)
                if slot.holder is not None and slot.holder.id == source.follows and slot.length < source.tokens:
                    continue
            elif self._must_be_fetched(source):
                if now_s - restore.since_s > restore.prefill_s:  # no disk should take longer than prefilling
                    self.let_go(request)
                    yield request.id, None
                continue
            yield request.id, self._look_again(request, now_s)

    def restore(self, request: Holder, slot: int, now_s: float) -> Restored | Restore:
        """Put the beginning of a waiting request's prompt into the cells of its sequence.

        Returns:
            What it goes on from: no tokens if that failed. What is to be moved later, if it has to wait again.
        """
        restore = self._look_again(request, now_s)
        source = request.awaits
        if restore is None or source is None:
            return Restored(request.id, 0, "memory", 0.0, 0.0)
        if restore.move_s is None:
            return restore
        begun_s = self._clock.now_s()
        try:
            self._load(slot, source)
        except EngineError as error:
            logger.warning("a remembered prompt is prefilled again: %s", error)
            if (entry := self._states.entries.get(source.entry)) is not None:
                self._states.forget(entry)
            self._cells.remove(slot)
            return Restored(request.id, 0, source.tier, 0.0, 0.0)
        finally:
            self.let_go(request)
        return Restored(request.id, source.tokens, source.tier, self._clock.now_s() - begun_s, source.prefill_s)

    def let_go(self, request: Holder) -> None:
        """A request waits for nothing any more."""
        if request.awaits is not None:
            request.awaits = None
            self._states.shrink()

    def released(self, request: Holder, slot: int, computed_tokens: int, now_s: float) -> None:
        """A request gave its cells up: what is in them stays until somebody needs them.

        Of its tokens, the KV state of the first `computed_tokens` is in there and is sound; none clears the cells.
        """
        self.let_go(request)
        scope = scope_of(request, self._limits.scope)
        if scope is None or computed_tokens == 0:
            self._cells.remove(slot)
            return
        self.lender.park(slot, request.tokens[:computed_tokens], scope, now_s)

    def keep(self, request: Holder, state: KvState) -> None:
        """Remember a state that had to leave its cells anyway: of all tokens that a request has computed."""
        if (scope := scope_of(request, self._limits.scope)) is not None:
            self._remember(scope, request.tokens[: request.computed_tokens], state)

    def _look_again(self, request: Holder, now_s: float) -> Restore | None:
        """What a waiting request waits for now; None if all is to be prefilled."""
        source, awaited = self.lender.find(request), request.awaits
        if source is None:
            self.let_go(request)
            return None
        if source.entry is not None and awaited is not None and source.entry == awaited.entry:
            source = replace(source, tier=awaited.tier)  # it came from disk, though it is in memory now
        return self._await(request, source, now_s)

    def _await(self, request: Holder, source: Source, now_s: float) -> Restore:
        """Have a request's beginning moved in as soon as it is there."""
        must_be_fetched = self._must_be_fetched(source)
        if must_be_fetched is not None:
            self._states.fetch(must_be_fetched)
        move_s = None if must_be_fetched or source.follows is not None else source.bring_s
        before = request.restore
        since_s = before.since_s if before is not None and before.move_s is not None else now_s
        request.awaits = source
        return Restore(source.tokens, move_s, source.prefill_s, since_s, source.follows)

    def _must_be_fetched(self, source: Source) -> Entry | None:
        """The entry of a source, if it is on disk alone."""
        entry = self._states.entries.get(source.entry)
        return entry if entry is not None and entry.places == {"disk"} else None

    def _slot(self, source: Source) -> Slot:
        assert source.slot is not None, "asked for sources in cells alone"
        return self.lender.slots[source.slot]

    def _load(self, slot: int, source: Source) -> None:
        """Put a state into a sequence, and cut what is too much.

        Raises:
            EngineError: The library refuses it.
        """
        entry = self._states.entries.get(source.entry)
        if entry is None:
            state = self._save(self._slot(source))
        else:
            assert entry.state is not None, "it need not be fetched"
            state = entry.state
            self._states.use(entry)
        begun_s = self._clock.now_s()
        self._cells.load_state(slot, state)
        self._moves.observe("loading", self._cells.length(slot), self._clock.now_s() - begun_s)
        if not self._cells.cut(slot, source.tokens):
            raise EngineError("the state can't be cut there")

    def _save(self, slot: Slot, into: KvState | None = None) -> KvState:
        """The state of a sequence that is parked or runs, remembered on the way."""
        tokens = slot.tokens if slot.holder is None else slot.holder.tokens
        assert tokens is not None, "nobody saves what is empty"
        tokens = tokens[: slot.length]
        begun_s = self._clock.now_s()
        state = self._cells.save_state(slot.number, into)
        self._moves.observe("saving", len(tokens), self._clock.now_s() - begun_s)
        self._remember(slot.scope, tokens, state)
        return state

    def _remember(self, scope: str, tokens: Tokens, state: KvState) -> None:
        self._states.remember(scope, tokens, state, self.lender.prefill_s(len(tokens)))

    # In the time that is left

    def use_time(self, room_s: float) -> bool:
        """Do a bit of what can wait, in at most `room_s`: save what ended, write what is saved.

        Returns:
            Whether anything was done: there may be more.
        """
        self._states.collect()
        if self._states.entries.budgets["memory"] and self._save_some(room_s):
            return True
        return self._states.write_some()

    def use_idle_time(self) -> bool:
        """While nobody needs the engine: do a bit of what can wait, or wait a moment for what is being written.

        Returns:
            Whether there is more to do, or to wait for.
        """
        if self.use_time(math.inf):
            return True
        if self._states.is_writing:
            self._clock.sleep(WRITING_LOOK_S)
        return self._states.is_writing

    def close(self) -> None:
        """Save and write what is not, if that takes only a moment."""
        until_s = self._clock.now_s() + CLOSING_S
        if self._states.has_disk:
            while self._clock.now_s() < until_s and self.use_idle_time():
                pass
        self._states.close(max(0.0, until_s - self._clock.now_s()))

    def _save_some(self, room_s: float) -> bool:
        saving = self._saving
        if saving is not None and (saving.slot.holder is not None or saving.slot.tokens is not saving.tokens):
            saving = None  # somebody needs its cells
        if saving is None:
            saving = self._saving = self._next_to_save()
        if saving is None:
            return False
        if saving.touched < len(saving.buffer):
            if room_s < TOUCH_S:
                return False
            end = min(len(saving.buffer), saving.touched + TOUCH_BYTES)
            saving.buffer[saving.touched : end : PAGE] = 0
            saving.touched = end
            return True
        if self._moves.predict("saving", len(saving.tokens)) > room_s:
            return False
        self._saving = None
        self._save(saving.slot, saving.buffer)
        return True

    def _next_to_save(self) -> _Saving | None:
        slot = self.lender.unsaved(self._is_not_to_be_saved)
        if slot is None or slot.tokens is None:
            return None
        return _Saving(slot, slot.tokens, np.empty(self._cells.state_bytes(slot.number), dtype=np.uint8))

    def _is_not_to_be_saved(self, slot: Slot) -> bool:
        if slot.tokens is None or self.lender.prefill_s(slot.length) < WORTH_KEEPING_S:
            return True
        is_too_large = self._cells.state_bytes(slot.number) > self._states.entries.budgets["memory"]
        return is_too_large or self._states.was_given_up(slot.scope, slot.tokens)

    # What people ask

    def act(self, action: CacheAction, entry_name: str | None) -> bool:
        """Remove, pin or unpin an entry by its id or the beginning of it; None for all, those in cells too.

        Returns:
            Whether there is such an entry, and only one.
        """
        found = [e for e in self._states.entries if entry_name is None or e.id.startswith(entry_name)]
        if entry_name is not None and len(found) != 1:
            return False
        if entry_name is None and action == "remove":
            self._clear(self.lender.parked)
        for entry in found:
            if action == "remove":
                # What is in cells as well would be saved again.
                self._clear([slot for slot in self.lender.parked if _is_content_of(slot, entry)])
                self._states.forget(entry)
            elif action in ("pin", "unpin"):
                self._states.pin(entry, pinned=action == "pin")
        return True

    def set_budgets(self, memory_bytes: int | None, disk_bytes: int | None) -> None:
        """Change how much may be remembered outside the cells; None leaves it as it is. What is too much goes at once.

        Nothing changes on disk if there is no disk to use.
        """
        self._states.set_budget("memory", memory_bytes)
        if self._states.has_disk:
            self._states.set_budget("disk", disk_bytes)

    def _clear(self, slots: Iterable[Slot]) -> None:
        for slot in slots:
            self._cells.remove(slot.number)
            slot.tokens = None
        self._saving = None

    @property
    def listing(self) -> list[CacheEntry]:
        """What is remembered, without its content."""
        now_s, today_s = self._clock.now_s(), self._clock.calendar_s()
        parked = [
            CacheEntry("", s.scope, s.length, 0, 0, max(0.0, now_s - s.used_s), ["live"], pinned=False)
            for s in self.lender.parked
        ]
        saved = [
            CacheEntry(
                e.id,
                e.scope,
                len(e.tokens),
                e.bytes,
                e.hits,
                max(0.0, today_s - e.used_s),
                sorted(e.places),
                pinned=e.pinned,
            )
            for e in self._states.entries
        ]
        return parked + saved

    def figures_if_changed(self) -> CacheFigures | None:
        """Figures, if they are others than when this was asked last."""
        told, self._told = self._told, self.figures
        return self._told if self._told != told else None

    @property
    def figures(self) -> CacheFigures:
        """How much is remembered."""
        entries = self._states.entries
        return CacheFigures(
            parked_tokens=sum(slot.length for slot in self.lender.parked),
            memory_bytes=entries.used_bytes("memory"),
            memory_budget=entries.budgets["memory"],
            memory_entries=sum("memory" in e.places for e in entries),
            disk_bytes=entries.used_bytes("disk"),
            disk_budget=entries.budgets["disk"] if self._states.has_disk else 0,
            disk_entries=sum("disk" in e.places for e in entries),
            has_disk=self._states.has_disk,
        )


def _is_content_of(slot: Slot, entry: Entry) -> bool:
    """Whether a parked sequence and an entry hold the same, or one of them the beginning of the other."""
    tokens = slot.tokens
    if tokens is None or slot.scope != entry.scope:
        return False
    return common_prefix(tokens, entry.tokens) == min(len(tokens), len(entry.tokens))
