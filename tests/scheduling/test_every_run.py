"""What holds for whatever comes, under every policy."""

from __future__ import annotations

from hypothesis import given, settings

from legato.scheduling.sequence import Phase
from tests.scheduling.runs import CELLS, STEP_TOKENS, Run
from tests.scheduling.strategies import mixed_wishes, runs

unhurried = settings(deadline=None)
all_runs = runs("adaptive", "chunked", "whole", of=mixed_wishes)


@unhurried
@given(all_runs)
def test_every_request_ends_exactly_once(run: Run) -> None:
    assert all(len(ends) == 1 for ends in run.ends.values())


@unhurried
@given(all_runs)
def test_prompts_are_read_once_in_order_and_without_holes(run: Run) -> None:
    for i, wish in run.arrived.items():
        end = 0
        for chunk in run.chunks[i]:
            assert chunk.start == end
            assert chunk.length > 0
            end += chunk.length
        # After a preemption what had been written is read again, but for its latest token: the next decode reads that.
        most = wish.prompt_tokens + (max(0, run.written[i] - 1) if i in run.preempted else 0)
        assert end <= most
        if run.finished(i):
            assert end >= wish.prompt_tokens


@unhurried
@given(all_runs)
def test_nobody_decodes_before_the_prompt_is_complete(run: Run) -> None:
    for step in run.steps:
        assert all(step.unread[i] == 0 for i in step.plan.decodes)


@unhurried
@given(all_runs)
def test_a_step_does_one_thing_at_most_for_a_request(run: Run) -> None:
    for step in run.steps:
        ids = [*step.plan.decodes, *(chunk.id for chunk in step.plan.chunks)]
        assert len(ids) == len(set(ids))


@unhurried
@given(all_runs)
def test_the_phase_says_whether_the_prompt_is_read(run: Run) -> None:
    for step in run.steps:
        for i, phase in step.phases.items():
            assert phase is (Phase.PREFILL if step.unread[i] else Phase.DECODE)


@unhurried
@given(all_runs)
def test_answers_fill_the_cells_behind_their_prompt_one_after_another(run: Run) -> None:
    for i, positions in run.positions.items():
        begin = run.arrived[i].prompt_tokens
        # The first token of an answer comes with the last chunk; the latest one is not computed yet.
        assert positions == list(range(begin, begin + run.written[i] - 1))
        assert all(position < CELLS for position in positions)


@unhurried
@given(all_runs)
def test_finished_answers_are_as_long_as_the_model_and_the_limits_say(run: Run) -> None:
    for i, wish in run.arrived.items():
        if run.finished(i):
            limit = min(wish.max_new_tokens, CELLS - wish.prompt_tokens)
            assert run.written[i] == min(wish.answer_tokens, limit)


@unhurried
@given(all_runs)
def test_prompts_that_can_never_fit_are_refused_and_no_others(run: Run) -> None:
    for i, wish in run.arrived.items():
        if run.ends[i] != ["cancelled"]:  # whoever goes away at once is not told
            assert (run.ends[i] == ["failed"]) == (wish.prompt_tokens >= CELLS)


@unhurried
@given(runs("adaptive", "chunked", "whole"))
def test_admission_is_first_come_first_served(run: Run) -> None:
    assert run.admitted == sorted(run.admitted)
    # Those who were passed over had gone by themselves.
    last = run.admitted[-1] if run.admitted else 0
    for i in set(range(last)) - set(run.admitted):
        assert run.ends[i] in (["cancelled"], ["failed"])


@unhurried
@given(runs("adaptive", "chunked", "whole"))
def test_nobody_waits_while_a_slot_is_free(run: Run) -> None:
    for step in run.steps:
        assert step.queued == 0 or len(step.slots) == run.pool.sequences


@unhurried
@given(all_runs)
def test_only_background_work_gives_its_slot_up(run: Run) -> None:
    assert all(run.arrived[i].background for i in run.preempted)


@unhurried
@given(runs("adaptive", "chunked", "whole", of=mixed_wishes))
def test_no_step_reads_more_than_a_step_may(run: Run) -> None:
    for step in run.steps:
        assert sum(chunk.length for chunk in step.plan.chunks) <= STEP_TOKENS


@unhurried
@given(all_runs)
def test_a_slot_is_never_held_twice(run: Run) -> None:
    for step in run.steps:
        held = list(step.slots.values())
        assert len(held) == len(set(held))
        assert set(held) <= set(range(run.pool.sequences))


@unhurried
@given(all_runs)
def test_all_slots_are_free_at_the_end(run: Run) -> None:
    assert run.pool.free == run.pool.sequences
    assert run.scheduler.running == run.scheduler.queued == 0
