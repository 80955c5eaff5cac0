"""The queue, admission, cancelling and committing, step by step."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legato.errors import LegatoError
from legato.scheduling.plan import Chunk, Outcome, Plan
from legato.scheduling.policies import Chunked, Whole
from legato.scheduling.scheduler import NeverFitsError, Released, Scheduler
from legato.scheduling.sequence import Phase, Sequence
from tests.support.lender import FirstFree

CELLS = 100


@pytest.fixture
def pool() -> FirstFree:
    return FirstFree(2, CELLS)


@pytest.fixture
def scheduler(pool: FirstFree) -> Scheduler[Sequence]:
    return Scheduler(Chunked(10), pool)


def step(scheduler: Scheduler[Sequence], **outcome: object) -> Plan:
    """Admit, plan, apply the plan and commit it with that outcome."""
    scheduler.admit(0.0)
    plan = scheduler.plan(0.0)
    scheduler.apply(plan)
    scheduler.commit(plan, Outcome(**outcome), 0.0)  # type: ignore[arg-type]
    return plan


@pytest.mark.parametrize("prompt_tokens", [CELLS, CELLS + 1, 10**9])
def test_a_prompt_that_can_never_fit_is_refused(scheduler: Scheduler[Sequence], prompt_tokens: int) -> None:
    with pytest.raises(NeverFitsError, match=f"has {prompt_tokens} tokens.*holds {CELLS}"):
        scheduler.add(Sequence(1, prompt_tokens, 5))
    assert scheduler.queued == 0


def slot_of(released: Released[Sequence] | None) -> int | None:
    return None if released is None else released.slot


def test_the_refusal_is_one_that_people_can_read() -> None:
    assert issubclass(NeverFitsError, LegatoError)


@given(prompt_tokens=st.integers(1, CELLS - 1), wanted=st.integers(1, 10**30))
def test_an_answer_is_cut_to_the_room_that_is_left(prompt_tokens: int, wanted: int) -> None:
    sequence = Sequence(1, prompt_tokens, wanted)
    Scheduler(Whole(10), FirstFree(1, CELLS)).add(sequence)
    assert sequence.max_new_tokens == min(wanted, CELLS - prompt_tokens)
    assert sequence.max_new_tokens >= 1


def test_phases_of_a_request(scheduler: Scheduler[Sequence]) -> None:
    sequence = Sequence(1, 15, 5)
    scheduler.add(sequence)
    assert sequence.phase is Phase.QUEUED
    scheduler.admit(0.0)
    assert (sequence.phase, sequence.prefill_left) == (Phase.PREFILL, 15)
    step(scheduler)
    assert (sequence.phase, sequence.prefill_left) == (Phase.PREFILL, 5)
    step(scheduler, committed={1: 1})
    assert (sequence.phase, sequence.prefill_left) == (Phase.DECODE, 0)


def test_admission_hands_out_all_slots_and_says_to_whom(scheduler: Scheduler[Sequence]) -> None:
    first, second, third = (Sequence(i, 5, 5) for i in (7, 8, 9))
    for sequence in (first, second, third):
        scheduler.add(sequence)
    assert [s for s, _ in scheduler.admit(0.0).admitted] == [first, second]
    assert (first.slot, second.slot, third.slot) == (0, 1, None)
    assert (scheduler.running, scheduler.queued) == (2, 1)
    assert scheduler.admit(0.0).admitted == []
    assert scheduler[7] is first


def test_a_freed_slot_goes_to_whom_waited_longest(scheduler: Scheduler[Sequence]) -> None:
    for i in (7, 8, 9, 10):
        scheduler.add(Sequence(i, 5, 5))
    scheduler.admit(0.0)
    assert slot_of(scheduler.cancel(8)) == 1
    assert [(s.id, lease.slot) for s, lease in scheduler.admit(0.0).admitted] == [(9, 1)]


def test_speculation_may_commit_several_tokens(scheduler: Scheduler[Sequence]) -> None:
    sequence = Sequence(1, 5, 20)
    scheduler.add(sequence)
    step(scheduler, committed={1: 1})
    assert (sequence.computed_tokens, sequence.new_tokens) == (5, 1)
    assert step(scheduler, committed={1: 4}) == Plan(decodes=(1,))
    assert (sequence.computed_tokens, sequence.new_tokens) == (9, 5)
    step(scheduler, committed={1: 1})
    assert (sequence.computed_tokens, sequence.new_tokens) == (10, 6)


def test_a_plan_can_be_committed_in_parts(scheduler: Scheduler[Sequence], pool: FirstFree) -> None:
    scheduler.add(Sequence(1, 5, 20))
    step(scheduler, committed={1: 1})
    scheduler.add(Sequence(2, 30, 20))
    scheduler.admit(0.0)
    plan = scheduler.plan(0.0)
    assert plan == Plan((1,), (Chunk(2, 0, 10),))
    assert [r.slot for r in scheduler.commit(Plan(decodes=plan.decodes), Outcome({1: 1}, [1]), 0.0)] == [0]
    assert scheduler[2].computed_tokens == 0
    assert [r.slot for r in scheduler.commit(Plan(chunks=plan.chunks), Outcome(), 0.0)] == []
    assert scheduler[2].computed_tokens == 10
    assert pool.free == 1


def test_finishing_frees_the_slots_and_says_which(scheduler: Scheduler[Sequence], pool: FirstFree) -> None:
    scheduler.add(Sequence(1, 5, 20))
    scheduler.add(Sequence(2, 5, 20))
    scheduler.admit(0.0)
    plan = scheduler.plan(0.0)
    assert [r.slot for r in scheduler.commit(plan, Outcome({1: 1, 2: 1}, [2, 1]), 0.0)] == [1, 0]
    assert (scheduler.running, pool.free) == (0, 2)


def test_a_queued_request_can_be_cancelled(scheduler: Scheduler[Sequence], pool: FirstFree) -> None:
    for i in (1, 2, 3):
        scheduler.add(Sequence(i, 5, 5))
    scheduler.admit(0.0)
    assert scheduler.cancel(3) is None
    assert (scheduler.queued, scheduler.running, pool.free) == (0, 2, 0)


def test_a_request_can_be_cancelled_while_its_prompt_is_read(scheduler: Scheduler[Sequence], pool: FirstFree) -> None:
    scheduler.add(Sequence(1, 50, 5))
    step(scheduler)
    assert slot_of(scheduler.cancel(1)) == 0
    assert (scheduler.running, pool.free) == (0, 2)
    assert not scheduler.plan(0.0)


def test_a_request_can_be_cancelled_while_it_decodes(scheduler: Scheduler[Sequence], pool: FirstFree) -> None:
    scheduler.add(Sequence(1, 5, 5))
    step(scheduler, committed={1: 1})
    assert scheduler[1].phase is Phase.DECODE
    assert slot_of(scheduler.cancel(1)) == 0
    assert (scheduler.running, pool.free) == (0, 2)


def test_cancelling_twice_or_a_stranger_changes_nothing(scheduler: Scheduler[Sequence], pool: FirstFree) -> None:
    scheduler.add(Sequence(1, 5, 5))
    scheduler.admit(0.0)
    assert scheduler.cancel(99) is None
    assert scheduler.running == 1
    assert slot_of(scheduler.cancel(1)) == 0
    assert scheduler.cancel(1) is None
    assert pool.free == 2


def test_the_policy_may_change_between_steps(scheduler: Scheduler[Sequence]) -> None:
    scheduler.add(Sequence(1, 50, 5))
    scheduler.add(Sequence(2, 50, 5))
    assert step(scheduler) == Plan(chunks=(Chunk(1, 0, 10),))
    scheduler.policy = Whole(30)
    assert step(scheduler) == Plan(chunks=(Chunk(1, 10, 30),))
    assert step(scheduler, committed={1: 1}) == Plan(chunks=(Chunk(1, 40, 10),))
    scheduler.policy = Chunked(20)
    assert step(scheduler, committed={1: 1}) == Plan((1,), (Chunk(2, 0, 20),))


def test_a_plan_is_a_question() -> None:
    """Asked twice, or asked and not run, it says the same and changes nothing."""
    for policy in (Chunked(10), Whole(10)):
        scheduler: Scheduler[Sequence] = Scheduler(policy, FirstFree(3, CELLS))
        for i in (1, 2, 3):
            scheduler.add(Sequence(i, 30, 5))
        scheduler.admit(0.0)
        before = scheduler.plan(0.0)
        assert scheduler.plan(5.0) == before
        scheduler.apply(before)
        scheduler.commit(before, Outcome(), 0.0)
        assert scheduler.plan(5.0) == scheduler.plan(0.0) != before
