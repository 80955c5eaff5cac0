"""Interruptible prefill on a virtual clock: who goes on while a book is prefilled, and what becomes of the book."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from legato.core.calls import Call
from legato.core.engine_errors import EngineError
from legato.runtime.engine import CallResult, Requests
from legato.scheduling.costs import Coefficients, CostModel
from legato.scheduling.plan import Plan
from legato.simulate import ModelledEngine, Simulation
from legato.wire.messages import Cancel, Configure, Report

COSTS = Coefficients(
    decode_call_s=0.010,
    decode_sequence_s=0.002,
    decode_depth_s=0.0,
    prefill_call_s=0.001,
    prefill_token_s=0.001,
    prefill_pair_s=1e-7,
)
BOOK = 3000
GAP_TARGET_S = 0.1


def simulation(**options: Any) -> tuple[Simulation, list[Call]]:
    """A simulation that prefills long prompts interruptibly, and the calls that it reports."""
    calls: list[Call] = []

    def note(report: Report) -> None:
        if report.call is not None:
            calls.append(report.call)

    options = {"policy": "adaptive", "interruptible": True, "on_report": note} | options
    return Simulation(costs=COSTS, **options), calls


def read_of(calls: list[Call], request: int) -> list[tuple[int, int]]:
    """The parts of a prompt as they were reported: start and tokens."""
    return [(chunk.start, chunk.tokens) for call in calls for chunk in call.chunks if chunk.request == request]


def assert_read_once(parts: list[tuple[int, int]], tokens: int) -> None:
    end = 0
    for start, count in parts:
        assert start == end
        assert count > 0
        end += count
    assert end == tokens


def test_answers_and_questions_go_on_while_a_book_is_read() -> None:
    sim, calls = simulation()
    chat = sim.ask(prompt_tokens=10, answer_tokens=200)
    book = sim.ask(prompt_tokens=BOOK, answer_tokens=5, at_s=0.5)
    question = sim.ask(prompt_tokens=12, answer_tokens=4, at_s=1.0)
    sim.run()
    assert_read_once(read_of(calls, 1), BOOK)
    slices = [call for call in calls if call.chunks and call.chunks[0].request == 1 and call.predicted_s is None]
    assert len(slices) > 10, "its calls were interrupted"
    assert max(b - a for a, b in pairwise(chat.token_times_s)) <= GAP_TARGET_S
    assert question.token_times_s[-1] < book.token_times_s[0]
    assert question.token_times_s[0] - question.arrived_s <= 2 * GAP_TARGET_S


def test_calls_of_the_engine_do_not_overlap_though_one_is_open() -> None:
    sim, calls = simulation()
    sim.ask(prompt_tokens=10, answer_tokens=200)
    sim.ask(prompt_tokens=BOOK, answer_tokens=5, at_s=0.5)
    sim.run()
    for before, after in pairwise(calls):
        assert before.begun_s <= before.ended_s <= after.begun_s + 1e-9


def test_where_nobody_else_is_there_a_book_is_not_cut() -> None:
    sim, calls = simulation()
    sim.ask(prompt_tokens=BOOK, answer_tokens=2)
    sim.run()
    assert_read_once(read_of(calls, 0), BOOK)
    assert all(call.predicted_s is not None for call in calls)


def test_who_goes_away_while_reading_is_gone_at_the_next_node() -> None:
    sim, calls = simulation()
    sim.ask(prompt_tokens=10, answer_tokens=100)
    sim.ask(prompt_tokens=BOOK, answer_tokens=400, at_s=0.2)
    while not read_of(calls, 1):
        sim.step()
    sim.cancel(1)
    gone_s = sim.clock.now_s()
    again = sim.ask(prompt_tokens=BOOK, answer_tokens=5)
    sim.run()
    assert sim.asks[1].ends == ["cancelled"]
    assert again.ends == ["length"]
    assert max(c.ended_s for c in calls if any(chunk.request == 1 for chunk in c.chunks)) <= gone_s + GAP_TARGET_S
    assert_read_once(read_of(calls, 2), BOOK)
    assert sim.loop.scheduler.running == sim.loop.scheduler.queued == 0


def test_a_client_that_leaves_during_a_call_ends_it() -> None:
    """The message comes while the call is open: it is looked for between the nodes."""
    sim, calls = simulation()
    sim.ask(prompt_tokens=BOOK, answer_tokens=400)
    sim.mailbox.post(Cancel(0), at_s=0.8)
    follower = sim.ask(prompt_tokens=20, answer_tokens=3, at_s=0.81)
    sim.run(until_ended=1)
    assert follower.token_times_s[0] - 0.81 < 2 * GAP_TARGET_S
    assert 0 not in sim.loop.scheduler
    assert sum(tokens for _, tokens in read_of(calls, 0)) < BOOK


def test_background_reading_gives_way_and_is_not_lost() -> None:
    sim, calls = simulation()
    job = sim.ask(prompt_tokens=BOOK, answer_tokens=8, background=True)
    book = sim.ask(prompt_tokens=BOOK, answer_tokens=4, at_s=0.5)
    sim.run()
    assert book.token_times_s[-1] < job.token_times_s[0]
    assert (job.ends, book.ends) == (["length"], ["length"])
    assert_read_once(read_of(calls, 1), BOOK)
    # It begins anew: there is one context for prefilling interruptibly.
    parts = read_of(calls, 0)
    last = max(place for place, (start, _) in enumerate(parts) if start == 0)
    assert last > 0
    assert_read_once(parts[last:], BOOK)


@pytest.mark.parametrize("policy", ["chunked", "whole"])
def test_a_policy_may_take_over_in_the_middle(policy: Any) -> None:
    sim, calls = simulation()
    sim.ask(prompt_tokens=10, answer_tokens=100)
    book = sim.ask(prompt_tokens=BOOK, answer_tokens=5, at_s=0.2)
    for number, name in enumerate((policy, "adaptive", policy)):
        sim.mailbox.post(Configure(name, 64, GAP_TARGET_S), at_s=0.6 + 0.4 * number)
    sim.run()
    assert book.ends == ["length"]
    assert_read_once(read_of(calls, 1), BOOK)


class Failing(ModelledEngine):
    """Fails with its fortieth call that decodes: a book's call is open then."""

    decodes = 0
    error: Exception = EngineError("no more")

    def run(self, part: Plan, requests: Requests) -> CallResult:
        self.decodes += bool(part.decodes)
        if part.decodes and self.decodes == 40:
            raise self.error
        return super().run(part, requests)


