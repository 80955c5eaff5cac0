"""Where a request's KV state comes from: the cells that hold most of its prompt, or what is remembered elsewhere.

Every choice is made in seconds of work: what is left to prefill, what moving a state takes, and what it would take to
prefill again what is overwritten.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from legato.core.choices import CacheScope
from legato.core.tokens import Tokens, common_prefix
from legato.kv.entries import Entries, Entry
from legato.kv.slots import Holder, KvSlots, Slot, scope_of
from legato.kv.sources import Lease, Source

PREFILL_AT_LEAST = 4
"""Tokens of a prompt that are prefilled even if all are remembered. The last one's logits are needed, and the library
rounds single tokens in another way than several."""
SHARED_AT_LEAST = 16
"""Tokens that a prompt must share for anything to be made of it."""
WORTH_MOVING = 0.8
"""A prefix is taken from elsewhere if that takes less than this share of prefilling it."""
WAIT_WEIGHT = 0.5
"""A second of waiting for another's prefill counts for so much work of one's own."""
RETURNS = 0.5
"""How likely somebody goes on from where an answer has just ended."""
HALF_LIFE_S = 600.0
"""Time in which that halves."""
SPLIT_TOKENS = 50
"""Answers that are not side by side are written in two passes; so many tokens of each count for where it goes."""


class Prices(Protocol):
    """What things take, in seconds."""

    def prefill_s(self, start: int, end: int) -> float:
        """Prefilling the tokens from `start` to `end`."""
        ...

    def saving_s(self, tokens: int) -> float:
        """Taking the state of so many tokens out of the cells."""
        ...

    def loading_s(self, tokens: int) -> float:
        """Putting it into cells."""
        ...

    def fetching_s(self, tokens: int) -> float:
        """Reading it from disk into memory."""
        ...

    def decoding_s(self) -> float:
        """One more pass for answers that are not side by side."""
        ...


@dataclass(frozen=True, slots=True)
class _Way:
    """One way to begin a prompt."""

    work_s: float
    source: Source | None
    target: Slot


class Placement:
    """Lends KV sequences, each to whom its contents help most, and finds the beginnings of prompts.

    Args:
        slots: The KV sequences.
        entries: What is remembered elsewhere.
        prices: What things take.
        scope: Whose prefixes requests may begin with.
        can_cut: Cells can be cut at any token; if not, only whole contents are of use.
        can_cut_states: So can states that were taken out of cells. Of sliding windows, states hold the last one alone.
    """

    def __init__(
        self,
        slots: KvSlots,
        entries: Entries,
        prices: Prices,
        *,
        scope: CacheScope = "server",
        can_cut: bool = True,
        can_cut_states: bool = True,
    ) -> None:
        self._slots = slots
        self.entries = entries
        """What is remembered outside the cells."""
        self._prices = prices
        self._scope: CacheScope = scope
        self._can_cut = can_cut
        self._can_cut_states = can_cut and can_cut_states

    @property
    def sequences(self) -> int:
        """How many KV sequences there are."""
        return self._slots.sequences

    @property
    def cells_per_sequence(self) -> int:
        """KV cells of each, in tokens."""
        return self._slots.cells_per_sequence

    @property
    def free(self) -> int:
        """Sequences that nobody holds."""
        return self._slots.free

    @property
    def parked(self) -> list[Slot]:
        """Those that hold what has ended."""
        return [slot for slot in self._slots.slots if slot.holder is None and slot.length]

    def acquire(self, holder: Holder, now_s: float) -> Lease | None:
        """Lend the sequence from which a request is begun with the least work, or None if all are lent.

        Args:
            holder: Who wants it.
            now_s: Now, on the engine's clock.
        """
        free = [slot for slot in self._slots.slots if slot.holder is None]
        if not free:
            return None
        tokens, scope = holder.tokens, scope_of(holder, self._scope)
        losses = {slot.number: self._loss_s(slot, tokens, scope, now_s) for slot in free}
        ways = [_Way(self._prices.prefill_s(0, len(tokens)), None, min(free, key=lambda s: losses[s.number]))]
        for source, work_s in self._sources(holder, tokens, scope):
            targets = free
            if source.slot is not None and self._slots.slots[source.slot].holder is None:
                in_place = self._slots.slots[source.slot]
                ways.append(_Way(self._rest_s(tokens, source.tokens), source, in_place))
                targets = [slot for slot in free if slot is not in_place]
            if targets and work_s < WORTH_MOVING * source.prefill_s:
                target = min(targets, key=lambda s: losses[s.number])
                ways.append(_Way(work_s + self._rest_s(tokens, source.tokens), source, target))
        best = min(ways, key=lambda way: way.work_s + losses[way.target.number])
        self._slots.lend(best.target, holder, now_s)
        best.target.tokens, best.target.scope = tokens, scope or ""
        return Lease(best.target.number, best.source)

    def find(self, holder: Holder) -> Source | None:
        """Where the beginning of a request's prompt is now, which has its sequence already; None to prefill it."""
        tokens, scope = holder.tokens, scope_of(holder, self._scope)
        ways = [
            (work_s + self._rest_s(tokens, source.tokens), number, source)
            for number, (source, work_s) in enumerate(self._sources(holder, tokens, scope))
            if work_s < WORTH_MOVING * source.prefill_s
        ]
        return min(ways)[2] if ways else None

    def release(self, slot: int) -> None:
        """Take a sequence back, empty."""
        self._slots.release(slot)

    def park(self, slot: int, tokens: Tokens, scope: str, now_s: float) -> None:
        """Say what is in a sequence that was taken back."""
        parked = self._slots.slots[slot]
        parked.tokens, parked.scope, parked.used_s = tokens, scope, now_s

    def empty(self, slot: int) -> None:
        """There is nothing in it any more."""
        self._slots.slots[slot].tokens = None

    def slot(self, number: int | None) -> Slot:
        """A sequence by its number."""
        assert number is not None, "asked for sources in cells alone"
        return self._slots.slots[number]

    def unsaved(self, is_refused: Callable[[Slot], bool] = lambda _slot: False) -> Slot | None:
        """The parked sequence whose state is worth most and is not remembered elsewhere.

        Args:
            is_refused: Whether a sequence is not to be saved.
        """
        parked = [slot for slot in self.parked if not self._is_elsewhere(slot) and not is_refused(slot)]
        return max(parked, key=lambda slot: self._prices.prefill_s(0, slot.length), default=None)

    def prefill_s(self, tokens: int) -> float:
        """What prefilling a prefix of so many tokens takes."""
        return self._prices.prefill_s(0, tokens)

    def _sources(self, holder: Holder, tokens: Tokens, scope: str | None) -> Iterator[tuple[Source, float]]:
        """Where prefixes of a prompt are, with the work of moving each into other cells."""
        if scope is None:
            return
        most = len(tokens) - PREFILL_AT_LEAST
        for slot in self._slots.slots:
            if slot.tokens is None or slot.scope != scope or slot.holder is holder:
                continue
            shared = min(common_prefix(slot.tokens, tokens), most)
            if shared < SHARED_AT_LEAST:
                continue
            if slot.holder is None:
                is_whole = shared == slot.length
                if self._can_cut or is_whole:
                    is_movable = self._can_cut_states or is_whole
                    yield self._live(slot, shared), self._moving_s(slot.length) if is_movable else math.inf
                continue
            if not self._can_cut_states:
                continue
            there = min(slot.length, shared)
            if there >= SHARED_AT_LEAST:
                yield self._live(slot, there), self._moving_s(slot.length)
            # Those who wait themselves are not followed: two of them would wait for each other.
            if there < shared and slot.holder.restore is None:
                # A long prompt's state comes into its cells when all of it is prefilled.
                until = len(slot.tokens) if slot.holder.in_prefill_context else shared
                wait_s = self._prices.prefill_s(min(slot.holder.computed_tokens, until), until)
                source = Source(
                    shared,
                    "live",
                    self._prices.prefill_s(0, shared),
                    slot=slot.number,
                    follows=slot.holder.id,
                )
                yield source, self._moving_s(until) + WAIT_WEIGHT * wait_s
        for length, entry in self._remembered(tokens, scope):
            shared = min(length, most)
            if shared < SHARED_AT_LEAST or (not self._can_cut_states and shared < len(entry.tokens)):
                continue
            in_memory = "memory" in entry.places
            work_s = self._prices.loading_s(len(entry.tokens))
            work_s += 0.0 if in_memory else self._prices.fetching_s(len(entry.tokens))
            tier = "memory" if in_memory else "disk"
            yield Source(shared, tier, self._prices.prefill_s(0, shared), entry=entry.id), work_s

    def _remembered(self, tokens: Tokens, scope: str) -> list[tuple[int, Entry]]:
        """Entries that share a prefix: the smallest in memory and the smallest on disk."""
        if not self._can_cut_states:
            return self.entries.beginnings(tokens, scope)
        length, entries = self.entries.longest(tokens, scope)
        in_memory = [e for e in entries if "memory" in e.places]
        smallest = [min(group, key=lambda e: e.bytes) for group in (in_memory, entries) if group]
        return [(length, entry) for entry in smallest]

    def _live(self, slot: Slot, tokens: int) -> Source:
        return Source(tokens, "live", self._prices.prefill_s(0, tokens), slot=slot.number)

    def _moving_s(self, tokens: int) -> float:
        return self._prices.saving_s(tokens) + self._prices.loading_s(tokens)

    def _rest_s(self, tokens: Tokens, remembered: int) -> float:
        return self._prices.prefill_s(remembered, len(tokens))

    def _loss_s(self, slot: Slot, tokens: Tokens, scope: str | None, now_s: float) -> float:
        """What it costs to begin another prompt in a sequence: what was in it, and where it is."""
        running = {s.number for s in self._slots.slots if s.holder is not None}
        splits = _blocks(running | {slot.number}) - max(1, _blocks(running))
        loss_s = max(0, splits) * SPLIT_TOKENS * self._prices.decoding_s()
        if slot.tokens is not None:
            age_s = max(0.0, now_s - slot.used_s)
            loss_s += 1e-6 / (1 + age_s)  # of those that are worth nothing, the oldest
            shared = common_prefix(slot.tokens, tokens) if slot.scope == scope else 0
            if shared < len(slot.tokens) and not self._is_elsewhere(slot):
                loss_s += RETURNS * 0.5 ** (age_s / HALF_LIFE_S) * self._prices.prefill_s(shared, slot.length)
        return loss_s + 1e-9 * slot.number

    def _is_elsewhere(self, slot: Slot) -> bool:
        """Whether what a parked sequence holds is remembered, or held by another one too."""
        tokens = slot.tokens
        if tokens is None:
            return True
        if not self._can_cut_states:  # what goes on from there is of no use for it
            return any(length == len(tokens) for length, _ in self.entries.beginnings(tokens, slot.scope)) or any(
                other.number < slot.number and other.scope == slot.scope and _are_equal(tokens, other.tokens)
                for other in self.parked
                if other.tokens is not None
            )
        return self.entries.covers(tokens, slot.scope) or any(
            other is not slot
            and other.tokens is not None
            and other.scope == slot.scope
            and len(tokens) <= other.length
            and (len(tokens) < other.length or other.number < slot.number)
            and common_prefix(tokens, other.tokens) == len(tokens)
            for other in self._slots.slots
        )


def _are_equal(a: Tokens, b: Tokens) -> bool:
    return len(a) == len(b) == common_prefix(a, b)


def _blocks(numbers: set[int]) -> int:
    """Groups of neighbours."""
    return sum(number - 1 not in numbers for number in numbers)
