"""Stop strings: the answer ends before the first one, and no part of it is ever shown."""

from __future__ import annotations

import random

import pytest

from tests.support.asking import ANSWER, ask, completion, read, text_of
from tests.support.server import LegatoProcess

COUNTING = "one, two, three, four, five,"
LONG_TOKENS = 48


@pytest.fixture(scope="module")
def long_answer(server: LegatoProcess) -> str:
    """A known greedy answer, long enough to cut it anywhere."""
    text = completion(server.openai(), COUNTING, max_tokens=LONG_TOKENS, extra_body={"ignore_eos": True})
    assert len(text) > LONG_TOKENS
    return text


def cut_by(server: LegatoProcess, stop: str | list[str]) -> str:
    """The chat's answer under a stop; checks that stream and plain answer agree, and that both say how they ended."""
    client = server.openai()
    plain = ask(client, "chat", stop=stop).choices[0]
    streamed = read(ask(client, "chat", stop=stop, stream=True))
    assert streamed.text == text_of(plain)
    assert streamed.finish == plain.finish_reason == "stop"
    return streamed.text


@pytest.mark.parametrize(
    ("stop", "text"),
    [
        ("ital of Fr", "The cap"),
        ("e", "Th"),
        ("The", ""),
        (ANSWER, ""),
        (".", "The capital of France is Paris"),
        ("aris.", "The capital of France is P"),
        ("l o", "The capita"),
    ],
)
def test_a_stop_cuts_in_the_middle_of_words_and_across_tokens(server: LegatoProcess, stop: str, text: str) -> None:
    assert cut_by(server, stop) == text


def test_of_several_stops_the_first_in_the_answer_counts(server: LegatoProcess) -> None:
    assert cut_by(server, ["Paris", "France", "Berlin"]) == "The capital of "
    assert cut_by(server, ["is Paris", "France is", "al of Fra"]) == "The capit"


def test_of_two_stops_at_one_place_either_ends_the_answer_there(server: LegatoProcess) -> None:
    assert cut_by(server, ["France is Paris", "France"]) == "The capital of "
    assert cut_by(server, ["France", "France is Paris"]) == "The capital of "


def test_sixteen_stops_are_taken(server: LegatoProcess) -> None:
    assert cut_by(server, [*(f"never {n}" for n in range(15)), "Paris"]) == "The capital of France is "


@pytest.mark.parametrize(
    "stop", ["France is Berlin", "Paris.!", "The capital of France is Paris. It", "capital of Spain"]
)
def test_a_stop_whose_beginning_alone_comes_holds_nothing_back(server: LegatoProcess, stop: str) -> None:
    assert cut_by(server, stop) == ANSWER


def test_what_a_stop_held_back_is_shown_when_the_limit_ends_the_answer(server: LegatoProcess) -> None:
    stream = ask(server.openai(), "chat", stop="of France is not", max_tokens=4, stream=True)
    streamed = read(stream)
    assert (streamed.text, streamed.finish) == ("The capital of France", "length")


def test_a_stop_is_not_looked_for_in_the_prompt(server: LegatoProcess) -> None:
    client = server.openai()
    prompt = "The capital of France is"
    expected = completion(client, prompt, max_tokens=4)
    assert completion(client, prompt, max_tokens=4, stop="capital of France") == expected
    # It would be one only together with the prompt's last word.
    assert completion(client, prompt, max_tokens=4, stop="is" + expected) == expected


def test_an_empty_list_of_stops_is_none(server: LegatoProcess) -> None:
    assert cut_by(server, []) == ANSWER


@pytest.mark.parametrize("seed", range(6))
def test_any_piece_of_the_answer_can_be_its_stop(server: LegatoProcess, long_answer: str, seed: int) -> None:
    chance = random.Random(seed)
    start = chance.randrange(5, len(long_answer) - 20)
    stop = long_answer[start : start + chance.randint(1, 18)]
    stream = ask(
        server.openai(),
        "completions",
        COUNTING,
        max_tokens=LONG_TOKENS,
        stop=[stop, "never to be seen"],
        stream=True,
        extra_body={"ignore_eos": True},
    )
    streamed = read(stream)
    assert streamed.text == long_answer[: long_answer.index(stop)]
    assert streamed.finish == "stop"


def test_a_stream_is_not_held_back_longer_than_it_must_be(server: LegatoProcess, long_answer: str) -> None:
    """A stop that never begins leaves every token an event of its own."""
    stream = ask(
        server.openai(),
        "completions",
        COUNTING,
        max_tokens=20,
        stop="\x00\x01",
        stream=True,
        extra_body={"ignore_eos": True},
    )
    texts = [chunk.choices[0].text for chunk in stream if chunk.choices[0].text]
    assert len(texts) == 20
    assert long_answer.startswith("".join(texts))


def test_tokens_of_a_stopped_answer_are_few(server: LegatoProcess) -> None:
    """The engine stops with the string; it does not write on to the limit."""
    result = ask(server.openai(), "completions", COUNTING, stop="six", max_tokens=1000, extra_body={"ignore_eos": True})
    assert result.usage.completion_tokens < 20