def failing_simulation(error: Exception) -> tuple[Simulation, list[Call]]:
    def make(clock: Any, answer_tokens: Any) -> ModelledEngine:
        engine = Failing(clock, CostModel(COSTS), answer_tokens=answer_tokens)
        engine.error = error
        return engine

    sim, calls = simulation(make_engine=make)
    sim.ask(prompt_tokens=10, answer_tokens=200)
    sim.ask(prompt_tokens=BOOK, answer_tokens=5, at_s=0.2)
    return sim, calls


def test_an_engine_that_fails_between_two_nodes_ends_who_was_in_that_call_alone() -> None:
    sim, calls = failing_simulation(EngineError("no more"))
    sim.run()
    assert [ask.ends for ask in sim.asks.values()] == [["failed"], ["length"]]
    assert_read_once(read_of(calls, 1), BOOK)


def test_what_is_raised_between_two_nodes_is_raised_when_the_call_has_ended() -> None:
    sim, _ = failing_simulation(KeyError("a bug"))
    with pytest.raises(KeyError, match="a bug"):
        sim.run()


@settings(deadline=None, max_examples=50)
@given(
    books=st.lists(st.tuples(st.integers(500, 4000), st.integers(0, 30), st.booleans()), min_size=1, max_size=4),
    questions=st.lists(st.integers(0, 60), max_size=6),
    leaves=st.lists(st.tuples(st.integers(0, 4), st.integers(1, 60)), max_size=3),
)
def test_whatever_comes_every_prompt_is_read_once_and_everybody_ends(
    books: list[tuple[int, int, bool]], questions: list[int], leaves: list[tuple[int, int]]
) -> None:
    sim, calls = simulation(sequences=3)
    sim.ask(prompt_tokens=10, answer_tokens=80)
    for tokens, tenths, background in books:
        sim.ask(prompt_tokens=tokens, answer_tokens=3, at_s=tenths / 10, background=background)
    for tenths in questions:
        sim.ask(prompt_tokens=15, answer_tokens=3, at_s=tenths / 10)
    for number, tenths in leaves:
        while sim.clock.now_s() < tenths / 10 and sim.left:
            sim.step()
        sim.cancel(number)
    sim.run()
    for number, ask in sim.asks.items():
        assert ask.ends in (["length"], ["cancelled"])
        parts = read_of(calls, number)
        if ask.ends == ["length"] and not ask.background:
            assert_read_once(parts, len(ask.prompt))
