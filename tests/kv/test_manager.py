"""Remembering prefixes in cells and memory: what is read once, what is kept, and whose it is."""

from __future__ import annotations

import math

import pytest

from legato.kv.manager import Limits
from legato.kv.placement import PREFILL_AT_LEAST
from legato.scheduling.plan import Chunk, Plan
from legato.simulate.cells import state_bytes_of
from tests.kv.remembering import CHUNK, LONG, PLENTY, Remembering, joined, run_of


def test_ten_with_the_same_beginning_read_it_once() -> None:
    engine = Remembering(sequences=10)
    asked = [engine.submit(joined(LONG, run_of(1000 * n, 10))) for n in range(1, 11)]
    engine.finish()
    assert sum(engine.read(i) for i in asked) == 100 + 10 * 10
    assert [r.tokens for r in engine.restored] == [100] * 9
    assert engine.cells.loaded == 9


def test_twenty_with_fewer_sequences_than_that_read_it_once_too() -> None:
    engine = Remembering(sequences=4)
    asked = [engine.submit(joined(LONG, run_of(1000 * n, 10))) for n in range(1, 21)]
    engine.finish()
    assert sum(engine.read(i) for i in asked) == 100 + 20 * 10


def test_a_conversation_is_read_once() -> None:
    engine = Remembering(sequences=1)
    prompt = LONG
    for turn in range(1, 5):
        ask = engine.ask(prompt, answer=5)
        # The last token of an answer was never read, and every answer was written, not read.
        assert ask.prefilled_tokens == (100 if turn == 1 else 1 + 10)
        prompt = joined(ask.prompt, ask.answer, run_of(1000 * turn, 10))
    assert engine.cells.loaded == 0


def test_the_same_prompt_again_leaves_a_little_to_read() -> None:
    engine = Remembering()
    assert engine.ask(LONG).prefilled_tokens == 100
    assert engine.ask(LONG).prefilled_tokens == PREFILL_AT_LEAST


def test_when_the_one_that_is_followed_goes_away_another_reads() -> None:
    engine = Remembering(sequences=3)
    asked = [engine.submit(joined(LONG, run_of(1000 * n, 10))) for n in range(1, 4)]
    engine.step()
    engine.step()
    assert [engine.read(i) for i in asked] == [2 * CHUNK, 0, 0]
    assert len(engine.scheduler.held_back) == 2
    engine.simulation.cancel(asked[0])
    engine.finish()
    # What it has read until then was parked, and is gone on from.
    assert sum(engine.read(i) for i in asked) == 100 + 2 * 10


def test_when_the_one_that_is_followed_fails_another_reads() -> None:
    engine = Remembering(sequences=3)
    asked = [engine.submit(joined(LONG, run_of(1000 * n, 10))) for n in range(1, 4)]
    engine.step()
    engine.engine.failing.add(asked[0])
    engine.finish()
    assert sum(engine.read(i) for i in asked) == CHUNK + 100 + 2 * 10


def test_what_is_overwritten_comes_back_from_memory() -> None:
    engine = Remembering(sequences=1)
    engine.ask(LONG)
    engine.idle()
    assert engine.places() == [["memory"]]
    engine.ask(run_of(500, 100))
    assert engine.ask(joined(LONG, run_of(900, 10))).prefilled_tokens == 10
    assert [(r.tokens, r.tier) for r in engine.restored] == [(100, "memory")]


def test_what_was_not_saved_is_gone_when_it_is_overwritten() -> None:
    engine = Remembering(sequences=1)
    engine.ask(LONG)
    engine.ask(run_of(500, 100))
    assert engine.ask(joined(LONG, run_of(900, 10))).prefilled_tokens == 110


def test_nothing_is_remembered_where_nothing_may_be() -> None:
    engine = Remembering(sequences=2, limits=Limits(0, 0, scope="off"))
    for _ in range(2):
        assert engine.ask(LONG).prefilled_tokens == 100
        engine.idle()
    assert engine.kv.listing == []
    assert engine.restored == []


def test_each_client_has_its_own() -> None:
    engine = Remembering(sequences=4, limits=Limits(PLENTY, 0, scope="key"))
    for client in ("ana", "ben", None):
        assert engine.ask(LONG, client=client).prefilled_tokens == 100
        engine.idle()
    assert sorted(entry.scope for entry in engine.entries()) == ["", "ana", "ben"]
    for client in ("ana", "ben", None):
        assert engine.ask(joined(LONG, run_of(900, 10)), client=client).prefilled_tokens == 10


def test_without_time_nothing_is_saved() -> None:
    engine = Remembering()
    engine.ask(LONG)
    for _ in range(10):
        engine.kv.use_time(0.0)
    assert engine.cells.saved == 0
    engine.idle()
    assert engine.cells.saved == 1


