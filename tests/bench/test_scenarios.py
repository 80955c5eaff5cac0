from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from legato.bench.results import BenchRun, MeasuredRequest, TargetRun
from legato.bench.runner import run_bench
from legato.bench.scenarios import Cache, Crowd, Interference, Scenario, Solo, Trace
from legato.bench.scenarios.trace import Arrival
from tests.bench.conftest import FakeFactory, target_of
from tests.bench.fake_server import FakeServer
from tests.support.waiting import wait_until


@dataclass
class Counting:
    """Progress as numbers."""

    begun: list[tuple[str, int]] = field(default_factory=list)
    steps: int = 0
    on_step: Callable[[int], None] = lambda _: None

    def begin(self, target: str, steps: int) -> None:
        self.begun.append((target, steps))

    def step(self) -> None:
        self.steps += 1
        self.on_step(self.steps)


def measure(scenario: Scenario, *servers: FakeServer, progress: Counting | None = None) -> BenchRun:
    progress = progress or Counting()
    return asyncio.run(run_bench(scenario, [target_of(server) for server in servers], progress, timeout_s=5))


def roles(run: TargetRun) -> list[str]:
    return [request.role for request in run.requests]


def of_role(run: TargetRun, role: str) -> list[MeasuredRequest]:
    return [request for request in run.requests if request.role == role]


def assert_all_prompts_differ_from_the_first_word(server: FakeServer) -> None:
    firsts = [prompt.split()[0] for prompt in server.prompts()]
    assert len(set(firsts)) == len(firsts)


def test_solo(fake: FakeFactory) -> None:
    server, progress = fake(), Counting()
    scenario = Solo(prompt_tokens=(100, 200), answer_tokens=(3, 4), rounds=2)
    run = measure(scenario, server, progress=progress)
    requests = run.runs[0].requests
    assert [(one.round, one.depth, one.wanted_tokens) for one in requests] == [
        (number, prompt, answer) for number in (0, 1) for prompt in (100, 200) for answer in (3, 4)
    ]
    assert all(abs((one.prompt_tokens or 0) - one.depth) <= 1 for one in requests), "calibrated by the warm-up"
    assert {one.role for one in requests if one.depth == 100} == {"100 tokens in, 3 out", "100 tokens in, 4 out"}
    assert (progress.begun, progress.steps) == ([("fake", 8)], 8)
    assert run.complete
    assert run.options["prompt_tokens"] == (100, 200)
    assert run.options["seed"] == 1
    assert run.machine
    assert_all_prompts_differ_from_the_first_word(server)


def test_interference(fake: FakeFactory) -> None:
    server = fake(wait_s=0.1, gap_s=0.01)
    scenario = Interference(
        prompt_tokens=300, answer_tokens=5, chat_tokens=3000, chat_alone_s=0.1, question_after_s=0.05, rounds=2
    )
    run = measure(scenario, server).runs[0]
    assert roles(run) == ["chat", "document", "question"] * 2
    for number in (0, 1):
        chat, document, question = (one for one in run.requests if one.round == number)
        assert document.sent_s - chat.sent_s - chat.event_s[0] >= 0.09
        assert question.sent_s - document.sent_s >= 0.04
        assert chat.hung_up
        assert chat.ended_s is None
        assert chat.sent_s + chat.event_s[-1] >= document.sent_s
        assert (document.answer_tokens, question.answer_tokens) == (5, 5)
        assert document.depth == 300
    assert run.notes == []
    wait_until(lambda: server.gone >= 2, "the chats' connections are closed")
    assert_all_prompts_differ_from_the_first_word(server)


def test_a_chat_that_does_not_outlast_the_others_is_noted(fake: FakeFactory) -> None:
    scenario = Interference(
        prompt_tokens=50, answer_tokens=2, chat_tokens=2, chat_alone_s=0.1, question_after_s=0, rounds=1
    )
    run = measure(scenario, fake()).runs[0]
    assert "In 1 of 1 rounds the chat ended before" in run.notes[0]


def test_a_chat_that_never_begins_does_not_stop_the_round(fake: FakeFactory) -> None:
    scenario = Interference(prompt_tokens=50, answer_tokens=2, chat_alone_s=0.05, question_after_s=0, rounds=1)
    run = measure(scenario, fake("refuse", healthy_requests=2)).runs[0]
    assert roles(run) == ["chat", "document", "question"]
    assert "3 of 3 requests failed" in run.notes[1]


def test_crowd(fake: FakeFactory) -> None:
    server = fake()
    scenario = Crowd(people=3, duration_s=0.4, think_s=0.03, answer_tokens=4, conversation_tokens=300, jobs=1)
    run = measure(scenario, server).runs[0]
    assert {"person 1", "person 2", "person 3", "job 1"} <= set(roles(run))
    assert not [one for one in run.requests if one.error]
    turns = of_role(run, "person 1")
    assert [one.round for one in turns] == list(range(len(turns)))
    grown = [len(body["messages"]) for body in server.bodies]
    assert {1, 3} <= set(grown), "later turns send what was said"
    assert max(one.prompt_tokens or 0 for one in run.requests if one.role != "job 1") < 300 + 60 + 4, "and begin anew"
    assert {one.depth for one in of_role(run, "job 1")} == {4000}


