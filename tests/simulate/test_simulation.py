"""The simulation itself: it runs the loop that serves, repeats itself, and says when it can't go on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from legato.core.sampling import SamplingParameters
from legato.runtime.loop import EngineLoop
from legato.scheduling import Coefficients, CostModel
from legato.simulate import Ask, SimulatedMailbox, Simulation, VirtualClock
from legato.simulate.mailbox import NobodyLeftError
from legato.wire.messages import Cancel, Submit

DOCS = Path(__file__).parents[2] / "docs"
COSTS = Coefficients(0.010, 0.002, 2e-6, 0.001, 0.001, 1e-6)


def household(seed: int) -> Simulation:
    """A few people, as chosen by a number."""
    simulation = Simulation(policy="adaptive", costs=COSTS, interruptible=True, slowness=[1.0, 1.1, 0.9 + 0.01 * seed])
    for number in range(6):
        simulation.ask(prompt_tokens=20 + 300 * (number * seed % 5), answer_tokens=30, at_s=0.3 * number)
    return simulation.run()


def outcome(simulation: Simulation) -> list[Ask]:
    return list(simulation.asks.values())


def test_it_runs_the_loop_that_serves() -> None:
    assert type(household(1).loop) is EngineLoop


def test_the_same_again_is_the_same() -> None:
    first, second = ([(ask.token_times_s, ask.prefill_s, ask.ends) for ask in outcome(household(3))] for _ in range(2))
    assert first == second
    assert first != [(ask.token_times_s, ask.prefill_s, ask.ends) for ask in outcome(household(4))]


def test_what_calls_take_is_what_the_cost_model_says() -> None:
    simulation = Simulation(policy="chunked", costs=COSTS, chunk=64)
    ask = simulation.ask(prompt_tokens=64, answer_tokens=3)
    simulation.run()
    truth = CostModel(COSTS)
    assert ask.token_times_s[0] == pytest.approx(truth.chunk_s(0, 64))
    assert ask.token_times_s[1] - ask.token_times_s[0] == pytest.approx(truth.decode_s((65,)))
    assert ask.token_times_s[2] - ask.token_times_s[1] == pytest.approx(truth.decode_s((66,)))


def test_requests_come_at_their_times() -> None:
    simulation = Simulation(policy="whole", costs=COSTS)
    late = simulation.ask(prompt_tokens=5, answer_tokens=1, at_s=100.0)
    early = simulation.ask(prompt_tokens=5, answer_tokens=1, at_s=3.0)
    simulation.run()
    assert 3.0 < early.token_times_s[0] < 3.1
    assert 100.0 < late.token_times_s[0] < 100.1


def test_without_anybody_there_is_nothing_to_do() -> None:
    simulation = Simulation(policy="adaptive", costs=COSTS)
    assert not simulation.step()
    assert simulation.run().clock.now_s() == 0


def test_a_run_that_does_not_end_is_said() -> None:
    simulation = Simulation(policy="adaptive", costs=COSTS)
    simulation.ask(prompt_tokens=5, answer_tokens=100)
    with pytest.raises(RuntimeError, match=r"requests \[0\] have not ended after 10 steps"):
        simulation.run(most_steps=10)


@given(times=st.lists(st.floats(0, 100), max_size=20))
def test_messages_come_in_the_order_of_their_times(times: list[float]) -> None:
    clock = VirtualClock()
    mailbox = SimulatedMailbox(clock)
    for number, at_s in enumerate(times):
        mailbox.post(Cancel(number), at_s)
    came: list[int] = []
    while mailbox.coming:
        message = mailbox.receive(wait=True)
        assert isinstance(message, Cancel)
        assert clock.now_s() >= times[message.id]
        came.append(message.id)
    assert came == sorted(range(len(times)), key=lambda number: (times[number], number))
    assert mailbox.receive(wait=False) is None
    with pytest.raises(NobodyLeftError):
        mailbox.receive(wait=True)


@settings(deadline=None, max_examples=30)
@given(gains=st.lists(st.integers(1, 4), min_size=1, max_size=4), length=st.integers(1, 40))
def test_steps_may_commit_several_tokens(gains: list[int], length: int) -> None:
    simulation = Simulation(policy="adaptive", costs=COSTS, gains=gains)
    ask = simulation.ask(prompt_tokens=30, answer_tokens=length)
    simulation.run()
    assert len(ask.answer) == len(set(ask.answer)) == length


def test_a_prompt_that_never_fits_is_refused_as_by_the_server() -> None:
    simulation = Simulation(policy="adaptive", costs=COSTS, cells_per_sequence=100)
    assert simulation.ask(prompt_tokens=100, answer_tokens=1) is simulation.asks[0]
    simulation.run()
    assert simulation.asks[0].ends == ["failed"]


def test_the_example_in_the_documentation_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", (DOCS / "architecture.md").read_text(), re.DOTALL)
    exec(compile(example, "docs/architecture.md", "exec"), {})
    longest_gap_s, first_token_s = map(float, capsys.readouterr().out.split())
    assert longest_gap_s <= 0.1
    assert first_token_s > 1.0


def test_a_message_can_be_what_the_wire_carries() -> None:
    """A simulation takes in the very messages of a server."""
    simulation = Simulation(policy="adaptive", costs=COSTS)
    ask = simulation.ask(prompt_tokens=4, answer_tokens=2)
    message = simulation.mailbox.receive(wait=True)
    assert message == Submit(0, ask.prompt.astype("<i4").tobytes(), 2, SamplingParameters())
