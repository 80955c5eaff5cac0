"""What each policy promises."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from legato.core.choices import PolicyName
from legato.scheduling.adaptive import Adaptive
from legato.scheduling.costs import CostModel
from legato.scheduling.plan import Chunk, Plan
from legato.scheduling.policies import Chunked, Policy, Whole, make_policy
from legato.scheduling.sequence import Phase, Sequence
from tests.scheduling.runs import COSTS, STEP_TOKENS, Run, Wish
from tests.scheduling.strategies import runs

unhurried = settings(deadline=None)


def reading(i: int, prompt_tokens: int, read: int = 0) -> Sequence:
    return Sequence(i, prompt_tokens, 10, slot=i, computed_tokens=read)


def writing(i: int) -> Sequence:
    return Sequence(i, 5, 10, slot=i, computed_tokens=5, new_tokens=1)


def made(name: PolicyName, *, chunk: int, step_tokens: int) -> Policy:
    return make_policy(name, costs=CostModel(COSTS), gap_target_s=0.1, chunk=chunk, step_tokens=step_tokens)


def turns(run: Run) -> list[int]:
    """Whose prompts were read on, one turn after another."""
    return [chunk.id for step in run.steps for chunk in step.plan.chunks]


def assert_turns_alternate(order: list[int]) -> None:
    """Between two turns of one prompt, each other prompt has one at most."""
    latest: dict[int, int] = {}
    for place, i in enumerate(order):
        if i in latest:
            between = Counter(order[latest[i] + 1 : place])
            assert max(between.values(), default=0) <= 1
        latest[i] = place


# chunked


@unhurried
@given(runs("chunked"))
def test_no_step_of_chunked_reads_more_than_a_chunk(run: Run) -> None:
    assert all(sum(chunk.length for chunk in step.plan.chunks) <= run.chunk for step in run.steps)


@unhurried
@given(runs("chunked"))
def test_chunked_reads_a_whole_chunk_whenever_so_much_is_unread(run: Run) -> None:
    for step in run.steps:
        assert sum(chunk.length for chunk in step.plan.chunks) == min(run.chunk, sum(step.unread.values()))


@unhurried
@given(runs("chunked"))
def test_chunked_decodes_every_running_answer_in_every_step(run: Run) -> None:
    for step in run.steps:
        decoding = {i for i, phase in step.phases.items() if phase is Phase.DECODE}
        assert set(step.plan.decodes) == decoding


@unhurried
@given(runs("chunked"))
def test_prompts_take_turns(run: Run) -> None:
    assert_turns_alternate(turns(run))


def newcomers(long_prompt: int, lengths: list[int]) -> Iterator[Wish]:
    """A long prompt, number 1, that another one came before, and after it prompts of those lengths without end."""
    yield Wish(0, 1, 1, 1)
    yield Wish(0, long_prompt, 1, 1)
    for length in itertools.cycle(lengths):
        yield Wish(0, length, 1, 1)


@settings(deadline=None, max_examples=50)
@given(
    long_prompt=st.integers(100, 300),
    chunk=st.integers(2, 40),
    slots=st.integers(2, 8),
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=8),
)
def test_endless_short_newcomers_never_starve_a_long_prompt(
    long_prompt: int, chunk: int, slots: int, lengths: list[int]
) -> None:
    run = Run("chunked", chunk, slots, newcomers(long_prompt, lengths))
    # Each step has a turn, so the long prompt's own come no more than `slots` steps apart, of one token at least.
    run.run(until_ended=1, most_steps=long_prompt * slots + 1)
    assert len(run.steps) <= len(run.chunks[1]) * slots + 1
    assert_turns_alternate(turns(run))


@settings(deadline=None, max_examples=50)
@given(long_prompt=st.integers(100, 400), chunk=st.integers(2, 40), slots=st.integers(2, 8))
def test_a_long_prompt_gets_its_share_beside_endless_newcomers(long_prompt: int, chunk: int, slots: int) -> None:
    run = Run("chunked", chunk, slots, newcomers(long_prompt, [chunk]))
    run.run(until_ended=1, most_steps=long_prompt * slots + 1)
    # Whole chunks, but for what the very first prompt and the end of its own leave.
    assert len(run.chunks[1]) <= -(-long_prompt // chunk) + 1


def test_a_short_question_does_not_wait_for_a_long_prompt() -> None:
    wishes = [Wish(0, 400, 1, 1), Wish(2, 5, 1, 1)]
    run = Run("chunked", 10, 2, wishes).run()
    assert [step.plan.chunks for step in run.steps[:5]] == [
        (Chunk(0, 0, 10),),
        (Chunk(0, 10, 10),),
        (Chunk(0, 20, 10),),
        (Chunk(1, 0, 5), Chunk(0, 30, 5)),
        (Chunk(0, 35, 10),),
    ]


def test_what_one_prompt_leaves_of_a_step_goes_to_the_next_in_turn() -> None:
    plan = Chunked(10).plan([reading(0, 4), reading(1, 3), reading(2, 50)], 0.0)
    assert plan == Plan(chunks=(Chunk(0, 0, 4), Chunk(1, 0, 3), Chunk(2, 0, 3)))


def test_chunked_decodes_before_it_reads() -> None:
    assert Chunked(4).plan([writing(0), reading(1, 9), writing(2)], 0.0) == Plan((0, 2), (Chunk(1, 0, 4),))


# whole


@unhurried
@given(runs("whole"))
def test_under_whole_nobody_decodes_while_a_prompt_is_unread(run: Run) -> None:
    for step in run.steps:
        assert not (step.plan.decodes and any(step.unread.values()))


@unhurried
@given(runs("whole"))
def test_under_whole_everybody_decodes_once_all_prompts_are_read(run: Run) -> None:
    for step in run.steps:
        if not any(step.unread.values()):
            assert list(step.plan.decodes) == list(step.phases)


@unhurried
@given(runs("whole"))
def test_whole_reads_prompts_one_after_another_in_order_of_admission(run: Run) -> None:
    read = [i for i, _ in itertools.groupby(turns(run))]
    assert read == sorted(set(read))
    # Each step goes on in the oldest prompt that is unread.
    for step in run.steps:
        oldest = next((i for i, unread in step.unread.items() if unread), None)
        assert [chunk.id for chunk in step.plan.chunks] == ([] if oldest is None else [oldest])


@unhurried
@given(runs("whole"))
def test_whole_reads_as_much_as_a_step_may(run: Run) -> None:
    for step in run.steps:
        for chunk in step.plan.chunks:
            assert chunk.length == min(STEP_TOKENS, step.unread[chunk.id])


# all


@pytest.mark.parametrize("name", ["adaptive", "chunked", "whole"])
def test_without_sequences_there_is_no_step(name: PolicyName) -> None:
    assert not made(name, chunk=4, step_tokens=8).plan([], 0.0)


def test_policies_are_made_by_name() -> None:
    assert isinstance(made("adaptive", chunk=4, step_tokens=8), Adaptive)
    assert isinstance(made("whole", chunk=4, step_tokens=8), Whole)
    assert isinstance(made("chunked", chunk=4, step_tokens=8), Chunked)


def test_a_chunk_is_never_larger_than_a_step() -> None:
    policy = made("chunked", chunk=64, step_tokens=8)
    assert policy.plan([reading(0, 100)], 0.0) == Plan(chunks=(Chunk(0, 0, 8),))
