"""Why an answer ended: its end token, a stop string, a limit, or the end of the context."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.asking import ANSWER, Api, answer, ask, completion
from tests.support.server import LegatoProcess

STREAM = pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
APIS = pytest.mark.parametrize("api", ["chat", "completions"])

CONTEXT_TOKENS = 256


@pytest.fixture(scope="module")
def small_server(model_path: Path) -> Iterator[LegatoProcess]:
    """A server whose context is soon full."""
    with LegatoProcess("smollm2", "--ctx", str(CONTEXT_TOKENS), "--parallel", "2") as process:
        process.wait_ready()
        yield process


@STREAM
def test_the_end_token_stops(server: LegatoProcess, stream: bool) -> None:
    assert answer(server.openai(), "chat", stream=stream) == (ANSWER, "stop")


@STREAM
def test_a_stop_string_stops(server: LegatoProcess, stream: bool) -> None:
    assert answer(server.openai(), "chat", stream=stream, stop=" is") == ("The capital of France", "stop")


@STREAM
@APIS
def test_max_tokens_is_a_length(server: LegatoProcess, api: Api, stream: bool) -> None:
    text, finish = answer(server.openai(), api, stream=stream, max_tokens=3)
    assert finish == "length"
    assert text


@STREAM
def test_max_completion_tokens_is_the_same_limit(server: LegatoProcess, stream: bool) -> None:
    expected = ("The capital of", "length")
    assert answer(server.openai(), "chat", stream=stream, max_completion_tokens=3) == expected
    assert answer(server.openai(), "chat", stream=stream, max_tokens=3) == expected
    assert answer(server.openai(), "chat", stream=stream, max_tokens=3, max_completion_tokens=3) == expected


def test_a_limit_that_the_answer_just_reaches_is_a_length(server: LegatoProcess) -> None:
    assert answer(server.openai(), "chat", stream=False, max_tokens=7) == (ANSWER, "length")
    assert answer(server.openai(), "chat", stream=False, max_tokens=8) == (ANSWER, "stop")


def test_a_completion_has_16_tokens_unless_told_otherwise(server: LegatoProcess) -> None:
    result = ask(server.openai(), "completions", "1, 2, 3, 4,", extra_body={"ignore_eos": True})
    assert result.usage.completion_tokens == 16
    assert result.choices[0].finish_reason == "length"


def test_ignore_eos_goes_on_after_the_end_token(server: LegatoProcess) -> None:
    result = ask(server.openai(), "chat", max_tokens=20, extra_body={"ignore_eos": True})
    assert result.choices[0].message.content.startswith(ANSWER)
    assert result.usage.completion_tokens == 20
    assert result.choices[0].finish_reason == "length"


@pytest.mark.parametrize("limit", [{}, {"max_tokens": 100_000}], ids=["no limit", "a limit beyond it"])
@pytest.mark.parametrize("api", ["chat", "completions"])
def test_the_end_of_the_context_is_a_length(small_server: LegatoProcess, api: Api, limit: dict) -> None:
    limit = limit or ({"max_tokens": None} if api == "completions" else {})
    prompt = "Count: " + ", ".join(str(n) for n in range(45))
    result = ask(small_server.openai(), api, prompt, extra_body={"ignore_eos": True}, **limit)
    assert result.choices[0].finish_reason == "length"
    assert result.usage.total_tokens == CONTEXT_TOKENS


def test_the_longest_prompt_that_fits_gets_one_token(small_server: LegatoProcess) -> None:
    result = ask(small_server.openai(), "completions", [42] * (CONTEXT_TOKENS - 1), extra_body={"ignore_eos": True})
    assert result.usage.completion_tokens == 1
    assert result.choices[0].finish_reason == "length"


def test_after_a_full_context_the_next_answer_is_right(small_server: LegatoProcess) -> None:
    client = small_server.openai()
    for _ in range(2):
        ask(client, "completions", [42] * (CONTEXT_TOKENS - 1))
    assert answer(client, "chat", stream=False) == (ANSWER, "stop")


def test_an_answer_that_ends_at_once_is_empty(server: LegatoProcess) -> None:
    """The end token of chats comes first: everything else is forbidden by its bias."""
    end_of_turn = 2
    result = ask(server.openai(), "chat", logit_bias={str(end_of_turn): 100}, max_tokens=10)
    assert result.choices[0].message.content == ""
    assert result.choices[0].finish_reason == "stop"
    assert result.usage.completion_tokens == 0
    assert completion(server.openai(), "Hello", logit_bias={str(end_of_turn): 100}) == ""
