"""Moves KV state between cells, memory and disk, as `legato.kv` decides, and never when an answer would wait for it."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from legato.engine.context import Context, EngineError
from legato.kv.cache import PrefixCache
from legato.kv.disk import DiskStore, entry_id
from legato.kv.entries import Entries, Entry
from legato.kv.slots import KvSlots, Lease, Slot, Source
from legato.kv.tokens import Tokens, common_prefix
from legato.runtime.disk_threads import DiskThreads, Fetched, Written
from legato.runtime.messages import CacheAction, CacheEntry, CacheState, Recalled
from legato.scheduling.costs import CostModel
from legato.scheduling.moves import MoveCosts
from legato.scheduling.scheduler import Released
from legato.scheduling.state import Recall, Sequence

logger = logging.getLogger(__name__)

State = NDArray[np.uint8]

WORTH_KEEPING_S = 0.05
"""Prefixes that are read faster than this are not kept outside the cells."""
WORTH_WRITING_S = 0.5
"""Prefixes that are read faster than this are not kept on disk."""
TOUCH_BYTES = 8 << 20
"""Memory that is made ready at a time: its first use takes longer than filling it."""
TOUCH_S = 0.02
"""That takes no longer than this."""
PAGE = 4096
WRITING_LOOK_S = 0.005
"""How often an idle engine looks whether a write has ended."""
CLOSING_S = 3.0
"""Longest time that a stopping engine writes on."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What may be remembered."""

    memory_bytes: int
    disk_bytes: int
    is_on: bool = True
    """Whether requests may begin with what others, or they themselves, have left."""
    by_client: bool = False
    """Each client only with its own."""
    can_cut: bool = True
    """The cells of a sequence can be cut at any token."""
    can_cut_states: bool = True
    """So can what was saved of them."""


@dataclass(slots=True)
class _Saving:
    """A state on its way out of the cells: memory for it is made ready bit by bit."""

    slot: Slot
    tokens: Tokens
    buffer: State
    touched: int = 0


class _Prices:
    """What reading and moving take, as far as calls and moves have shown."""

    def __init__(self, costs: CostModel, moves: MoveCosts) -> None:
        self._costs = costs
        self._moves = moves

    def reading_s(self, start: int, end: int) -> float:
        return self._costs.chunk_s(start, end - start) if end > start else 0.0

    def saving_s(self, tokens: int) -> float:
        return self._moves.predict("saving", tokens)

    def loading_s(self, tokens: int) -> float:
        return self._moves.predict("loading", tokens)

    def fetching_s(self, tokens: int) -> float:
        return self._moves.predict("fetching", tokens)

    def decoding_s(self) -> float:
        return self._costs.decode_s((1,))


