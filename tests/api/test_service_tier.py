"""Background work and gap targets, as requests ask for them."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.support.asking import ANSWER, Api, ask, read, text_of, timings_of
from tests.support.server import LegatoProcess
from tests.support.streams import endless


@pytest.mark.parametrize(
    ("asked", "tier"), [(None, "default"), ("auto", "default"), ("default", "default"), ("flex", "flex")]
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_chat_says_how_it_was_served(server: LegatoProcess, asked: str | None, tier: str, stream: bool) -> None:
    options = {"service_tier": asked} if asked else {}
    answer = ask(server.openai(), "chat", stream=stream, **options)
    if stream:
        streamed = read(answer)
        assert {chunk.service_tier for chunk in streamed.chunks} == {tier}
        assert streamed.text == ANSWER
    else:
        assert answer.service_tier == tier
        assert text_of(answer.choices[0]) == ANSWER


@pytest.mark.parametrize("stream", [False, True])
def test_a_completion_does_too(server: LegatoProcess, stream: bool) -> None:
    options = {"max_tokens": 2, "extra_body": {"service_tier": "flex"}}
    answer = ask(server.openai(), "completions", "Hi", stream=stream, **options)
    parts = read(answer).chunks if stream else [answer]
    assert {part.model_extra["service_tier"] for part in parts} == {"flex"}


def test_the_record_says_so(server: LegatoProcess) -> None:
    flex = ask(server.openai(), "chat", max_tokens=1, service_tier="flex")
    plain = ask(server.openai(), "chat", max_tokens=1)
    found = [server.get(f"/api/requests/{answer.id}").json()["request"] for answer in (flex, plain)]
    assert [record["service_tier"] for record in found] == ["flex", "default"]
    assert found[0]["timings"]["preemptions"] == 0


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_a_request_has_the_gap_target_that_it_asks_for(server: LegatoProcess, api: Api) -> None:
    client = server.openai()
    own = ask(client, api, max_tokens=2, extra_body={"gap_target_ms": 250})
    assert timings_of(own)["gap_target_ms"] == 250
    assert timings_of(ask(client, api, max_tokens=2))["gap_target_ms"] == 100


def test_background_work_gives_its_place_up_and_ends_as_if_it_had_not(serve: Any) -> None:
    """One place: the question takes it from the background work, which then goes on where it was."""
    server = serve("smollm2", "--parallel", "1", "--ctx", "1024")
    client = server.openai()
    options: dict[str, Any] = {"max_tokens": 300, "extra_body": {"ignore_eos": True, "service_tier": "flex"}}
    alone = ask(client, "completions", "Count: one, two,", **options)
    results: list[Any] = []

    def work() -> None:
        results.append(read(ask(client, "completions", "Count: one, two,", stream=True, **options)))

    thread = threading.Thread(target=work)
    thread.start()
    while not any(live["answer_tokens"] > 3 for live in server.get("/api/requests").json()["running"]):
        assert thread.is_alive(), "the background work ended before the question came"
    assert text_of(ask(client, "chat").choices[0]) == ANSWER
    thread.join(timeout=120)
    (streamed,) = results
    assert streamed.text == text_of(alone.choices[0])
    body = server.get(f"/api/requests/{streamed.chunks[0].id}").json()
    timings = body["request"]["timings"]
    assert timings["preemptions"] == 1
    parts = timings["load_ms"] + timings["queue_ms"] + timings["prefill_ms"] + timings["decode_ms"]
    assert parts == pytest.approx(timings["total_ms"], abs=0.01)
    assert "gave its place up to others once" in " ".join(body["verdict"]["sentences"])


def test_a_question_goes_before_background_work_that_waits(serve: Any) -> None:
    server = serve("smollm2", "--parallel", "1", "--ctx", "512")
    client = server.openai()
    ended: list[str] = []

    def work(tier: str) -> None:
        ask(client, "completions", [42], max_tokens=5, extra_body={"service_tier": tier, "ignore_eos": True})
        ended.append(tier)

    threads = [threading.Thread(target=work, args=(tier,)) for tier in ("flex", "default")]
    with endless(client):
        for number, thread in enumerate(threads, start=1):
            thread.start()
            while server.get("/api/status").json()["waiting"] < number:
                pass
    for thread in threads:
        thread.join(timeout=60)
    assert ended == ["default", "flex"]


def test_a_target_that_no_step_can_keep_is_raised_and_told(server: LegatoProcess) -> None:
    options: dict[str, Any] = {"max_tokens": 30, "n": 8, "extra_body": {"ignore_eos": True, "gap_target_ms": 1}}
    answer = ask(server.openai(), "completions", [42], **options)
    timings = timings_of(answer)
    assert timings["gap_target_ms"] == 1
    assert timings["raised_gap_target_ms"] > 1
    assert 1 <= timings["raised_at_answers"] <= 8
    body = server.get(f"/api/requests/{answer.id}").json()
    assert "Its target of 1.0 ms could not always be kept" in " ".join(body["verdict"]["sentences"])
