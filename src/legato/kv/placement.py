"""Where a request's KV state comes from: the cells that hold most of its prompt, or what is remembered elsewhere.

Every choice is made in seconds of work: what is left to prefill, what moving a state takes, and what it would take to
prefill again what is overwritten.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Protocol

from legato.core.choices import CacheScope
from legato.core.tokens import Tokens, common_prefix
from legato.kv.entries import Entries, Entry, Place
from legato.kv.move_costs import MoveCosts
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


class PrefillCosts(Protocol):
    """What computing takes, in seconds, as far as calls have shown."""

    def chunk_s(self, start: int, tokens: int) -> float:
        """Prefilling so many tokens, the first of them at `start`."""
        ...

    def decode_s(self, depths: tuple[int, ...]) -> float:
        """Decoding sequences of so many tokens."""
        ...


class Placement(KvSlots):
    """KV sequences that are lent each to whom its contents help most; finds the beginnings of prompts.

    Args:
        sequences: How many there are.
        cells_per_sequence: KV cells of each, in tokens.
        entries: What is remembered elsewhere.
        costs: What computing takes.
        moves: What moving takes.
        scope: Whose prefixes requests may begin with.
        can_cut: Cells can be cut at any token; if not, only whole contents are of use.
        can_cut_states: So can states that were taken out of cells. Of sliding windows, states hold the last one alone.
    """

    def __init__(
        self,
        sequences: int,
        cells_per_sequence: int,
        entries: Entries,
        costs: PrefillCosts,
        moves: MoveCosts,
        *,
        scope: CacheScope = "server",
        can_cut: bool = True,
        can_cut_states: bool = True,
    ) -> None:
        super().__init__(sequences, cells_per_sequence)
        self._entries = entries
        self._costs = costs
        self._moves = moves
        self._scope: CacheScope = scope
        self._can_cut = can_cut
        self._can_cut_states = can_cut and can_cut_states

    @property
    def parked(self) -> list[Slot]:
        """Those that hold what has ended."""
        return [slot for slot in self.slots if slot.holder is None and slot.length]

    def acquire(self, holder: Holder, now_s: float) -> Lease | None:
        """Lend the sequence from which a request is begun with the least work, or None if all are lent."""
        free = [slot for slot in self.slots if slot.holder is None]
        if not free:
            return None
        tokens, scope = holder.tokens, scope_of(holder, self._scope)
        losses = {slot.number: self._loss_s(slot, tokens, scope, now_s) for slot in free}
        free.sort(key=lambda slot: losses[slot.number])
        ways: list[tuple[float, Source | None, Slot]] = [(self.prefill_s(len(tokens)), None, free[0])]
        for source in self._sources(holder, tokens, scope):
            rest_s = self.prefill_s(len(tokens), source.tokens)
            in_place = next((slot for slot in free if slot.number == source.slot), None)
            if in_place is not None:
                ways.append((rest_s, source, in_place))
            target = next((slot for slot in free if slot is not in_place), None)
            if target is not None and _is_worth_moving(source):
                ways.append((source.bring_s + rest_s, source, target))
        _, best, slot = min(ways, key=lambda way: way[0] + losses[way[2].number])
        self.lend(slot, holder, scope or "", now_s)
        return Lease(slot.number, best)

    def find(self, holder: Holder) -> Source | None:
        """Where the beginning of a request's prompt is now, which has its sequence already; None to prefill it."""
        tokens, scope = holder.tokens, scope_of(holder, self._scope)
        return min(
            filter(_is_worth_moving, self._sources(holder, tokens, scope)),
            key=lambda source: source.bring_s + self.prefill_s(len(tokens), source.tokens),
            default=None,
        )

    def park(self, slot: int, tokens: Tokens, scope: str, now_s: float) -> None:
        """Say what is in a sequence that was taken back."""
        parked = self.slots[slot]
        parked.tokens, parked.scope, parked.used_s = tokens, scope, now_s

    def unsaved(self, is_refused: Callable[[Slot], bool] = lambda _slot: False) -> Slot | None:
        """The parked sequence whose state is worth most, is not remembered elsewhere, and is not refused."""
        parked = [slot for slot in self.parked if not self._is_elsewhere(slot) and not is_refused(slot)]
        return max(parked, key=lambda slot: self.prefill_s(slot.length), default=None)

    def prefill_s(self, end: int, start: int = 0) -> float:
        """What prefilling the tokens from `start` to `end` takes."""
        return self._costs.chunk_s(start, end - start) if end > start else 0.0

    def _sources(self, holder: Holder, tokens: Tokens, scope: str | None) -> Iterator[Source]:
        """Where prefixes of a prompt are."""
        if scope is None:
            return
        most = len(tokens) - PREFILL_AT_LEAST
        for slot in self.slots:
            if slot.tokens is None or slot.scope != scope or slot.holder is holder:
                continue
            shared = min(common_prefix(slot.tokens, tokens), most)
            if shared < SHARED_AT_LEAST:
                continue
            if slot.holder is None:
                is_whole = shared == slot.length
                if self._can_cut or is_whole:
                    is_movable = self._can_cut_states or is_whole
                    yield self._live(slot, shared, self._moving_s(slot.length) if is_movable else math.inf)
                continue
            if not self._can_cut_states:
                continue
            there = min(slot.length, shared)
            if there >= SHARED_AT_LEAST:
                yield self._live(slot, there, self._moving_s(slot.length))
            # Those who wait themselves are not followed: two of them would wait for each other.
            if there < shared and slot.holder.restore is None:
                # A long prompt's state comes into its cells when all of it is prefilled.
                until = len(slot.tokens) if slot.holder.in_prefill_context else shared
                wait_s = self.prefill_s(until, slot.holder.computed_tokens)
                yield self._live(slot, shared, self._moving_s(until) + WAIT_WEIGHT * wait_s, slot.holder.id)
        for length, entry in self._remembered(tokens, scope):
            shared = min(length, most)
            if shared < SHARED_AT_LEAST or (not self._can_cut_states and shared < len(entry.tokens)):
                continue
            tier: Place = "memory" if "memory" in entry.places else "disk"
            bring_s = self._moves.predict("loading", len(entry.tokens))
            if tier == "disk":
                bring_s += self._moves.predict("fetching", len(entry.tokens))
            yield Source(shared, tier, self.prefill_s(shared), bring_s, entry=entry.id)

    def _remembered(self, tokens: Tokens, scope: str) -> list[tuple[int, Entry]]:
        """Entries that share a prefix: the smallest in memory and the smallest on disk."""
        if not self._can_cut_states:
            return self._entries.beginnings(tokens, scope)
        length, entries = self._entries.longest(tokens, scope)
        in_memory = [e for e in entries if "memory" in e.places]
        smallest = [min(group, key=lambda e: e.bytes) for group in (in_memory, entries) if group]
        return [(length, entry) for entry in smallest]

    def _live(self, slot: Slot, tokens: int, bring_s: float, follows: int | None = None) -> Source:
        return Source(tokens, "live", self.prefill_s(tokens), bring_s, slot=slot.number, follows=follows)

    def _moving_s(self, tokens: int) -> float:
        return self._moves.predict("saving", tokens) + self._moves.predict("loading", tokens)

    def _loss_s(self, slot: Slot, tokens: Tokens, scope: str | None, now_s: float) -> float:
        """What it costs to begin another prompt in a sequence: what was in it, and where it is."""
        running = {s.number for s in self.slots if s.holder is not None}
        splits = _blocks(running | {slot.number}) - max(1, _blocks(running))
        loss_s = max(0, splits) * SPLIT_TOKENS * self._costs.decode_s((1,))
        if slot.tokens is not None:
            age_s = max(0.0, now_s - slot.used_s)
            loss_s += 1e-6 / (1 + age_s)  # of those that are worth nothing, the oldest
            shared = common_prefix(slot.tokens, tokens) if slot.scope == scope else 0
            if shared < len(slot.tokens) and not self._is_elsewhere(slot):
                loss_s += RETURNS * 0.5 ** (age_s / HALF_LIFE_S) * self.prefill_s(slot.length, shared)
        return loss_s + 1e-9 * slot.number

    def _is_elsewhere(self, slot: Slot) -> bool:
        """Whether what a parked sequence holds is remembered, or held by another one too."""
        tokens = slot.tokens
        if tokens is None:
            return True
        others = (
            other
            for other in self.slots
            if other is not slot
            and other.tokens is not None
            and other.scope == slot.scope
            and len(tokens) <= other.length
            and common_prefix(tokens, other.tokens) == len(tokens)
        )
        if self._can_cut_states:
            return self._entries.covers(tokens, slot.scope) or any(
                len(tokens) < other.length or other.number < slot.number for other in others
            )
        # What goes on from there is of no use for it.
        return any(length == len(tokens) for length, _ in self._entries.beginnings(tokens, slot.scope)) or any(
            other.holder is None and len(tokens) == other.length and other.number < slot.number for other in others
        )


def _is_worth_moving(source: Source) -> bool:
    return source.bring_s < WORTH_MOVING * source.prefill_s


def _blocks(numbers: set[int]) -> int:
    """Groups of neighbours."""
    return sum(number - 1 not in numbers for number in numbers)
