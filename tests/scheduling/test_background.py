"""Background work: only what others leave, never in their way, never lost."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scheduling.runs import Run, Wish
from tests.scheduling.strategies import mixed_wishes, runs

unhurried = settings(deadline=None)


@unhurried
@given(runs("adaptive", "chunked", "whole", of=mixed_wishes).filter(lambda run: any(run.ends)))
def test_it_is_never_lost(run: Run) -> None:
    for i, wish in run.arrived.items():
        if wish.patience is None and wish.prompt_tokens < 480:
            assert run.finished(i)


def test_a_chat_does_not_notice_it() -> None:
    chat = [Wish(10 * n, 20, 30, 30) for n in range(5)]
    job = [Wish(0, 200, 20, 20, background=True) for _ in range(6)]
    alone = Run("adaptive", 64, 4, chat).run()
    beside = Run("adaptive", 64, 4, sorted([*chat, *job], key=lambda wish: wish.arrives)).run()
    own = [i for i, wish in beside.arrived.items() if not wish.background]
    for i, j in zip(alone.arrived, own, strict=True):
        assert len(beside.token_times_s[j]) == len(alone.token_times_s[i])
        # Where several chats run at once they share; background never makes a gap longer.
        assert max(map(_gap, itertools.pairwise(beside.token_times_s[j]))) <= 0.1
    for step in beside.steps:
        ids = {*step.plan.decodes, *(chunk.id for chunk in step.plan.chunks)}
        if any(not beside.arrived[i].background for i in step.phases):
            assert not any(beside.arrived[i].background for i in ids)


def _gap(pair: tuple[float, float]) -> float:
    return pair[1] - pair[0]


def test_it_leaves_a_place_for_others() -> None:
    run = Run("adaptive", 64, 4, [Wish(0, 50, 30, 30, background=True)] * 8)
    run.run()
    assert max(len(step.slots) for step in run.steps) == 3


def test_with_one_place_it_gives_that_up_and_goes_on_where_it_was() -> None:
    run = Run("adaptive", 64, 1, [Wish(0, 100, 50, 50, background=True), Wish(20, 30, 10, 10)]).run()
    assert run.preempted == {0: 1}
    assert run.written == {0: 50, 1: 10}
    assert run.token_times_s[1][-1] < run.token_times_s[0][-1]
    # What had been written until then was read again, its latest token aside.
    assert 100 < sum(chunk.length for chunk in run.chunks[0]) < 149


def test_the_youngest_gives_its_place_up_first() -> None:
    job = [Wish(0, 50, 200, 200, background=True)] * 3
    run = Run("adaptive", 64, 3, [*job, Wish(30, 20, 5, 5), Wish(30, 20, 5, 5)]).run()
    assert run.preempted == {1: 1}


def chats() -> Iterator[Wish]:
    """People without end, and one job."""
    yield Wish(0, 50, 5, 5)
    yield Wish(0, 100, 20, 20, background=True)
    for n in itertools.count(1):
        yield Wish(n, 50, 5, 5)


@settings(deadline=None, max_examples=30)
@given(slots=st.integers(1, 4), background_wait_s=st.floats(0.5, 20))
def test_it_ages_into_service(slots: int, background_wait_s: float) -> None:
    run = Run("adaptive", 64, slots, chats(), background_wait_s=background_wait_s)
    run.run(until_ended=1)
    assert run.finished(1)
    # Then it is served as others are: it waits for those who came before it, and shares with those who run.
    assert run.now_s <= background_wait_s + 15
