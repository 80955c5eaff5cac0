"""Gemma: sliding-window attention, another kind of tokenizer, 262,144 tokens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from legato.core.sampling import SamplingParameters
from legato.engine.context import Context
from legato.engine.model import Model
from legato.engine.sampler import Sampler
from tests.engine.conftest import settings
from tests.engine.reading import decode, read, read_row, tokens_of, write_greedily

TEXT = "The three primary colours are red, blue and"


@pytest.fixture(scope="module")
def gemma(gemma_path: Path) -> Iterator[Model]:
    model = Model(gemma_path)
    yield model
    model.close()


@pytest.fixture(scope="module")
def gemma_context(gemma: Model) -> Iterator[Context]:
    context = Context(gemma, settings())
    yield context
    context.close()


def test_what_the_file_says_of_the_model(gemma: Model) -> None:
    assert gemma.metadata("general.architecture") == "gemma3"
    assert gemma.vocabulary.size == 262_144
    assert gemma.chat_template is None
    assert gemma.can_generate


def test_it_wants_a_beginning_token(gemma: Model) -> None:
    vocabulary = gemma.vocabulary
    with_bos, without = (vocabulary.tokenize("Hello", add_bos=b, parse_special=False) for b in (True, False))
    assert vocabulary.adds_bos
    assert with_bos.tolist() == [vocabulary.bos, *without.tolist()]


@pytest.mark.parametrize("text", ["Hello, world!", "  two  spaces\n\n\ttabs", "naïve 漢字 🦔👩‍👩‍👧‍👦", "\U00040000"])
def test_text_comes_back_as_it_was(gemma: Model, text: str) -> None:
    tokens = gemma.vocabulary.tokenize(text, add_bos=False, parse_special=False)
    assert b"".join(map(gemma.vocabulary.piece, tokens.tolist())).decode() == text


def test_it_writes_text(gemma: Model, gemma_context: Context) -> None:
    gemma_context.remove(0)
    prompt = tokens_of(gemma.vocabulary, TEXT)
    tokens, _ = write_greedily(gemma_context, {0: read(gemma_context, 0, prompt)}, 5)[0]
    assert b"".join(map(gemma.vocabulary.piece, tokens)).startswith(b" yellow")
    assert gemma_context.length(0) == len(prompt) + 5


def test_it_writes_the_same_after_its_sequence_was_removed(gemma: Model, gemma_context: Context) -> None:
    prompt = tokens_of(gemma.vocabulary, TEXT)
    answers = []
    for _ in range(2):
        assert gemma_context.remove(0)
        assert gemma_context.length(0) == 0
        answers.append(write_greedily(gemma_context, {0: read(gemma_context, 0, prompt)}, 10)[0][0])
    assert answers[0] == answers[1]


def test_a_saved_state_gives_the_very_same_logits_elsewhere(gemma: Model, gemma_context: Context) -> None:
    gemma_context.remove(0)
    read(gemma_context, 0, tokens_of(gemma.vocabulary, TEXT))
    state = gemma_context.save_state(0)
    expected = decode(gemma_context, {0: 1000})[0]
    gemma_context.load_state(2, state)
    assert np.array_equal(decode(gemma_context, {2: 1000})[2], expected)


def test_removing_a_part_says_whether_it_could(gemma: Model, gemma_context: Context) -> None:
    gemma_context.remove(0)
    prompt = tokens_of(gemma.vocabulary, TEXT)
    read(gemma_context, 0, prompt)
    length = 5 if gemma_context.remove(0, 5) else len(prompt)
    assert gemma_context.length(0) == length


def test_tokens_that_the_file_suppresses_are_never_drawn(gemma: Model, gemma_context: Context) -> None:
    gemma_context.remove(0)
    row = read_row(gemma_context, 0, tokens_of(gemma.vocabulary, TEXT))
    bias = dict.fromkeys(gemma.vocabulary.suppressed, 100.0)
    sampler = Sampler(gemma.vocabulary, SamplingParameters(logit_bias=bias), np.empty(0, np.int32), 10)
    assert not {sampler.sample(gemma_context, row) for _ in range(10)} & set(gemma.vocabulary.suppressed)
    sampler.close()