class Keeper:
    """Remembers prefixes, and puts them where requests need them.

    Args:
        context: Whose cells they come from and go to.
        costs: What reading takes.
        bytes_per_token: Of KV state, about.
        limits: What may be remembered.
        store: The entries on disk, if there are to be any.
        tokens_of: A request's prompt and what it has written, by its id.
        client_of: Who asked, by the request's id.
        is_busy: Whether the engine works; asked from other threads.
    """

    def __init__(
        self,
        context: Context,
        costs: CostModel,
        *,
        bytes_per_token: float,
        limits: Limits,
        store: DiskStore | None,
        tokens_of: Callable[[int], Tokens],
        client_of: Callable[[int], str | None],
        is_busy: Callable[[], bool],
    ) -> None:
        self._context = context
        self._limits = limits
        self._tokens_of = tokens_of
        self._client_of = client_of
        self._moves = MoveCosts(bytes_per_token)
        self._states: dict[str, State] = {}
        """Of the entries in memory."""
        self._waiting: dict[int, Source] = {}
        """Where the beginnings of requests come from that are not there yet."""
        self._saving: _Saving | None = None
        self._refused: set[int] = set()
        """Parked sequences that are not worth saving."""
        self._unwritable: set[str] = set()
        """Entries that the disk did not take."""
        self._disk = DiskThreads(store, is_busy) if store is not None else None
        self._changed = True
        others_bytes = store.others_bytes() if store is not None else 0
        disk_bytes = max(0, limits.disk_bytes - others_bytes)
        self._entries = Entries({"memory": limits.memory_bytes, "disk": disk_bytes})
        self.cache = PrefixCache(
            KvSlots(context.sequences, context.cells_per_sequence),
            self._entries,
            _Prices(costs, self._moves),
            tokens_of=tokens_of,
            scope_of=self._scope_of,
            can_cut=limits.can_cut,
            can_cut_states=limits.can_cut_states,
        )
        """Lends the context's sequences."""
        if store is not None:
            self._take_over(store)

    # A request's way

    def admitted(self, sequence: Sequence, lease: Lease, now_s: float) -> Recalled | None:
        """A request has cells: clear them, or keep what it can go on from.

        Returns:
            What it goes on from, if that is in place.
        """
        source = lease.source
        self._refused.discard(lease.slot)
        if self._saving is not None and self._saving.slot.number == lease.slot:
            self._saving = None
        if source is None:
            self._context.remove(lease.slot)
            return None
        if source.slot == lease.slot:
            if not self._context.cut(lease.slot, source.tokens):
                self._context.remove(lease.slot)
                return None
            sequence.computed_tokens = source.tokens
            return self._recalled(sequence, source, 0.0)
        self._context.remove(lease.slot)
        self._await(sequence, source, now_s)
        return None

    def border(self, held_back: list[Sequence], now_s: float) -> None:
        """Between two steps: see who has what it waited for."""
        if self._disk is not None:
            for done in self._disk.done():
                self._take_in(done)
        for sequence in held_back:
            source = self._waiting[sequence.id]
            if source.follows is not None:
                slot = self.cache.slot(source.slot)
                follows_on = slot.holder is not None and slot.holder.id == source.follows
                if follows_on and slot.length < source.tokens:
                    continue
            elif source.entry is not None and source.entry not in self._states:
                entry = self._entries.get(source.entry)
                if entry is not None and "disk" in entry.places:
                    continue
            self._find_again(sequence, now_s)

    def move(self, sequence: Sequence, now_s: float) -> Recalled | None:
        """Put the beginning of a request's prompt into its cells.

        Returns:
            What it goes on from: no tokens if that failed. None if it has to wait again.
        """
        awaited = self._waiting.pop(sequence.id, None)
        source = self.cache.find(sequence)
        if source is not None and awaited is not None and awaited.entry == source.entry:
            source = awaited  # it came from disk, though it is in memory now
        if source is None:
            return Recalled(sequence.id, 0, "memory", 0.0, 0.0)
        if self._must_wait(source):
            self._await(sequence, source, now_s)
            return None
        begun_s = time.monotonic()
        entry_name = source.entry
        try:
            if entry_name is None:
                state = self._save_live(self.cache.slot(source.slot))
            else:
                state = self._states[entry_name]
                self._use(self._entries.get(entry_name))
            loading_s = time.monotonic()
            assert sequence.slot is not None, "only admitted requests recall"
            self._context.load_state(sequence.slot, state)
            self._moves.observe("loading", self._context.length(sequence.slot), time.monotonic() - loading_s)
            if not self._context.cut(sequence.slot, source.tokens):
                raise EngineError("the state can't be cut there")
        except EngineError as error:
            logger.warning("a remembered prompt is read again: %s", error)
            if entry_name is not None and (entry := self._entries.get(entry_name)) is not None:
                self._forget(entry)
            if sequence.slot is not None:
                self._context.remove(sequence.slot)
            return Recalled(sequence.id, 0, source.tier, 0.0, 0.0)
        finally:
            self._shrink()
        return self._recalled(sequence, source, time.monotonic() - begun_s)

    def released(self, released: Released, *, is_sound: bool = True) -> None:
        """A request gave its cells up: what is in them stays until somebody needs them.

        Args:
            released: What it held.
            is_sound: Its cells hold what they should; if not, they are cleared.
        """
        sequence, slot = released.sequence, released.slot
        self._waiting.pop(sequence.id, None)
        scope = self._scope_of(sequence.id)
        if scope is None or not is_sound or released.computed_tokens == 0:
            self._context.remove(slot)
            return
        tokens = self._tokens_of(sequence.id)[: released.computed_tokens]
        self.cache.park(slot, tokens, scope, time.monotonic())
        self._changed = True

    def preempted(self, released: Released) -> None:
        """A request had to give its cells to another, who has them already.

        Args:
            released: What it held.
        """
        self._waiting.pop(released.sequence.id, None)

    def keep(self, sequence: Sequence, state: State) -> None:
        """Remember a state that had to leave its cells anyway: all of a request's prompt.

        Args:
            sequence: Whose.
            state: Of the tokens that it has read.
        """
        scope = self._scope_of(sequence.id)
        if scope is not None:
            self._remember(scope, self._tokens_of(sequence.id)[: sequence.computed_tokens], state)
            self._shrink()

    # In the time that is left

    def tend(self, room_s: float) -> bool:
        """Do a bit of what can wait: save what ended, write what is saved.

        Args:
            room_s: How long that may take.

        Returns:
            Whether there is more to do.
        """
        if self._disk is not None:
            for done in self._disk.done():
                self._take_in(done)
        if self._limits.memory_bytes and self._save_some(room_s):
            return True
        if self._disk is None:
            return False
        if self._disk.writing is None:
            return self._write_some()
        if room_s == math.inf:
            time.sleep(WRITING_LOOK_S)
            return True
        return False

    def close(self) -> None:
        """Save and write what is not, if that takes only a moment."""
        until_s = time.monotonic() + CLOSING_S
        if self._disk is not None:
            while time.monotonic() < until_s and self.tend(math.inf):
                pass
            self._disk.close(max(0.0, until_s - time.monotonic()))

    def _save_some(self, room_s: float) -> bool:
        saving = self._saving
        if saving is not None and (saving.slot.holder is not None or saving.slot.tokens is not saving.tokens):
            saving = self._saving = None
        if saving is None:
            slot = self.cache.unsaved(self._refused)
            if slot is None or slot.tokens is None or self.cache.reading_s(slot.length) < WORTH_KEEPING_S:
                return False
            size = self._context.state_bytes(slot.number)
            if size > self._limits.memory_bytes:
                self._refused.add(slot.number)
                return True
            saving = self._saving = _Saving(slot, slot.tokens, np.empty(size, dtype=np.uint8))
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
        begun_s = time.monotonic()
        state = self._context.save_state(saving.slot.number, into=saving.buffer)
        self._moves.observe("saving", len(saving.tokens), time.monotonic() - begun_s)
        name = self._remember(saving.slot.scope, saving.tokens, state)
        self._shrink()
        if name not in self._states:
            self._refused.add(saving.slot.number)
        return True

    def _write_some(self) -> bool:
        assert self._disk is not None, "asked by the caller"
        worthy = [
            e
            for e in self._entries
            if "memory" in e.places
            and "disk" not in e.places
            and e.reading_s >= WORTH_WRITING_S
            and e.bytes <= self._entries.budgets["disk"]
            and e.id not in self._unwritable
        ]
        if not worthy:
            return False
        entry = max(worthy, key=lambda e: e.reading_s)
        self._disk.write(entry.id, entry.scope, entry.tokens, self._states[entry.id], entry.reading_s)
        return True

    # What people ask

    def act(self, action: CacheAction, entry_name: str | None) -> bool:
        """Clear, remove, pin or unpin.

        Args:
            action: What to do.
            entry_name: With which entry, or the beginning of its id; None for all.

        Returns:
            Whether there is such an entry, and only one.
        """
        found = [e for e in self._entries if entry_name is None or e.id.startswith(entry_name)]
        if entry_name is not None and len(found) != 1:
            return False
        self._changed = True
        if entry_name is None and action == "remove":
            self._clear(self.cache.parked)
        for entry in found:
            if action == "remove":
                # What is in cells as well would be saved again.
                self._clear([s for s in self.cache.parked if self._is_content_of(s, entry)])
                self._forget(entry)
            elif action in ("pin", "unpin"):
                entry.pinned = action == "pin"
                if self._disk is not None and "disk" in entry.places:
                    self._disk.pin(entry.id, pinned=entry.pinned)
        return True

    @property
    def listing(self) -> list[CacheEntry]:
        """What is remembered, without its content."""
        now = time.time()
        parked = [
            CacheEntry("", s.scope, s.length, 0, 0, max(0.0, time.monotonic() - s.used_s), ["live"], pinned=False)
            for s in self.cache.parked
        ]
        return parked + [
            CacheEntry(
                e.id,
                e.scope,
                len(e.tokens),
                e.bytes,
                e.hits,
                max(0.0, now - e.used_s),
                sorted(e.places),
                pinned=e.pinned,
            )
            for e in self._entries
        ]

    def state_if_changed(self) -> CacheState | None:
        """Figures, if they are others than when this was asked last."""
        if not self._changed:
            return None
        self._changed = False
        return self.state

    @property
    def state(self) -> CacheState:
        """Figures."""
        entries = list(self._entries)
        return CacheState(
            parked_tokens=sum(slot.length for slot in self.cache.parked),
            memory_bytes=self._entries.used_bytes("memory"),
            memory_budget=self._limits.memory_bytes,
            memory_entries=sum("memory" in e.places for e in entries),
            disk_bytes=self._entries.used_bytes("disk"),
            disk_budget=self._entries.budgets["disk"] if self._disk is not None else 0,
            disk_entries=sum("disk" in e.places for e in entries),
        )

    # Within

    def _scope_of(self, request_id: int) -> str | None:
        if not self._limits.is_on:
            return None
        return (self._client_of(request_id) or "") if self._limits.by_client else ""

    def _recalled(self, sequence: Sequence, source: Source, took_s: float) -> Recalled:
        self._changed = True
        return Recalled(sequence.id, source.tokens, source.tier, took_s, source.reading_s)

    def _must_wait(self, source: Source) -> bool:
        return source.follows is not None or (source.entry is not None and source.entry not in self._states)

    def _await(self, sequence: Sequence, source: Source, now_s: float) -> None:
        """Have a request's beginning moved in as soon as it is there."""
        move_s = None if self._must_wait(source) else self._move_s(source)
        before = sequence.recall
        since_s = before.since_s if before is not None and before.move_s is not None else now_s
        sequence.recall = Recall(source.tokens, move_s, source.reading_s, since_s)
        self._waiting[sequence.id] = source
        if move_s is None and source.entry is not None and self._disk is not None:
            entry = self._entries.get(source.entry)
            if entry is not None and not any(
                other.entry == source.entry for i, other in self._waiting.items() if i != sequence.id
            ):
                self._disk.fetch(entry.id, entry.tokens)

    def _find_again(self, sequence: Sequence, now_s: float) -> None:
        awaited = self._waiting.pop(sequence.id)
        source = self.cache.find(sequence)
        if source is None:
            sequence.recall = None
            return
        if awaited.entry is not None and awaited.entry == source.entry:
            source = awaited
        self._await(sequence, source, now_s)

    def _move_s(self, source: Source) -> float:
        if source.entry is not None:
            entry = self._entries.get(source.entry)
            return self._moves.predict("loading", len(entry.tokens) if entry is not None else source.tokens)
        length = self.cache.slot(source.slot).length
        return self._moves.predict("saving", length) + self._moves.predict("loading", length)

    def _save_live(self, slot: Slot) -> State:
        """The state of a sequence that is parked or runs, remembered on the way."""
        tokens = slot.tokens if slot.holder is None else self._tokens_of(slot.holder.id)
        assert tokens is not None, "a source has tokens"
        tokens = tokens[: slot.length]
        begun_s = time.monotonic()
        state = self._context.save_state(slot.number)
        self._moves.observe("saving", len(tokens), time.monotonic() - begun_s)
        self._remember(slot.scope, tokens, state)
        return state

    def _remember(self, scope: str, tokens: Tokens, state: State) -> str:
        """Put a state into memory; what it continues need not be kept beside it."""
        name = entry_id(scope, tokens)
        new = Entry(name, scope, tokens.copy(), len(state), self.cache.reading_s(len(tokens)), time.time())
        entry = self._entries.add(new, "memory")
        self._states[name] = state
        if self._limits.can_cut_states:
            for length, shorter in self._entries.beginnings(tokens, scope):
                if length < len(tokens) and not shorter.pinned:
                    entry.hits = max(entry.hits, shorter.hits)
                    self._drop_from_memory(shorter)
        self._changed = True
        return name

    @staticmethod
    def _is_content_of(slot: Slot, entry: Entry) -> bool:
        """Whether a parked sequence and an entry hold the same, or one of them the beginning of the other."""
        tokens = slot.tokens
        if tokens is None or slot.scope != entry.scope:
            return False
        return common_prefix(tokens, entry.tokens) == min(len(tokens), len(entry.tokens))

    def _clear(self, slots: Iterable[Slot]) -> None:
        for slot in slots:
            self._context.remove(slot.number)
            self.cache.empty(slot.number)
        self._saving = None

    def _drop_from_memory(self, entry: Entry) -> None:
        self._states.pop(entry.id, None)
        self._entries.drop(entry, "memory")

    def _shrink(self) -> None:
        busy = {source.entry for source in self._waiting.values() if source.entry is not None}
        for entry in self._entries.shrink("memory", busy):
            self._states.pop(entry.id, None)
        for entry in self._entries.shrink("disk", busy):
            if self._disk is not None:
                self._disk.remove(entry.id)

    def _forget(self, entry: Entry) -> None:
        if "disk" in entry.places and self._disk is not None:
            self._disk.remove(entry.id)
        self._states.pop(entry.id, None)
        for place in ("memory", "disk"):
            self._entries.drop(entry, place)
        self._changed = True

    def _use(self, entry: Entry | None) -> None:
        if entry is None:
            return
        self._entries.use(entry, time.time())
        if self._disk is not None and "disk" in entry.places:
            self._disk.touch(entry.id)

    def _take_over(self, store: DiskStore) -> None:
        """What an earlier worker has left on disk."""
        for found in store.scan():
            entry = Entry(
                found.id,
                found.scope,
                found.tokens,
                found.state_bytes,
                found.reading_s,
                found.used_at,
                pinned=found.pinned,
            )
            self._entries.add(entry, "disk")
        self._shrink()

    def _take_in(self, done: Fetched | Written) -> None:
        """What a thread has done."""
        entry = self._entries.get(done.entry)
        self._changed = True
        if isinstance(done, Written):
            if done.on_disk is None:
                logger.warning("a remembered prompt could not be written to disk: %s", done.error)
                self._unwritable.add(done.entry)
            elif entry is None:  # given up meanwhile
                if self._disk is not None:
                    self._disk.remove(done.entry)
            else:
                self._entries.add(entry, "disk")
                self._drop_continued(entry)
                self._shrink()
            return
        if entry is None:
            return
        if done.state is None:
            self._entries.drop(entry, "disk")
            return
        self._moves.observe("fetching", len(entry.tokens), done.took_s)
        self._states[entry.id] = done.state
        self._entries.add(entry, "memory")

    def _drop_continued(self, entry: Entry) -> None:
        """Only now that a longer one is on disk, those that it continues may go from there."""
        if not self._limits.can_cut_states:
            return
        for length, shorter in self._entries.beginnings(entry.tokens, entry.scope):
            if length < len(entry.tokens) and not shorter.pinned and "disk" in shorter.places:
                if self._disk is not None:
                    self._disk.remove(shorter.id)
                self._entries.drop(shorter, "disk")
