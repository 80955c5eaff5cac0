"""Several answers in one request: `n`, lists of prompts, prompts of tokens, echo."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from legato.engine.model import Model
from legato.engine.vocabulary import Vocabulary
from tests.support.asking import QUESTION, Api, ask, completion, read, text_of, timings_of
from tests.support.server import LegatoProcess

CAPITALS = ["The capital of France is", "The capital of Germany is", "The capital of Italy is"]
STORY = "Tell me a story."
LIVELY: dict[str, Any] = {"temperature": 1.2, "seed": 7, "max_tokens": 12, "extra_body": {"ignore_eos": True}}
APIS = pytest.mark.parametrize("api", ["chat", "completions"])


@pytest.fixture(scope="module")
def vocabulary(model_path: Path) -> Vocabulary:
    return Model(model_path, vocabulary_only=True).vocabulary


def tokens_of(vocabulary: Vocabulary, text: str) -> list[int]:
    return vocabulary.tokenize(text, add_bos=vocabulary.adds_bos, parse_special=True).tolist()


@APIS
def test_n_answers_come_in_order_with_timings_of_their_own(server: LegatoProcess, api: Api) -> None:
    client = server.openai()
    alone = ask(client, api, **LIVELY)
    result = ask(client, api, n=3, **LIVELY)
    assert [choice.index for choice in result.choices] == [0, 1, 2]
    own = [timings_of(choice) for choice in result.choices]
    assert max(own, key=lambda timings: timings["total_ms"]) == timings_of(result)
    assert result.usage.prompt_tokens == alone.usage.prompt_tokens
    assert result.usage.completion_tokens == sum(timings["decode_tokens"] for timings in own)


@APIS
def test_n_answers_differ_and_repeat_with_the_seed(server: LegatoProcess, api: Api) -> None:
    client = server.openai()
    texts = [text_of(choice) for choice in ask(client, api, STORY, n=3, **LIVELY).choices]
    assert len(set(texts)) == 3
    assert texts == [text_of(choice) for choice in ask(client, api, STORY, n=3, **LIVELY).choices]
    assert texts[0] == text_of(ask(client, api, STORY, **LIVELY).choices[0])


@APIS
@pytest.mark.parametrize("include_usage", [False, True])
def test_a_stream_of_n_answers_is_the_plain_ones(server: LegatoProcess, api: Api, include_usage: bool) -> None:
    client = server.openai()
    plain = ask(client, api, n=3, **LIVELY)
    options = {"stream_options": {"include_usage": include_usage}}
    streamed = read(ask(client, api, n=3, stream=True, **LIVELY, **options))
    assert streamed.texts == {choice.index: text_of(choice) for choice in plain.choices}
    assert streamed.finishes == {choice.index: choice.finish_reason for choice in plain.choices}
    ends = [chunk for chunk in streamed.chunks if chunk.choices and chunk.choices[0].finish_reason]
    assert all(timings_of(chunk.choices[0]) for chunk in ends)
    # The timings of the request stand in the last chunk alone.
    assert [chunk for chunk in streamed.chunks if timings_of(chunk)] == streamed.chunks[-1:]
    assert streamed.chunks[-1].usage == (plain.usage if include_usage else None)


def test_each_streamed_chat_answer_opens_with_the_role(server: LegatoProcess) -> None:
    streamed = read(ask(server.openai(), "chat", n=2, max_tokens=3, stream=True))
    for index in (0, 1):
        roles = [c.choices[0].delta.role for c in streamed.chunks if c.choices and c.choices[0].index == index]
        assert roles == ["assistant"] + [None] * (len(roles) - 1)


def test_n_answers_at_temperature_zero_are_one(server: LegatoProcess) -> None:
    result = ask(server.openai(), "chat", n=4)
    assert len({text_of(choice) for choice in result.choices}) == 1


def test_sixteen_answers_on_eight_sequences_all_come(server: LegatoProcess) -> None:
    result = ask(server.openai(), "completions", "Once", n=16, max_tokens=2, temperature=1)
    assert [choice.index for choice in result.choices] == list(range(16))
    assert result.usage.completion_tokens <= 32


def test_several_prompts_are_answered_in_their_order(server: LegatoProcess) -> None:
    client = server.openai()
    alone = [ask(client, "completions", prompt, max_tokens=5) for prompt in CAPITALS]
    together = ask(client, "completions", CAPITALS, max_tokens=5)
    assert [choice.text for choice in together.choices] == [result.choices[0].text for result in alone]
    assert [choice.index for choice in together.choices] == [0, 1, 2]
    assert together.usage.prompt_tokens == sum(result.usage.prompt_tokens for result in alone)
    assert together.usage.completion_tokens == sum(result.usage.completion_tokens for result in alone)


def test_several_prompts_with_several_answers_count_each_prompt_once(server: LegatoProcess) -> None:
    client = server.openai()
    once = ask(client, "completions", CAPITALS, **LIVELY)
    twice = ask(client, "completions", CAPITALS, n=2, **LIVELY)
    assert [choice.index for choice in twice.choices] == list(range(6))
    assert [choice.text for choice in twice.choices][::2] == [choice.text for choice in once.choices]
    assert twice.usage.prompt_tokens == once.usage.prompt_tokens


def test_several_prompts_stream_side_by_side(server: LegatoProcess) -> None:
    client = server.openai()
    plain = ask(client, "completions", CAPITALS, n=2, **LIVELY)
    streamed = read(ask(client, "completions", CAPITALS, n=2, stream=True, **LIVELY))
    assert streamed.texts == {choice.index: choice.text for choice in plain.choices}


def test_a_prompt_of_tokens_is_the_prompt_of_its_text(server: LegatoProcess, vocabulary: Vocabulary) -> None:
    client = server.openai()
    as_text = ask(client, "completions", CAPITALS[0], max_tokens=6)
    as_tokens = ask(client, "completions", tokens_of(vocabulary, CAPITALS[0]), max_tokens=6)
    assert as_tokens.choices[0].text == as_text.choices[0].text
    assert as_tokens.usage == as_text.usage


def test_several_prompts_of_tokens(server: LegatoProcess, vocabulary: Vocabulary) -> None:
    client = server.openai()
    as_text = ask(client, "completions", CAPITALS, max_tokens=4)
    as_tokens = ask(client, "completions", [tokens_of(vocabulary, text) for text in CAPITALS], max_tokens=4)
    assert [choice.text for choice in as_tokens.choices] == [choice.text for choice in as_text.choices]


@pytest.mark.parametrize("stream", [False, True])
def test_echo_puts_the_prompt_before_each_answer(server: LegatoProcess, vocabulary: Vocabulary, stream: bool) -> None:
    client = server.openai()
    answers = [completion(client, prompt, max_tokens=4) for prompt in CAPITALS]
    for prompt in (CAPITALS, [tokens_of(vocabulary, text) for text in CAPITALS]):
        result = ask(client, "completions", prompt, max_tokens=4, echo=True, stream=stream)
        texts = read(result).texts if stream else {choice.index: choice.text for choice in result.choices}
        assert texts == {i: CAPITALS[i] + answers[i] for i in range(3)}


def test_echo_is_not_counted_as_answer(server: LegatoProcess) -> None:
    client = server.openai()
    assert ask(client, "completions", QUESTION, echo=True).usage == ask(client, "completions", QUESTION).usage


def test_echo_keeps_characters_of_several_tokens_whole(server: LegatoProcess) -> None:
    prompt = "日本語 🎉 naïve"
    assert completion(server.openai(), prompt, echo=True, max_tokens=1).startswith(prompt)