def test_what_is_used_while_it_is_being_saved_is_not_saved() -> None:
    engine = Remembering(sequences=1)
    engine.ask(LONG)  # in the time that its last token left, saving it was begun
    assert engine.cells.saved == 0
    engine.submit(joined(run_of(500, 100)))
    engine.step()
    engine.kv.use_time(math.inf)
    engine.finish()
    engine.idle()
    assert [entry.tokens for entry in engine.entries()] == [101]
    engine.ask(LONG)
    assert engine.ask(run_of(500, 100)).prefilled_tokens == PREFILL_AT_LEAST


def test_a_longer_state_takes_the_place_of_what_it_continues() -> None:
    engine = Remembering(sequences=1)
    first = engine.ask(LONG)
    engine.idle()
    engine.ask(joined(first.prompt, first.answer, run_of(900, 10)))
    engine.idle()
    assert [entry.tokens for entry in engine.entries()] == [100 + 2 + 10 + 1]


def test_a_state_that_cannot_be_cut_is_used_as_a_whole() -> None:
    engine = Remembering(sequences=1, limits=Limits(PLENTY, 0, can_cut=False, can_cut_states=False))
    first = engine.ask(LONG, answer=3)
    edited = joined(LONG[:50], run_of(900, 50))
    engine.idle()
    assert engine.ask(edited).prefilled_tokens == 100
    going_on = joined(first.prompt, first.answer, run_of(700, 10))
    assert engine.ask(going_on).prefilled_tokens == 1 + 10
    assert [(r.tokens, r.tier) for r in engine.restored] == [(102, "memory")]
    assert engine.ask(going_on).prefilled_tokens == 1 + 10, "its own end is after what it begins with"


def test_what_cannot_be_cut_keeps_the_end_of_every_turn() -> None:
    engine = Remembering(sequences=1, limits=Limits(PLENTY, 0, can_cut=False, can_cut_states=False))
    first = engine.ask(LONG)
    engine.idle()
    second = engine.ask(joined(first.prompt, first.answer, run_of(700, 10)))
    engine.idle()
    assert sorted(entry.tokens for entry in engine.entries()) == [101, 113]
    assert engine.ask(joined(first.prompt, first.answer, run_of(800, 10))).prefilled_tokens == 1 + 10
    assert engine.ask(joined(second.prompt, second.answer, run_of(900, 10))).prefilled_tokens == 1 + 10


def test_where_only_states_cannot_be_cut_cells_still_are() -> None:
    engine = Remembering(sequences=2, limits=Limits(PLENTY, 0, can_cut_states=False))
    engine.ask(LONG)
    assert engine.ask(joined(LONG[:50], run_of(900, 10))).prefilled_tokens == 10
    assert engine.cells.loaded == 0
    engine.ask(run_of(500, 100))
    engine.idle()
    engine.ask(run_of(700, 100))
    engine.ask(run_of(800, 100))
    assert engine.ask(joined(run_of(500, 50), run_of(900, 10))).prefilled_tokens == 60


def test_people_can_forget_all() -> None:
    engine = Remembering(sequences=2)
    engine.ask(LONG)
    engine.idle()
    engine.ask(run_of(500, 100))
    assert engine.kv.act("remove", None)
    assert engine.kv.listing == []
    assert engine.ask(LONG).prefilled_tokens == 100


def test_spare_work_ends_where_memory_is_short() -> None:
    engine = Remembering(sequences=3, limits=Limits(state_bytes_of(110), 0))
    for n in range(3):
        engine.ask(run_of(1000 * n, 100))
        engine.idle()
    engine.check_budgets()
    assert len(engine.entries()) == 1


@pytest.mark.parametrize("steps", [0, 3, 8])
def test_what_is_overwritten_before_it_was_copied_is_not_copied(steps: int) -> None:
    """Another sequence holds the same beginning: that one is copied."""
    engine = Remembering(sequences=3, limits=Limits(0, 0))
    for number, rest in enumerate((60, 80), 1):
        engine.submit(joined(LONG, run_of(1000 * number, rest)), answer=1)
        engine.step()
    engine.finish()
    before = len(engine.restored)
    copying = engine.submit(joined(LONG, run_of(3000, 10)))
    engine.admit()
    source = engine.scheduler[copying].awaits
    assert source is not None
    other = engine.submit(run_of(5000, 150))
    engine.admit()
    assert engine.scheduler[other].slot == source.slot, "it was worth least"
    for step in range(steps):  # as if the move had no room: the other one is read meanwhile
        engine.run_plan(Plan(chunks=(Chunk(other, step * CHUNK, CHUNK),)))
    engine.run_plan(Plan(restores=(copying,)))
    assert [r.tokens for r in engine.restored[before:]] == [100]
    engine.finish()
    assert engine.read(copying) == 10
