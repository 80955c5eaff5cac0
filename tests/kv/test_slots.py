"""Lending KV sequences."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from legato.core.tokens import Tokens
from legato.kv.slots import KvSlots
from legato.kv.sources import Restore, Source


@dataclass
class Nobody:
    """A request that has begun nothing."""

    id: int = 0
    computed_tokens: int = 0
    client: str | None = None
    in_prefill_context: bool = False
    restore: Restore | None = None
    awaits: Source | None = None

    @property
    def tokens(self) -> Tokens:
        return np.zeros(1, dtype=np.int32)


def lend(slots: KvSlots) -> int | None:
    """Lend the first free one."""
    free = next((slot for slot in slots.slots if slot.holder is None), None)
    if free is not None:
        slots.lend(free, Nobody(), "", 0.0)
    return None if free is None else free.number


def test_every_sequence_is_lent_once_and_then_none() -> None:
    slots = KvSlots(3, 256)
    assert [lend(slots) for _ in range(5)] == [0, 1, 2, None, None]
    assert slots.free == 0


def test_the_lowest_free_number_comes_first() -> None:
    slots = KvSlots(5, 256)
    for _ in range(5):
        lend(slots)
    for sequence in (3, 1, 4):
        slots.release(sequence)
    assert [lend(slots) for _ in range(3)] == [1, 3, 4]


def test_it_says_what_the_context_has() -> None:
    slots = KvSlots(3, 256)
    lend(slots)
    assert (slots.sequences, slots.cells_per_sequence, slots.free) == (3, 256, 2)


@pytest.mark.parametrize("sequence", [0, 2, 3, -1, 10**9])
def test_what_was_not_lent_cannot_be_given_back(sequence: int) -> None:
    slots = KvSlots(3, 256)
    lend(slots)
    lend(slots)
    slots.release(0)
    with pytest.raises(ValueError, match=f"sequence {sequence} was not lent"):
        slots.release(sequence)
    assert slots.free == 2
    assert [lend(slots) for _ in range(3)] == [0, 2, None]


def test_what_is_lent_is_lent_to_nobody_else() -> None:
    slots = KvSlots(2, 256)
    lend(slots)
    with pytest.raises(ValueError, match="sequence 0 is lent already"):
        slots.lend(slots.slots[0], Nobody(), "", 0.0)


@given(sequences=st.integers(1, 8), moves=st.lists(st.none() | st.integers(0, 7), max_size=50))
def test_no_sequence_is_ever_lent_to_two(sequences: int, moves: list[int | None]) -> None:
    slots = KvSlots(sequences, 256)
    lent: list[int] = []
    for move in moves:
        if move is None:
            sequence = lend(slots)
            assert sequence == min(set(range(sequences)) - set(lent), default=None)
            if sequence is not None:
                lent.append(sequence)
        elif lent:
            slots.release(lent.pop(move % len(lent)))
        assert slots.free == sequences - len(lent)
