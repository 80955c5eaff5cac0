from __future__ import annotations

import asyncio

import pytest

from legato.bench.client import Client, http_client
from legato.bench.notes import notes_on
from legato.bench.reading import Reading, Sampling
from tests.bench.conftest import FakeFactory, target_of
from tests.bench.fake_server import FakeServer

SAMPLING = Sampling(seed=1, ignore_eos=True, context_tokens=2048)


def ask(server: FakeServer, tokens: int = 8, timeout_s: float = 10.0) -> Reading:
    async def once() -> Reading:
        async with http_client() as http:
            client = Client(target_of(server), http, SAMPLING, timeout_s)
            return await client.ask("one two", tokens, role="chat", round=4)

    return asyncio.run(once())


@pytest.mark.parametrize("api", ["openai", "ollama"])
def test_a_stream(fake: FakeFactory, api: str) -> None:
    answer = ask(fake(api=api, wait_s=0.05, gap_s=0.02))
    measured = answer.measured
    assert answer.text == "w0 w1 w2 w3 w4 w5 w6 w7 "
    assert (measured.error, measured.streamed, measured.hung_up) == ("", True, False)
    assert (measured.prompt_tokens, measured.answer_tokens, measured.wanted_tokens) == (14, 8, 8)
    assert (measured.role, measured.round) == ("chat", 4)
    assert len(measured.event_s) == 8
    assert measured.event_s[0] >= 0.05
    assert measured.event_s == sorted(measured.event_s)
    assert measured.event_s[-1] - measured.event_s[0] >= 7 * 0.019
    assert measured.ended_s is not None
    assert measured.ended_s >= measured.event_s[-1]
    assert not measured.stopped_early


def test_what_the_server_says_of_itself(fake: FakeFactory) -> None:
    measured = ask(fake(timings={"prefill_ms": 5.0})).measured
    assert measured.timings == {"prefill_ms": 5.0}
    assert measured.cached_tokens == 3


def test_cached_tokens_of_llama_server(fake: FakeFactory) -> None:
    assert ask(fake(timings={"cache_n": 7}, counts=False)).measured.cached_tokens == 7


def test_ollamas_durations(fake: FakeFactory) -> None:
    timings = ask(fake(api="ollama")).measured.timings
    assert timings is not None
    assert timings["eval_duration"] == 5


def test_the_body(fake: FakeFactory) -> None:
    server = fake()
    ask(server, 5)
    body = server.bodies[0]
    assert (body["max_tokens"], body["temperature"], body["ignore_eos"], body["model"]) == (5, 0, True, "tiny")
    assert body["stream_options"] == {"include_usage": True}


def test_ollamas_body(fake: FakeFactory) -> None:
    server = fake(api="ollama")
    ask(server, 5)
    assert server.bodies[0]["options"] == {"num_predict": 5, "num_ctx": 2048, "temperature": 0, "seed": 1}


def test_merged_tokens(fake: FakeFactory) -> None:
    measured = ask(fake("merge", gap_s=0.01)).measured
    assert len(measured.event_s) == 2
    assert measured.tokens_per_event == 4
    assert measured.streamed
    assert "4.0 tokens in one event" in notes_on([measured])[0]


def test_everything_in_one_event_is_no_stream(fake: FakeFactory) -> None:
    assert not ask(fake("merge"), 4).measured.streamed


def test_an_answer_in_one_piece(fake: FakeFactory) -> None:
    answer = ask(fake("plain"))
    assert not answer.measured.streamed
    assert (len(answer.measured.event_s), answer.measured.answer_tokens, answer.measured.error) == (1, 8, "")
    assert answer.text.startswith("w0 ")
    assert "in one piece" in notes_on([answer.measured])[0]


def test_an_answer_that_stops_early(fake: FakeFactory) -> None:
    measured = ask(fake("stop early")).measured
    assert measured.stopped_early
    assert measured.answer_tokens == 4
    assert "1 of 1 answers are shorter" in notes_on([measured])[0]


def test_without_counts(fake: FakeFactory) -> None:
    measured = ask(fake(counts=False)).measured
    assert (measured.prompt_tokens, measured.answer_tokens, len(measured.event_s)) == (None, None, 8)
    assert not measured.stopped_early


def test_a_stream_without_done(fake: FakeFactory) -> None:
    measured = ask(fake("no done")).measured
    assert measured.error == ""
    assert measured.answer_tokens == 8


def test_a_stream_that_breaks_off(fake: FakeFactory) -> None:
    measured = ask(fake("fail")).measured
    assert "cut off" in measured.error
    assert (len(measured.event_s), measured.ended_s) == (2, None)


@pytest.mark.parametrize(("api", "message"), [("openai", "The engine failed."), ("ollama", "The runner stopped.")])
def test_an_error_in_the_stream(fake: FakeFactory, api: str, message: str) -> None:
    measured = ask(fake("error event", api=api)).measured
    assert measured.error.endswith(message)
    assert len(measured.event_s) == 2


@pytest.mark.parametrize(
    ("api", "error"),
    [
        ("openai", "The server refused with status 429: The queue is full."),
        ("ollama", "The server refused with status 500: model not loaded"),
    ],
)
def test_a_refusal(fake: FakeFactory, api: str, error: str) -> None:
    measured = ask(fake("refuse", api=api)).measured
    assert (measured.error, measured.event_s) == (error, [])
    assert notes_on([measured]) == [f"1 of 1 requests failed: {error}"]


def test_a_refusal_that_is_no_json(fake: FakeFactory) -> None:
    assert ask(fake("not found")).measured.error == "The server refused with status 404: nothing here"


def test_what_is_not_of_the_api(fake: FakeFactory) -> None:
    assert "not of OpenAI's API" in ask(fake("garbage")).measured.error


@pytest.mark.parametrize("behaviour", ["hang", "hang midway"])
def test_events_without_text_do_not_keep_a_hung_answer_alive(fake: FakeFactory, behaviour: str) -> None:
    measured = ask(fake(behaviour), timeout_s=0.3).measured
    assert measured.error == "No event came for 0.3 s."
    assert len(measured.event_s) == (0 if behaviour == "hang" else 2)


def test_nobody_there(fake: FakeFactory) -> None:
    server = fake()
    server.stop()
    assert ask(server).measured.error.startswith("The connection failed")


def test_hanging_up_is_kept(fake: FakeFactory) -> None:
    server = fake(gap_s=0.02)

    async def cancelled() -> Client:
        async with http_client() as http:
            client = Client(target_of(server), http, SAMPLING)
            asking = client.ask("x", 500, role="chat")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(asking, 0.3)
            return client

    measured = asyncio.run(cancelled()).requests[0]
    assert measured.hung_up
    assert (measured.error, measured.stopped_early, measured.ended_s) == ("", False, None)
    assert measured.event_s
