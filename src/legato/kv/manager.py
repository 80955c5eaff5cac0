"""Moves KV state between cells, memory and disk, as `legato.kv` decides, and never when an answer would wait for it."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from legato.core.cache import CacheAction, CacheEntry, CacheState, Recalled
from legato.core.tokens import Tokens, common_prefix
from legato.engine.context import Context, EngineError
from legato.kv.disk import DiskStore
from legato.kv.entries import Entry
from legato.kv.move_costs import MoveCosts
from legato.kv.placement import PrefixCache
from legato.kv.saved_states import State, States
from legato.kv.slots import KvSlots, Lease, Slot, Source
from legato.scheduling.costs import CostModel
from legato.scheduling.scheduler import Released
from legato.scheduling.state import Recall, Sequence

logger = logging.getLogger(__name__)

WORTH_KEEPING_S = 0.05
"""Prefixes that are read faster than this are not kept outside the cells."""
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


@dataclass(slots=True)
class _Prices:
    """What reading and moving take, as far as calls and moves have shown."""

    costs: CostModel
    moves: MoveCosts

    def reading_s(self, start: int, end: int) -> float:
        return self.costs.chunk_s(start, end - start) if end > start else 0.0

    def saving_s(self, tokens: int) -> float:
        return self.moves.predict("saving", tokens)

    def loading_s(self, tokens: int) -> float:
        return self.moves.predict("loading", tokens)

    def fetching_s(self, tokens: int) -> float:
        return self.moves.predict("fetching", tokens)

    def decoding_s(self) -> float:
        return self.costs.decode_s((1,))


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
        self._waiting: dict[int, tuple[Sequence, Source]] = {}
        """Requests whose beginnings are not in their cells yet, and where those come from."""
        self._saving: _Saving | None = None
        self._states = States(
            limits.memory_bytes,
            limits.disk_bytes,
            store=store,
            moves=self._moves,
            can_cut=limits.can_cut_states,
            busy=lambda: {source.entry for _, source in self._waiting.values() if source.entry is not None},
            is_busy=is_busy,
        )
        self.cache = PrefixCache(
            KvSlots(context.sequences, context.cells_per_sequence),
            self._states.entries,
            _Prices(costs, self._moves),
            tokens_of=tokens_of,
            scope_of=self._scope_of,
            can_cut=limits.can_cut,
            can_cut_states=limits.can_cut_states,
        )
        """Lends the context's sequences."""

    @property
    def remembers(self) -> bool:
        """Whether anything is kept after its request."""
        return self._limits.is_on

    def _scope_of(self, request_id: int) -> str | None:
        if not self.remembers:
            return None
        return (self._client_of(request_id) or "") if self._limits.by_client else ""

    # A request's way

    def admitted(self, sequence: Sequence, lease: Lease, now_s: float) -> Recalled | None:
        """A request has cells: clear them, or keep what it can go on from.

        Returns:
            What it goes on from, if that is in place.
        """
        source = lease.source
        if source is not None and source.slot == lease.slot and self._context.cut(lease.slot, source.tokens):
            sequence.computed_tokens = source.tokens
            return self._recalled(sequence, source, 0.0)
        self._context.remove(lease.slot)
        if source is not None and source.slot != lease.slot:
            self._await(sequence, source, now_s)
        return None

    def border(self, held_back: list[Sequence], now_s: float) -> None:
        """Between two steps: see who has what it waited for, and who waits no longer."""
        self._states.collect()
        for request_id in [i for i, (sequence, _) in self._waiting.items() if sequence.recall is None]:
            self._let_go(request_id)  # its moving would have taken too long, and it is read
        for sequence in held_back:
            _, source = self._waiting[sequence.id]
            if source.follows is not None:
                slot = self.cache.slot(source.slot)
                is_followed = slot.holder is not None and slot.holder.id == source.follows
                if is_followed and slot.length < source.tokens:
                    continue
            elif self._must_be_fetched(source) and self._states.can_be_fetched(source.entry or ""):
                recall = sequence.recall
                if recall is not None and now_s - recall.since_s > recall.reading_s:
                    sequence.recall = None  # no disk should take longer than reading
                    self._let_go(sequence.id)
                continue
            self._await_again(sequence, now_s)

    def move(self, sequence: Sequence, now_s: float) -> Recalled | None:
        """Put the beginning of a request's prompt into its cells.

        Returns:
            What it goes on from: no tokens if that failed. None if it has to wait again.
        """
        source = self._found_again(sequence)
        if source is None:
            self._let_go(sequence.id)
            return Recalled(sequence.id, 0, "memory", 0.0, 0.0)
        if source.follows is not None or self._must_be_fetched(source):
            self._await(sequence, source, now_s)
            return None
        assert sequence.slot is not None, "only admitted requests recall"
        begun_s = time.monotonic()
        try:
            self._load(sequence.slot, source)
        except EngineError as error:
            logger.warning("a remembered prompt is read again: %s", error)
            if source.entry is not None and (entry := self._states.entries.get(source.entry)) is not None:
                self._states.forget(entry)
            self._context.remove(sequence.slot)
            return Recalled(sequence.id, 0, source.tier, 0.0, 0.0)
        finally:
            self._let_go(sequence.id)
        return self._recalled(sequence, source, time.monotonic() - begun_s)

    def released(self, released: Released, *, is_sound: bool = True) -> None:
        """A request gave its cells up: what is in them stays until somebody needs them.

        Args:
            released: What it held.
            is_sound: Its cells hold what they should; if not, they are cleared.
        """
        sequence, slot = released.sequence, released.slot
        self._let_go(sequence.id)
        scope = self._scope_of(sequence.id)
        if scope is None or not is_sound or released.computed_tokens == 0:
            self._context.remove(slot)
            return
        tokens = self._tokens_of(sequence.id)[: released.computed_tokens]
        self.cache.park(slot, tokens, scope, time.monotonic())
        self._states.changed = True

    def preempted(self, released: Released) -> None:
        """A request had to give its cells to another, who has them already.

        Args:
            released: What it held.
        """
        self._let_go(released.sequence.id)

    def keep(self, sequence: Sequence, state: State) -> None:
        """Remember a state that had to leave its cells anyway: all that a request has read.

        Args:
            sequence: Whose.
            state: Of those tokens.
        """
        if (scope := self._scope_of(sequence.id)) is not None:
            self._remember(scope, self._tokens_of(sequence.id)[: sequence.computed_tokens], state)

    def _await(self, sequence: Sequence, source: Source, now_s: float) -> None:
        """Have a request's beginning moved in as soon as it is there."""
        move_s = None
        if source.entry is not None and self._must_be_fetched(source):
            self._states.fetch(source.entry)
        elif source.follows is None:
            move_s = self._move_s(source)
        before = sequence.recall
        since_s = before.since_s if before is not None and before.move_s is not None else now_s
        sequence.recall = Recall(source.tokens, move_s, source.reading_s, since_s, source.follows)
        self._waiting[sequence.id] = sequence, source

    def _await_again(self, sequence: Sequence, now_s: float) -> None:
        """What it waited for is there, or never will be."""
        source = self._found_again(sequence)
        if source is None:
            sequence.recall = None
            self._let_go(sequence.id)
        else:
            self._await(sequence, source, now_s)

    def _found_again(self, sequence: Sequence) -> Source | None:
        """Where a request's beginning is now."""
        _, awaited = self._waiting[sequence.id]
        source = self.cache.find(sequence)
        if source is not None and source.entry is not None and source.entry == awaited.entry:
            return awaited  # it came from disk, though it is in memory now
        return source

    def _let_go(self, request_id: int) -> None:
        """It waits for nothing any more."""
        if self._waiting.pop(request_id, None) is not None:
            self._states.shrink()

    def _must_be_fetched(self, source: Source) -> bool:
        return source.entry is not None and self._states.in_memory(source.entry) is None

    def _move_s(self, source: Source) -> float:
        if source.entry is not None:
            entry = self._states.entries.get(source.entry)
            return self._moves.predict("loading", len(entry.tokens) if entry is not None else source.tokens)
        length = self.cache.slot(source.slot).length
        return self._moves.predict("saving", length) + self._moves.predict("loading", length)

    def _load(self, slot: int, source: Source) -> None:
        """Put a state into a sequence, and cut what is too much.

        Raises:
            EngineError: The library refuses it.
        """
        if source.entry is None:
            state: State | None = self._save_live(self.cache.slot(source.slot))
        else:
            state = self._states.in_memory(source.entry)
            self._states.use(source.entry)
        assert state is not None, "it need not be fetched"
        begun_s = time.monotonic()
        self._context.load_state(slot, state)
        self._moves.observe("loading", self._context.length(slot), time.monotonic() - begun_s)
        if not self._context.cut(slot, source.tokens):
            raise EngineError("the state can't be cut there")

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

    def _remember(self, scope: str, tokens: Tokens, state: State) -> None:
        self._states.remember(scope, tokens, state, self.cache.reading_s(len(tokens)))

    def _recalled(self, sequence: Sequence, source: Source, took_s: float) -> Recalled:
        self._states.changed = True
        return Recalled(sequence.id, source.tokens, source.tier, took_s, source.reading_s)

    # In the time that is left

    def tend(self, room_s: float) -> bool:
        """Do a bit of what can wait: save what ended, write what is saved.

        Args:
            room_s: How long that may take.

        Returns:
            Whether anything was done: there may be more.
        """
        self._states.collect()
        if self._states.entries.budgets["memory"] and self._save_some(room_s):
            return True
        return not self._states.is_writing and self._states.write_some()

    def tend_or_wait(self) -> bool:
        """While nobody needs the engine: do a bit of what can wait, or wait a moment for what is being written.

        Returns:
            Whether there is more to do, or to wait for.
        """
        if self.tend(math.inf):
            return True
        if self._states.is_writing:
            time.sleep(WRITING_LOOK_S)
        return self._states.is_writing

    def close(self) -> None:
        """Save and write what is not, if that takes only a moment."""
        until_s = time.monotonic() + CLOSING_S
        if self._states.has_disk:
            while time.monotonic() < until_s and self.tend_or_wait():
                pass
        self._states.close(max(0.0, until_s - time.monotonic()))

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
        begun_s = time.monotonic()
        state = self._context.save_state(saving.slot.number, into=saving.buffer)
        self._moves.observe("saving", len(saving.tokens), time.monotonic() - begun_s)
        self._remember(saving.slot.scope, saving.tokens, state)
        return True

    def _next_to_save(self) -> _Saving | None:
        slot = self.cache.unsaved(self._is_not_to_be_saved)
        if slot is None or slot.tokens is None:
            return None
        return _Saving(slot, slot.tokens, np.empty(self._context.state_bytes(slot.number), dtype=np.uint8))

    def _is_not_to_be_saved(self, slot: Slot) -> bool:
        if slot.tokens is None or self.cache.reading_s(slot.length) < WORTH_KEEPING_S:
            return True
        is_too_large = self._context.state_bytes(slot.number) > self._states.entries.budgets["memory"]
        return is_too_large or self._states.was_given_up(slot.scope, slot.tokens)

    # What people ask

    def act(self, action: CacheAction, entry_name: str | None) -> bool:
        """Clear, remove, pin or unpin.

        Args:
            action: What to do.
            entry_name: With which entry, or the beginning of its id; None for all.

        Returns:
            Whether there is such an entry, and only one.
        """
        found = [e for e in self._states.entries if entry_name is None or e.id.startswith(entry_name)]
        if entry_name is not None and len(found) != 1:
            return False
        if entry_name is None and action == "remove":
            self._clear(self.cache.parked)
        for entry in found:
            if action == "remove":
                # What is in cells as well would be saved again.
                self._clear([slot for slot in self.cache.parked if _is_content_of(slot, entry)])
                self._states.forget(entry)
            elif action in ("pin", "unpin"):
                self._states.pin(entry, pinned=action == "pin")
        return True

    def set_budgets(self, memory_bytes: int | None, disk_bytes: int | None) -> None:
        """Change how much may be remembered outside the cells; what is too much goes at once.

        Args:
            memory_bytes: In memory; None leaves it as it is.
            disk_bytes: On disk, likewise; nothing changes there if there is no disk to use.
        """
        self._states.set_budget("memory", memory_bytes)
        if self._states.has_disk:
            self._states.set_budget("disk", disk_bytes)

    def _clear(self, slots: Iterable[Slot]) -> None:
        for slot in slots:
            self._context.remove(slot.number)
            self.cache.empty(slot.number)
        self._saving = None
        self._states.changed = True

    @property
    def listing(self) -> list[CacheEntry]:
        """What is remembered, without its content."""
        now_s, now = time.monotonic(), time.time()
        parked = [
            CacheEntry("", s.scope, s.length, 0, 0, max(0.0, now_s - s.used_s), ["live"], pinned=False)
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
            for e in self._states.entries
        ]

    def state_if_changed(self) -> CacheState | None:
        """Figures, if they are others than when this was asked last."""
        if not self._states.changed:
            return None
        self._states.changed = False
        return self.state

    @property
    def state(self) -> CacheState:
        """Figures."""
        entries = self._states.entries
        return CacheState(
            parked_tokens=sum(slot.length for slot in self.cache.parked),
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
