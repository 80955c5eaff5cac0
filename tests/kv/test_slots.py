"""Lending KV sequences."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.lender import FirstFree


@dataclass
class Nobody:
    """A request that has begun nothing."""

    id: int = 0
    computed_tokens: int = 0
    in_reader: bool = False
    recall: object | None = None


def lend(slots: FirstFree) -> int | None:
    lease = slots.acquire(Nobody(), 0.0)
    return None if lease is None else lease.slot


def test_every_sequence_is_lent_once_and_then_none() -> None:
    slots = FirstFree(3, 256)
    assert [lend(slots) for _ in range(5)] == [0, 1, 2, None, None]
    assert slots.free == 0


def test_the_lowest_free_number_comes_first() -> None:
    slots = FirstFree(5, 256)
    for _ in range(5):
        lend(slots)
    for sequence in (3, 1, 4):
        slots.release(sequence)
    assert [lend(slots) for _ in range(3)] == [1, 3, 4]


def test_it_says_what_the_context_has() -> None:
    slots = FirstFree(3, 256)
    lend(slots)
    assert (slots.sequences, slots.cells_per_sequence, slots.free) == (3, 256, 2)


@pytest.mark.parametrize("sequence", [0, 2, 3, -1, 10**9])
def test_what_was_not_lent_cannot_be_given_back(sequence: int) -> None:
    slots = FirstFree(3, 256)
    lend(slots)
    lend(slots)
    slots.release(0)
    with pytest.raises(ValueError, match=f"sequence {sequence} was not lent"):
        slots.release(sequence)
    assert slots.free == 2
    assert [lend(slots) for _ in range(3)] == [0, 2, None]


def test_what_is_lent_is_lent_to_nobody_else() -> None:
    slots = FirstFree(2, 256)
    lend(slots)
    with pytest.raises(ValueError, match="sequence 0 is lent already"):
        slots.lend(slots.slots[0], Nobody(), 0.0)


@given(sequences=st.integers(1, 8), moves=st.lists(st.none() | st.integers(0, 7), max_size=50))
def test_no_sequence_is_ever_lent_to_two(sequences: int, moves: list[int | None]) -> None:
    slots = FirstFree(sequences, 256)
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
