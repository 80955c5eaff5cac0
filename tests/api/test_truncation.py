"""Conversations that are longer than the context."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.asking import ask, read, timings_of, user
from tests.support.errors import error_of
from tests.support.server import LegatoProcess

CHAT = "/v1/chat/completions"
CONTEXT = 256
LIMIT = 2
"""Tokens of an answer, for which the prompt leaves room."""
STEP = CONTEXT // 4
VOWELS = ["a", "e", "i", "o"]
"""Stops that end an answer soon, whatever its limit."""
SYSTEM = [{"role": "system", "content": "You are brief."}, {"role": "developer", "content": "Answer in English."}]


@pytest.fixture(scope="module")
def small(model_path: Path) -> Iterator[LegatoProcess]:
    """A server with a small context."""
    with LegatoProcess("smollm2", "--ctx", str(CONTEXT), "--parallel", "1") as process:
        process.wait_ready()
        yield process


def turns(count: int) -> list[dict[str, Any]]:
    """Turns of different lengths, about 20 tokens each."""
    return [
        message
        for number in range(count)
        for message in (
            {"role": "user", "content": f"Question {number}" + " why" * (number % 5)},
            {"role": "assistant", "content": f"Answer {number}" + " so" * (number % 3)},
        )
    ]


def long(count: int = 20) -> list[dict[str, Any]]:
    """A conversation that does not fit, with a last question."""
    return [*SYSTEM, *turns(count), *user("And what is the capital of France?")]


def post(server: LegatoProcess, messages: Any, **body: Any) -> httpx.Response:
    return server.post(CHAT, {"messages": messages, "max_tokens": LIMIT, "temperature": 0, **body})


def truncated(server: LegatoProcess, messages: Any, **body: Any) -> dict[str, Any]:
    reply = post(server, messages, truncation="auto", **body)
    assert reply.status_code == 200, reply.text
    return reply.json()


def prompt_tokens(server: LegatoProcess, messages: Any, **body: Any) -> int:
    """Tokens of a conversation, whether it fits or is refused with the figures."""
    reply = post(server, messages, **body)
    if reply.status_code == 200:
        return reply.json()["usage"]["prompt_tokens"]
    return refused_tokens(reply)


def refused_tokens(reply: httpx.Response) -> int:
    assert reply.status_code == 400, reply.text
    error = error_of(reply)
    assert (error["param"], error["code"]) == ("messages", "context_length_exceeded")
    figures = [int(word) for word in error["message"].replace(",", " ").split() if word.isdecimal()]
    assert len(figures) == 2
    assert figures[1] == CONTEXT
    return figures[0]


@pytest.mark.parametrize("body", [{}, {"truncation": None}, {"truncation": "disabled"}])
def test_without_truncation_a_long_conversation_is_refused(small: LegatoProcess, body: dict[str, Any]) -> None:
    reply = post(small, long(), **body)
    assert refused_tokens(reply) > CONTEXT
    assert "truncation" not in error_of(reply)["message"]


@pytest.mark.parametrize("count", [12, 40])
def test_the_oldest_turns_are_dropped_and_counted(small: LegatoProcess, count: int) -> None:
    messages = long(count)
    answer = truncated(small, messages)
    dropped = answer["truncation"]["dropped_messages"]
    assert set(answer["truncation"]) == {"dropped_messages", "dropped_tokens"}
    assert dropped > 0
    assert dropped % 2 == 0, "a turn is dropped whole"
    # What is left is the conversation without them, the system messages included.
    kept = answer["usage"]["prompt_tokens"]
    assert kept == prompt_tokens(small, [*SYSTEM, *messages[len(SYSTEM) + dropped :]])
    assert kept != prompt_tokens(small, messages[len(SYSTEM) + dropped :])
    total = prompt_tokens(small, messages)
    assert answer["truncation"]["dropped_tokens"] == total - kept
    # No more and no fewer than the step says.
    excess = total - (CONTEXT - LIMIT)
    wanted = -(-excess // STEP) * STEP
    assert total - kept >= wanted
    assert total - prompt_tokens(small, [*SYSTEM, *messages[len(SYSTEM) + dropped - 2 :]]) < wanted


def test_the_next_turn_drops_the_same_messages(small: LegatoProcess) -> None:
    first = truncated(small, long())
    assert first["truncation"]["dropped_messages"] > 0
    grown = [*long(), {"role": "assistant", "content": "Paris."}, *user("And of Spain?")]
    second = truncated(small, grown)
    assert second["truncation"] == first["truncation"]
    assert second["usage"]["prompt_tokens"] > first["usage"]["prompt_tokens"]
    # The kept beginning is remembered, but for the template's last words, which the answer has replaced.
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] >= first["usage"]["prompt_tokens"] - 8


@pytest.mark.parametrize(
    ("limit", "room"),
    [
        ({"max_tokens": 40}, 40),
        ({"max_tokens": 10_000}, CONTEXT // 4),
        ({"max_tokens": None, "max_completion_tokens": 50}, 50),
        ({"max_tokens": None}, CONTEXT // 8),
    ],
)
def test_room_is_kept_for_the_answer(small: LegatoProcess, limit: dict[str, Any], room: int) -> None:
    messages = long()
    answer = truncated(small, messages, stop=VOWELS, **limit)
    total = answer["usage"]["prompt_tokens"] + answer["truncation"]["dropped_tokens"]
    excess = total - (CONTEXT - room)
    assert answer["usage"]["prompt_tokens"] <= CONTEXT - room
    assert answer["truncation"]["dropped_tokens"] >= -(-excess // STEP) * STEP


def test_what_fits_is_left_alone(small: LegatoProcess) -> None:
    messages = long(2)
    answer = truncated(small, messages)
    assert "truncation" not in answer
    assert answer["usage"]["prompt_tokens"] == prompt_tokens(small, messages)
    events = ask(small.openai(), "chat", messages, stream=True, max_tokens=LIMIT, extra_body={"truncation": "auto"})
    assert all("truncation" not in chunk.model_extra for chunk in read(events).chunks)


@pytest.mark.parametrize("usage", [False, True])
def test_a_stream_says_it_beside_the_timings(small: LegatoProcess, usage: bool) -> None:
    options: dict[str, Any] = {"max_tokens": LIMIT, "extra_body": {"truncation": "auto"}}
    stream = ask(small.openai(), "chat", long(), stream=True, stream_options={"include_usage": usage}, n=2, **options)
    *chunks, last = read(stream).chunks
    assert last.model_extra["truncation"]["dropped_messages"] > 0
    assert timings_of(last)
    assert all("truncation" not in chunk.model_extra for chunk in chunks)
    assert [choice.finish_reason for choice in last.choices] == ([] if usage else ["length"])


def test_the_official_client_shows_it(small: LegatoProcess) -> None:
    options: dict[str, Any] = {"max_tokens": LIMIT, "extra_body": {"truncation": "auto"}}
    client = small.openai()
    whole = ask(client, "chat", long(), **options)
    *_, last = read(ask(client, "chat", long(), stream=True, **options)).chunks
    assert whole.model_extra["truncation"] == last.model_extra["truncation"]
    assert whole.usage.prompt_tokens + last.model_extra["truncation"]["dropped_tokens"] == prompt_tokens(small, long())


def test_an_answer_can_be_continued_in_a_long_conversation(small: LegatoProcess) -> None:
    messages = [*long(), {"role": "assistant", "content": "The capital of France is"}]
    answer = truncated(small, messages, continue_final_message=True)
    dropped = answer["truncation"]["dropped_messages"]
    assert dropped > 0
    kept = [*SYSTEM, *messages[len(SYSTEM) + dropped :]]
    assert answer["usage"]["prompt_tokens"] == prompt_tokens(small, kept, continue_final_message=True)
    assert answer["usage"]["prompt_tokens"] != prompt_tokens(small, kept)


@pytest.mark.parametrize("older", [0, 20])
def test_a_last_turn_that_does_not_fit_is_refused_with_the_figures(small: LegatoProcess, older: int) -> None:
    last = [*user("word " * 300), {"role": "assistant", "content": "Go on."}]
    reply = post(small, [*SYSTEM, *turns(older), *last], truncation="auto")
    assert refused_tokens(reply) == prompt_tokens(small, [*SYSTEM, *last])
    assert "truncation could not help" in error_of(reply)["message"]


def test_a_last_turn_may_need_the_room_of_the_answer(small: LegatoProcess) -> None:
    last = user("word " * 185)
    tokens = prompt_tokens(small, [*SYSTEM, *last])
    assert CONTEXT * 3 // 4 < tokens < CONTEXT
    answer = truncated(small, [*SYSTEM, *turns(20), *last], max_tokens=1000, stop=VOWELS)
    assert answer["usage"]["prompt_tokens"] == tokens
    assert answer["truncation"]["dropped_messages"] == 40
    assert "truncation" not in truncated(small, [*SYSTEM, *last], max_tokens=1000, stop=VOWELS)


def test_messages_that_are_wrong_are_refused_as_ever(small: LegatoProcess) -> None:
    reply = post(small, [*long(), {"role": "robot", "content": "x"}], truncation="auto")
    assert reply.status_code == 400
    assert error_of(reply)["param"] == f"messages[{len(long())}].role"
    reply = post(small, long(), truncation="auto", continue_final_message=True)
    assert reply.status_code == 400
    assert "assistant" in error_of(reply)["message"]


@pytest.mark.parametrize("value", ["on", "", "AUTO", True, 5, ["auto"], {"type": "auto"}])
def test_other_values_are_refused_with_those_that_would_be_right(small: LegatoProcess, value: Any) -> None:
    reply = post(small, user("Hi"), truncation=value)
    assert reply.status_code == 400
    error = error_of(reply)
    assert (error["param"], error["code"]) == ("truncation", "invalid_value")
    assert "'auto' or 'disabled'" in error["message"]


@pytest.mark.parametrize("value", ["auto", "disabled", None])
def test_completions_have_no_turns_to_drop(small: LegatoProcess, value: str | None) -> None:
    reply = small.post("/v1/completions", {"prompt": "Hi", "max_tokens": 1, "truncation": value})
    assert reply.status_code == 400
    error = error_of(reply)
    assert (error["param"], error["code"]) == ("truncation", "unknown_parameter")
    assert error["message"] == "Unrecognized request argument: truncation."
