"""Modelled cells: what real ones would not do is an error at once."""

from __future__ import annotations

import numpy as np
import pytest

from legato.core.engine_errors import EngineError
from legato.simulate import ModelledCells

TOKENS = np.arange(10, dtype=np.int32)


def filled(**options: bool) -> ModelledCells:
    cells = ModelledCells(2, 16, **options)
    cells.evaluate(0, TOKENS, 0)
    return cells


def test_what_was_evaluated_is_there() -> None:
    cells = filled()
    cells.evaluate(0, TOKENS[:2], 10)
    assert cells.tokens(0) == [*range(10), 0, 1]
    assert (cells.length(0), cells.length(1)) == (12, 0)


@pytest.mark.parametrize("start", [0, 9, 11])
def test_a_hole_or_an_overlap_is_an_error(start: int) -> None:
    with pytest.raises(AssertionError, match="has 10 tokens"):
        filled().evaluate(0, TOKENS[:1], start)


def test_so_is_more_than_there_is_room_for() -> None:
    with pytest.raises(AssertionError, match="too few cells"):
        filled().evaluate(0, TOKENS, 10)


def test_a_state_moves_from_one_sequence_to_another() -> None:
    cells = filled()
    state = cells.save_state(0)
    assert len(state) == cells.state_bytes(0)
    cells.load_state(1, state)
    assert cells.tokens(1) == cells.tokens(0)
    assert (cells.saved, cells.loaded) == (1, 1)


def test_a_state_that_has_changed_is_an_error() -> None:
    cells = filled()
    state = cells.save_state(0)
    state[-1] ^= 1
    with pytest.raises(AssertionError, match="changed"):
        cells.load_state(1, state)


def test_a_state_may_be_refused() -> None:
    cells = filled()
    cells.refuses = True
    with pytest.raises(EngineError):
        cells.load_state(1, cells.save_state(0))
    assert cells.length(1) == 0


@pytest.mark.parametrize(("can_cut", "can_cut_states"), [(True, True), (True, False), (False, False)])
def test_cutting_is_as_the_model_allows(can_cut: bool, can_cut_states: bool) -> None:
    cells = filled(can_cut=can_cut, can_cut_states=can_cut_states)
    cells.load_state(1, cells.save_state(0))
    assert cells.cut(0, 10)
    assert cells.cut(0, 5) is can_cut
    assert cells.cut(1, 5) is can_cut_states
    assert cells.length(1) == (5 if can_cut_states else 10)
    assert cells.remove(1)
    assert cells.length(1) == 0
