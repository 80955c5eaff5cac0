"""How tokens are chosen: seeds, temperature and truncation, penalties, biases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from legato.engine.model import Model
from legato.engine.vocabulary import Vocabulary
from tests.support.asking import ANSWER, ask, completion, text_of
from tests.support.server import LegatoProcess

STORY = "Once upon a time there was a"
CATS = "cat, cat, cat, cat, cat, cat, cat,"


@pytest.fixture(scope="module")
def vocabulary(model_path: Path) -> Vocabulary:
    return Model(model_path, vocabulary_only=True).vocabulary


def only_token(vocabulary: Vocabulary, text: str) -> int:
    """The token that a text is."""
    (token,) = vocabulary.tokenize(text, add_bos=False, parse_special=False).tolist()
    return token


def story(server: LegatoProcess, **options: Any) -> str:
    """Thirty tokens; the end token would make some stories shorter, and equal."""
    extra = {"ignore_eos": True} | options.pop("extra_body", {})
    return completion(server.openai(), STORY, extra_body=extra, **({"max_tokens": 30} | options))


def test_a_seed_repeats_an_answer(server: LegatoProcess) -> None:
    first = story(server, temperature=1.5, seed=1)
    assert story(server, temperature=1.5, seed=1) == first
    assert story(server, temperature=1.5, seed=2) != first


def test_without_a_seed_answers_differ(server: LegatoProcess) -> None:
    assert len({story(server, temperature=1.5) for _ in range(3)}) == 3


@pytest.mark.parametrize("seed", [0, -1, 2**32 - 1, 2**63, -(2**70)])
def test_any_whole_number_is_a_seed(server: LegatoProcess, seed: int) -> None:
    options = {"temperature": 1.5, "max_tokens": 8, "extra_body": {"seed": seed}}
    assert story(server, **options) == story(server, **options)


@pytest.mark.parametrize("extra", [{"top_k": 1}, {"min_p": 1.0}, {"top_p": 1e-6}], ids=lambda extra: next(iter(extra)))
def test_keeping_the_likeliest_token_alone_is_greedy(server: LegatoProcess, extra: dict[str, float]) -> None:
    greedy = story(server)
    for seed in (1, 2):
        assert story(server, temperature=2, seed=seed, extra_body=extra) == greedy


def test_truncations_that_keep_everything_change_nothing_about_greedy(server: LegatoProcess) -> None:
    neutral = {"top_k": -1, "min_p": 0, "typical_p": 1, "repetition_penalty": 1}
    assert story(server, top_p=1, presence_penalty=0, frequency_penalty=0, extra_body=neutral) == story(server)


def test_a_narrow_choice_strays_less_than_a_wide_one(server: LegatoProcess) -> None:
    narrow = {story(server, temperature=1, seed=seed, max_tokens=1, extra_body={"top_k": 2}) for seed in range(12)}
    wide = {
        story(server, temperature=2, seed=seed, max_tokens=1, top_p=1, extra_body={"top_k": 0, "min_p": 0})
        for seed in range(12)
    }
    assert len(narrow) <= 2 < len(wide)


def test_a_bias_of_100_forces_a_token(server: LegatoProcess, vocabulary: Vocabulary) -> None:
    token = only_token(vocabulary, " Paris")
    assert story(server, logit_bias={str(token): 100}, max_tokens=4) == " Paris" * 4
    assert story(server, logit_bias={str(token): 100}, max_tokens=4, temperature=1) == " Paris" * 4


def test_a_bias_of_minus_100_bans_a_token(server: LegatoProcess, vocabulary: Vocabulary) -> None:
    result = ask(server.openai(), "chat", logit_bias={str(only_token(vocabulary, " Paris")): -100})
    text = text_of(result.choices[0])
    assert ANSWER.startswith("The capital of France is")
    assert "Paris" not in text


def test_a_bias_of_zero_changes_nothing(server: LegatoProcess) -> None:
    assert story(server, logit_bias={"42": 0}) == story(server)


@pytest.mark.parametrize(
    "penalty",
    [{"frequency_penalty": 2}, {"extra_body": {"repetition_penalty": 2}}],
    ids=["frequency_penalty", "repetition_penalty"],
)
def test_a_penalty_breaks_a_repetition(server: LegatoProcess, penalty: dict[str, Any]) -> None:
    client = server.openai()
    plain = completion(client, CATS, max_tokens=20)
    assert plain.count("cat") == 10, "the prompt is meant to be repeated"
    assert completion(client, CATS, max_tokens=20, **penalty).count("cat") < 7


def test_a_penalty_with_an_absurd_limit_costs_no_memory(server: LegatoProcess) -> None:
    """The library keeps a place for every token that a penalty may look back at; only so many fit anyway."""
    worker = server.worker()
    before = worker.memory_info().rss
    result = ask(server.openai(), "completions", CATS, max_tokens=2**31 - 1, frequency_penalty=0.1, stop=["\n", "."])
    assert result.choices[0].finish_reason in ("stop", "length")
    assert worker.memory_info().rss - before < 200 * 2**20


def test_a_presence_penalty_counts_the_answer_alone(server: LegatoProcess) -> None:
    """The first token of an answer has no answer before it; the second has."""
    client = server.openai()
    assert completion(client, CATS, max_tokens=1) == " cat"
    assert completion(client, CATS, max_tokens=1, presence_penalty=2, frequency_penalty=2) == " cat"
    assert completion(client, CATS, max_tokens=1, extra_body={"repetition_penalty": 10}) != " cat"


def test_negative_penalties_are_wishes_for_repetition(server: LegatoProcess) -> None:
    wished = story(server, frequency_penalty=-2, max_tokens=30)
    words = wished.split()
    assert len(set(words)) < len(set(story(server).split()))