def test_a_refused_crowd_does_not_flood(fake: FakeFactory) -> None:
    scenario = Crowd(people=2, duration_s=0.3, think_s=0.01, answer_tokens=4)
    run = measure(scenario, fake("refuse", healthy_requests=2)).runs[0]
    assert len(run.requests) == 2
    assert run.notes == ["2 of 2 requests failed: The server refused with status 429: The queue is full."]


def test_trace_does_not_wait_for_answers(fake: FakeFactory) -> None:
    arrivals = (Arrival(0, 60, 4), Arrival(0.05, 100, 5), Arrival(0.2, 80, 6))
    run = measure(Trace(arrivals=arrivals), fake(wait_s=0.3)).runs[0]
    assert [(one.depth, one.answer_tokens) for one in run.requests] == [(60, 4), (100, 5), (80, 6)]
    first, second, third = run.requests
    assert second.sent_s - first.sent_s >= 0.04
    assert third.sent_s - first.sent_s >= 0.19
    assert first.ended_s is not None
    assert third.sent_s < first.sent_s + first.ended_s


def test_cache(fake: FakeFactory) -> None:
    server, progress = fake(), Counting()
    scenario = Cache(prompt_tokens=400, other_tokens=100, answer_tokens=3, turns=2, pause_s=0.2, rounds=2)
    run = measure(scenario, server, progress=progress).runs[0]
    one_round = ["cold", "again", "other", "in turns", "other", "in turns", "after pause"]
    assert roles(run) == one_round * 2
    assert progress.steps == scenario.steps == 14
    cold, again, other, in_turns, _, last_turn, after = (body["messages"] for body in server.bodies[2:9])
    text = cold[0]["content"].split("\n\n")[0]
    assert again[0]["content"].startswith(text)
    assert again[0]["content"] != cold[0]["content"], "another question"
    assert not other[0]["content"].startswith(text.split()[0])
    assert in_turns[0] == cold[0]
    assert after[: len(last_turn)] == last_turn
    assert server.bodies[9]["messages"][0]["content"].split()[0] != text.split()[0], "each round its own text"
    before_pause, after_pause = run.requests[5:7]
    assert before_pause.ended_s is not None
    assert after_pause.sent_s - before_pause.sent_s - before_pause.ended_s >= 0.19


def test_targets_in_turn_get_the_same_text(fake: FakeFactory) -> None:
    servers = [fake(), fake(api="ollama")]
    run = measure(Solo(prompt_tokens=(100,), answer_tokens=(3,), rounds=2), *servers)
    assert [target.api for target in run.runs] == ["openai", "ollama"]
    assert servers[0].prompts() == servers[1].prompts()
    assert all(len(target.requests) == 2 for target in run.runs)
    assert len({body["options"]["num_ctx"] for body in servers[1].bodies}) == 1


def test_two_runs_share_no_beginning(fake: FakeFactory) -> None:
    server = fake()
    for _ in range(2):
        measure(Solo(prompt_tokens=(100,), answer_tokens=(3,), rounds=1), server)
    assert_all_prompts_differ_from_the_first_word(server)


def test_a_server_that_refuses_ignore_eos(fake: FakeFactory) -> None:
    run = measure(Solo(prompt_tokens=(100,), rounds=1), fake(knows_ignore_eos=False)).runs[0]
    assert [one.error for one in run.requests] == [""]
    assert "does not take ignore_eos" in run.notes[0]


def test_a_server_that_does_not_count(fake: FakeFactory) -> None:
    run = measure(Solo(prompt_tokens=(100,), rounds=1), fake(counts=False)).runs[0]
    assert len(run.requests) == 1
    assert "does not count tokens" in run.notes[0]


def test_a_failed_warm_up_leaves_the_other_targets_alone(fake: FakeFactory) -> None:
    run = measure(Solo(prompt_tokens=(100,), rounds=1), fake("refuse"), fake())
    assert (run.runs[0].requests, len(run.runs[1].requests)) == ([], 1)
    assert "The queue is full." in run.runs[0].notes[0]


@pytest.mark.parametrize("behaviour", ["fail", "plain", "merge", "stop early", "error event"])
def test_odd_servers_are_kept_with_a_note(fake: FakeFactory, behaviour: str) -> None:
    run = measure(Solo(prompt_tokens=(100,), answer_tokens=(8,), rounds=3), fake(behaviour, healthy_requests=2)).runs[0]
    assert len(run.requests) == 3
    assert run.notes


def test_an_interrupted_run_keeps_what_was_measured(fake: FakeFactory) -> None:
    async def interrupted() -> BenchRun:
        running = asyncio.current_task()
        assert running is not None
        progress = Counting(on_step=lambda steps: running.cancel() if steps == 2 else None)
        targets = [target_of(server) for server in servers]
        return await run_bench(Solo(prompt_tokens=(100,), answer_tokens=(3,), rounds=5), targets, progress)

    servers = [fake(), fake()]
    run = asyncio.run(interrupted())
    assert not run.complete
    assert len(run.runs) == 1
    assert [one.hung_up for one in run.runs[0].requests] == [False, False, True]
