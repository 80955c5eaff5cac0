"""Filling batches."""

from __future__ import annotations

import numpy as np
import pytest

from legato.engine.batch import Batch

FIVE = np.arange(5, dtype=np.int32)


def contents(batch: Batch) -> list[tuple[int, int, int, bool]]:
    """Token, position, sequence and whether logits are wanted, as the library sees them."""
    native = batch.native
    assert all(native.n_seq_id[i] == 1 for i in range(len(batch)))
    return [
        (native.token[i], native.pos[i], native.seq_id[i][0], bool(native.logits[i])) for i in range(native.n_tokens)
    ]


def test_the_library_sees_what_was_added() -> None:
    batch = Batch(8)
    assert batch.add(1, FIVE[:3] + 10, 7, want_logits=True) == 2
    assert batch.add_one(2, 99, 4) == 3
    assert batch.add(3, FIVE[:2], 0, want_logits=False) == 5
    assert contents(batch) == [
        (10, 7, 1, False),
        (11, 8, 1, False),
        (12, 9, 1, True),
        (99, 4, 2, True),
        (0, 0, 3, False),
        (1, 1, 3, False),
    ]


def test_nothing_is_left_of_a_batch_that_was_cleared() -> None:
    batch = Batch(5)
    batch.add(1, FIVE, 7, want_logits=True)
    batch.clear()
    assert len(batch) == 0
    batch.add(2, FIVE, 0, want_logits=False)
    assert contents(batch) == [(i, i, 2, False) for i in range(5)]


def test_a_batch_can_be_filled_to_the_brim() -> None:
    batch = Batch(5)
    assert batch.add(0, FIVE[:4], 0, want_logits=False) == 3
    assert batch.add_one(1, 7, 0) == 4
    assert len(batch) == batch.capacity == 5


@pytest.mark.parametrize("used", [1, 3, 5])
def test_too_many_tokens_are_refused_and_change_nothing(used: int) -> None:
    batch = Batch(5)
    batch.add(0, FIVE[:used], 0, want_logits=True)
    before = contents(batch)
    with pytest.raises(ValueError, match=f"5 tokens has no room for {6 - used} beside {used}"):
        batch.add(1, np.zeros(6 - used, np.int32), 0, want_logits=True)
    assert contents(batch) == before


def test_one_token_too_many_is_refused() -> None:
    batch = Batch(1)
    batch.add_one(0, 7, 0)
    with pytest.raises(ValueError, match="1 tokens is full"):
        batch.add_one(1, 8, 0)
    assert contents(batch) == [(7, 0, 0, True)]


def test_adding_nothing_is_refused_and_changes_nothing() -> None:
    batch = Batch(5)
    batch.add_one(0, 7, 0)
    with pytest.raises(ValueError, match="no tokens"):
        batch.add(1, FIVE[:0], 0, want_logits=False)
    assert contents(batch) == [(7, 0, 0, True)]
