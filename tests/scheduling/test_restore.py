"""Requests whose prompts begin with something that is remembered and has to be moved into their cells first."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legato.kv.sources import Restore
from legato.scheduling.costs import CostModel
from legato.scheduling.plan import Chunk, Outcome, Plan
from legato.scheduling.policies import Chunked, Policy, Whole, make_policy
from legato.scheduling.scheduler import PATIENCE, Scheduler
from legato.scheduling.sequence import Phase, Sequence
from tests.scheduling.runs import COSTS
from tests.support.lender import FirstFree

CELLS = 1000
GAP_TARGET_S = 0.1


def adaptive() -> Policy:
    return make_policy("adaptive", costs=CostModel(COSTS), gap_target_s=GAP_TARGET_S, chunk=10, step_tokens=128)


def scheduler_of(policy: Policy | None = None, slots: int = 4) -> Scheduler[Sequence]:
    return Scheduler(policy or Chunked(10), FirstFree(slots, CELLS))


def admit(scheduler: Scheduler[Sequence], *sequences: Sequence) -> None:
    for sequence in sequences:
        scheduler.add(sequence)
    scheduler.admit(0.0)


def writer(scheduler: Scheduler[Sequence], number: int = 1, **wishes: float) -> Sequence:
    """A sequence that has its first token at 0 s."""
    sequence = Sequence(number, 4, 500, **wishes)  # type: ignore[arg-type]
    admit(scheduler, sequence)
    scheduler.commit(Plan(chunks=(Chunk(number, 0, 4),)), Outcome({number: 1}), 0.0)
    assert sequence.phase is Phase.DECODE
    return sequence


def restoring(
    scheduler: Scheduler[Sequence], number: int = 2, *, move_s: float | None, prefill_s: float = 10.0
) -> Sequence:
    """A sequence of 100 tokens, of which 80 are remembered."""
    sequence = Sequence(number, 100, 5)
    admit(scheduler, sequence)
    sequence.restore = Restore(80, move_s, prefill_s, 0.0)
    return sequence


@pytest.mark.parametrize("policy", [Chunked(10), Whole(10), adaptive()])
def test_nothing_is_read_until_the_beginning_is_there(policy: Policy) -> None:
    scheduler = scheduler_of(policy)
    sequence = restoring(scheduler, move_s=None)
    assert scheduler.held_back == [sequence]
    assert not scheduler.plan(0.0)
    assert not scheduler.plan(1e6)
    sequence.restore = Restore(80, 0.01, 10.0, 0.0)
    assert scheduler.held_back == []
    assert scheduler.plan(0.0) == Plan(restores=(2,))
    assert scheduler.plan(0.0) == Plan(restores=(2,)), "it is moved once it is said to be moved"
    scheduler.restored(2, 80)
    (chunk,) = scheduler.plan(0.0).chunks
    assert (chunk.id, chunk.start) == (2, 80)
    assert sequence.prefill_left == 20


def test_what_could_not_be_moved_is_read() -> None:
    scheduler = scheduler_of()
    sequence = restoring(scheduler, move_s=0.01)
    scheduler.restored(2, 0)
    assert scheduler.plan(0.0) == Plan(chunks=(Chunk(2, 0, 10),))
    assert (sequence.restore, sequence.prefill_left) == (None, 100)


def test_others_go_on_meanwhile() -> None:
    scheduler = scheduler_of()
    writer(scheduler)
    restoring(scheduler, move_s=None)
    admit(scheduler, Sequence(3, 50, 5))
    for start in (0, 10, 20):
        plan = scheduler.plan(0.0)
        assert plan == Plan((1,), (Chunk(3, start, 10),))
        scheduler.apply(plan)
        scheduler.commit(plan, Outcome({1: 1}), 0.0)


def test_those_who_write_write_on_in_the_step_that_moves() -> None:
    scheduler = scheduler_of(adaptive())
    writer(scheduler)
    restoring(scheduler, move_s=0.01)
    assert scheduler.plan(0.0) == Plan(decodes=(1,), restores=(2,))


def test_one_is_moved_at_a_time_the_first_first() -> None:
    scheduler = scheduler_of()
    for number in (2, 3):
        restoring(scheduler, number, move_s=0.01)
    assert scheduler.plan(0.0).restores == (2,)
    scheduler.restored(2, 80)
    assert scheduler.plan(0.0).restores == (3,)
    scheduler.restored(3, 80)
    assert {chunk.id for chunk in scheduler.plan(0.0).chunks} <= {2, 3}


@given(move_s=st.floats(0, 1), gap_target_s=st.floats(0.01, 1))
def test_a_move_must_fit_before_the_next_token_is_due(move_s: float, gap_target_s: float) -> None:
    scheduler = scheduler_of(adaptive())
    writer(scheduler, gap_target_s=gap_target_s)
    room_s = scheduler.room_s(0.0)
    assert room_s < gap_target_s
    restoring(scheduler, move_s=move_s)
    plan = scheduler.plan(0.0)
    assert plan.restores == ((2,) if move_s <= room_s else ())
    assert not plan.chunks


def test_the_writer_in_the_greatest_hurry_counts() -> None:
    scheduler = scheduler_of(adaptive())
    writer(scheduler, 1, gap_target_s=10.0)
    restoring(scheduler, 2, move_s=1.0)
    assert scheduler.plan(0.0).restores == (2,)
    writer(scheduler, 3, gap_target_s=0.2)
    assert scheduler.plan(0.0).restores == ()


def test_a_small_move_need_not_wait_for_a_large_one() -> None:
    scheduler = scheduler_of(adaptive())
    writer(scheduler)
    restoring(scheduler, 2, move_s=100.0)
    restoring(scheduler, 3, move_s=0.001)
    assert scheduler.plan(0.0).restores == (3,)


@pytest.mark.parametrize("policy", [adaptive(), Chunked(10)])
def test_any_move_fits_where_nobody_writes(policy: Policy) -> None:
    scheduler = scheduler_of(policy)
    restoring(scheduler, move_s=1000.0)
    admit(scheduler, Sequence(3, 50, 5))  # reads
    assert scheduler.room_s(0.0) == math.inf
    assert scheduler.plan(0.0).restores == (2,)


def test_it_waits_for_those_who_write_and_moves_when_they_have_ended() -> None:
    scheduler = scheduler_of(adaptive())
    writer(scheduler)
    restoring(scheduler, move_s=1.0)
    plan = scheduler.plan(0.0)
    assert plan.restores == ()
    scheduler.commit(plan, Outcome(dict.fromkeys(plan.decodes, 1), [1]), 0.0)
    assert scheduler.plan(0.0).restores == (2,)


def test_after_some_patience_it_is_read_instead() -> None:
    scheduler = scheduler_of(adaptive())
    writer(scheduler)
    sequence = restoring(scheduler, move_s=1.0, prefill_s=10.0)
    assert not scheduler.plan(PATIENCE * 10.0).chunks
    assert not scheduler.plan(PATIENCE * 10.0).given_up
    plan = scheduler.plan(PATIENCE * 10.0 + 0.01)
    assert plan.given_up == (2,)
    assert sequence.restore is not None, "a plan changes nothing before it is applied"
    scheduler.apply(plan)
    assert (sequence.restore, sequence.computed_tokens) == (None, 0)
    (chunk,) = scheduler.plan(PATIENCE * 10.0 + 0.02).chunks
    assert (chunk.id, chunk.start) == (2, 0)


def test_what_is_not_there_yet_is_waited_for_without_end() -> None:
    scheduler = scheduler_of(adaptive())
    writer(scheduler)
    sequence = restoring(scheduler, move_s=None, prefill_s=1.0)
    assert not scheduler.plan(1e6).chunks
    assert scheduler.held_back == [sequence]


@pytest.mark.parametrize("move_s", [None, 0.01])
def test_who_is_cancelled_meanwhile_leaves_nothing_in_its_cells(move_s: float | None) -> None:
    scheduler = scheduler_of(slots=1)
    sequence = restoring(scheduler, move_s=move_s)
    sequence.computed_tokens = 80  # as far as somebody may have counted: what counts is that nothing was moved
    released = scheduler.cancel(2)
    assert released is not None
    assert (released.slot, released.computed_tokens) == (0, 0)
    assert (sequence.slot, sequence.restore) == (None, None)
    assert (scheduler.running, scheduler.held_back) == (0, [])
    assert not scheduler.plan(0.0)


@pytest.mark.parametrize("move_s", [None, 0.01])
def test_background_work_gives_its_cells_up_before_it_has_what_it_waits_for(move_s: float | None) -> None:
    scheduler = scheduler_of(slots=1)
    waiting = Sequence(1, 100, 5, background=True)
    admit(scheduler, waiting)
    waiting.restore = Restore(80, move_s, 10.0, 0.0)
    scheduler.add(Sequence(2, 50, 5))
    admission = scheduler.admit(0.0)
    (released,) = admission.preempted
    assert (released.request, released.slot, released.computed_tokens) == (waiting, 0, 0)
    assert [sequence.id for sequence, _ in admission.admitted] == [2]
    assert (waiting.phase, waiting.restore, waiting.computed_tokens) == (Phase.QUEUED, None, 0)
    assert scheduler.plan(0.0) == Plan(chunks=(Chunk(2, 0, 10),))


def test_what_was_moved_in_counts_as_computed_when_it_is_cancelled() -> None:
    scheduler = scheduler_of()
    restoring(scheduler, move_s=0.01)
    scheduler.restored(2, 80)
    released = scheduler.cancel(2)
    assert released is not None
    assert released.computed_tokens == 80


def test_a_background_request_is_read_while_all_others_wait() -> None:
    scheduler = scheduler_of()
    restoring(scheduler, move_s=None)
    admit(scheduler, Sequence(3, 50, 5, background=True))
    assert scheduler.plan(0.0) == Plan(chunks=(Chunk(3, 0, 10),))


@pytest.mark.parametrize("is_promoted", [False, True])
def test_who_reads_what_others_wait_for_is_served_like_them(is_promoted: bool) -> None:
    """Else background work would keep them waiting for as long as anybody writes."""
    scheduler = Scheduler(Chunked(10), FirstFree(4, CELLS), background_wait_s=5.0)
    leader = Sequence(3, 100, 5, background=True, arrived_s=1.0)
    follower = Sequence(2, 100, 5, background=is_promoted)
    admit(scheduler, follower, leader)
    follower.restore = Restore(80, None, 10.0, 0.0, follows=3)
    writer(scheduler)
    # The follower, which came first, has waited for long enough; the leader has not.
    plan = scheduler.plan(5.5)
    assert plan == Plan((1,), (Chunk(3, 0, 10),))
    follower.restore = None
    assert 3 not in [chunk.id for chunk in scheduler.plan(5.5).chunks]


def test_background_work_that_background_work_waits_for_gets_what_others_leave() -> None:
    scheduler = scheduler_of()
    leader, follower = (Sequence(number, 100, 5, background=True) for number in (2, 3))
    admit(scheduler, leader, follower)
    follower.restore = Restore(80, None, 10.0, 0.0, follows=2)
    writer(scheduler)
    assert scheduler.plan(0.0) == Plan((1,))
