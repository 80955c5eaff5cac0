"""Log-probabilities in both APIs: they are probabilities, and their tokens are the answer."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest

from tests.support.asking import ANSWER, ask, read, text_of
from tests.support.server import LegatoProcess

EMOJI = "🎉🎊🥳🎈\n" * 5


def chat_tokens(result: Any) -> list[Any]:
    return result.choices[0].logprobs.content


def streamed_chat_tokens(stream: Any) -> list[Any]:
    chunks = read(stream).chunks
    return [
        token
        for chunk in chunks
        for choice in chunk.choices
        if choice.logprobs is not None
        for token in choice.logprobs.content
    ]


@pytest.mark.parametrize("count", [1, 5, 20])
def test_chat_tokens_join_to_the_answer_and_are_the_likeliest(server: LegatoProcess, count: int) -> None:
    tokens = chat_tokens(ask(server.openai(), "chat", logprobs=True, top_logprobs=count))
    assert "".join(token.token for token in tokens) == ANSWER
    assert b"".join(bytes(token.bytes) for token in tokens).decode() == ANSWER
    for token in tokens:
        top = token.top_logprobs
        assert len(top) == count
        assert (top[0].token, top[0].logprob) == (token.token, token.logprob)
        assert all(a.logprob >= b.logprob for a, b in pairwise(top))
        assert 0 < sum(math.exp(entry.logprob) for entry in top) <= 1 + 1e-6
        assert all(bytes(entry.bytes).decode("utf-8", "replace") == entry.token for entry in top)


@pytest.mark.parametrize("options", [{}, {"top_logprobs": 0}])
def test_logprobs_without_a_count_are_of_the_chosen_tokens(server: LegatoProcess, options: dict[str, int]) -> None:
    tokens = chat_tokens(ask(server.openai(), "chat", logprobs=True, **options))
    assert "".join(token.token for token in tokens) == ANSWER
    assert all(token.logprob <= 0 and token.top_logprobs == [] for token in tokens)


def test_a_stream_has_the_logprobs_of_the_plain_answer(server: LegatoProcess) -> None:
    client = server.openai()
    plain = chat_tokens(ask(client, "chat", logprobs=True, top_logprobs=2))
    streamed = streamed_chat_tokens(ask(client, "chat", logprobs=True, top_logprobs=2, stream=True))
    assert [token.token for token in streamed] == [token.token for token in plain]
    assert [token.logprob for token in streamed] == pytest.approx([token.logprob for token in plain], abs=0.01)


@pytest.mark.parametrize("api", ["chat", "completions"])
@pytest.mark.parametrize("stream", [False, True])
def test_nobody_gets_logprobs_unasked(server: LegatoProcess, api: Any, stream: bool) -> None:
    result = ask(server.openai(), api, max_tokens=3, stream=stream)
    parts = read(result).chunks if stream else [result]
    assert all(choice.logprobs is None for part in parts for choice in part.choices)


def test_they_are_the_models_own_whatever_the_sampling(server: LegatoProcess) -> None:
    client = server.openai()
    options = {"max_tokens": 1, "logprobs": True, "top_logprobs": 20}
    (greedy,) = chat_tokens(ask(client, "chat", **options))
    known = {entry.token: entry.logprob for entry in greedy.top_logprobs}
    sampled = [
        chat_tokens(ask(client, "chat", temperature=2, seed=seed, extra_body={"top_k": 20}, **options))[0]
        for seed in range(8)
    ]
    assert len({token.token for token in sampled}) > 1
    for token in sampled:
        assert token.logprob == pytest.approx(known[token.token], abs=0.01)


def test_with_a_stop_the_tokens_reach_as_far_as_the_text(server: LegatoProcess) -> None:
    client = server.openai()
    result = ask(client, "chat", logprobs=True, stop="ital of Fr")
    streamed = streamed_chat_tokens(ask(client, "chat", logprobs=True, stop="ital of Fr", stream=True))
    names = [token.token for token in chat_tokens(result)]
    assert text_of(result.choices[0]) == "The cap"
    assert "".join(names) == "The capital"
    assert [token.token for token in streamed] == names


@pytest.mark.parametrize("count", [0, 1, 5])
def test_completion_lists_have_one_entry_a_token(server: LegatoProcess, count: int) -> None:
    result = ask(server.openai(), "completions", "The capital of France is", max_tokens=8, logprobs=count)
    choice = result.choices[0]
    found = choice.logprobs
    assert "".join(found.tokens) == choice.text
    assert len(found.tokens) == len(found.token_logprobs) == len(found.top_logprobs) == len(found.text_offset)
    assert len(found.tokens) == result.usage.completion_tokens
    for token, logprob, top in zip(found.tokens, found.token_logprobs, found.top_logprobs, strict=True):
        assert len(top) == count
        assert sum(math.exp(value) for value in top.values()) <= 1 + 1e-6
        assert not top or top[token] == logprob == max(top.values())


def streamed_lists(stream: Any) -> tuple[list[str], list[int]]:
    parts = [c.choices[0].logprobs for c in read(stream).chunks if c.choices and c.choices[0].logprobs]
    return [t for part in parts for t in part.tokens], [o for part in parts for o in part.text_offset]


@pytest.mark.parametrize("prompt", ["The capital of France is", EMOJI], ids=["words", "emoji"])
@pytest.mark.parametrize("stream", [False, True])
def test_text_offsets_say_where_tokens_stand(server: LegatoProcess, prompt: str, stream: bool) -> None:
    options: dict[str, Any] = {"max_tokens": 24, "extra_body": {"ignore_eos": True}}
    text = ask(server.openai(), "completions", prompt, **options).choices[0].text
    result = ask(server.openai(), "completions", prompt, logprobs=1, stream=stream, **options)
    if stream:
        names, offsets = streamed_lists(result)
    else:
        names, offsets = result.choices[0].logprobs.tokens, result.choices[0].logprobs.text_offset
    assert len(names) == len(offsets) == 24
    assert all(offset <= len(text) for offset in offsets)
    whole = [
        (name, offset) for name, offset in zip(names, offsets, strict=True) if "\N{REPLACEMENT CHARACTER}" not in name
    ]
    assert [text[offset : offset + len(name)] for name, offset in whole] == [name for name, _ in whole]


def test_each_choice_has_logprobs_of_its_own(server: LegatoProcess) -> None:
    result = ask(server.openai(), "completions", "Once upon", n=3, temperature=1.5, seed=3, max_tokens=5, logprobs=1)
    for choice in result.choices:
        assert "".join(choice.logprobs.tokens) == choice.text


def test_bytes_of_a_character_of_several_tokens_join_to_it(server: LegatoProcess) -> None:
    """A chat token that is part of a character has bytes that are no text; together they are."""
    messages = [{"role": "user", "content": "Repeat: 🎉🎊🥳🎈"}, {"role": "assistant", "content": EMOJI}]
    result = ask(
        server.openai(),
        "chat",
        messages,
        logprobs=True,
        max_tokens=30,
        extra_body={"continue_final_message": True, "ignore_eos": True},
    )
    text = text_of(result.choices[0])
    assert any(ord(character) > 0xFFFF for character in text), "emoji are meant to come"
    data = b"".join(bytes(token.bytes) for token in chat_tokens(result))
    assert data.decode("utf-8", "replace") == text
