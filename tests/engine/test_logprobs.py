"""Log-probabilities, against numpy's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from legato.engine.context import Context
from legato.engine.sampler import top_logprobs
from legato.engine.vocabulary import Vocabulary
from tests.engine.reading import Logits, read, tokens_of


def log_softmax(logits: Logits) -> np.ndarray:
    wide = logits.astype(np.float64)
    wide -= wide.max()
    return wide - np.log(np.exp(wide).sum())


vectors = arrays.arrays(np.float32, st.integers(1, 50), elements=st.floats(-50, 50, width=32))


@given(vectors, st.data())
def test_they_are_the_log_softmax(logits: Logits, data: st.DataObject) -> None:
    expected = log_softmax(logits)
    chosen = data.draw(st.integers(0, len(logits) - 1))
    count = data.draw(st.integers(0, 60))
    own, top = top_logprobs(logits, chosen, count)
    assert own.token == chosen
    assert own.logprob == pytest.approx(expected[chosen], abs=1e-4)
    assert len(top) == min(count, len(logits))
    assert len({t.token for t in top}) == len(top)
    assert [t.logprob for t in top] == pytest.approx(np.sort(expected)[::-1][: len(top)].tolist(), abs=1e-4)
    for t in top:
        assert t.logprob == pytest.approx(expected[t.token], abs=1e-4)


@given(vectors)
def test_all_probabilities_together_are_one(logits: Logits) -> None:
    _, top = top_logprobs(logits, 0, len(logits))
    assert sum(np.exp(t.logprob) for t in top) == pytest.approx(1, abs=1e-4)


def test_of_equally_likely_tokens_the_lower_comes_first() -> None:
    _, top = top_logprobs(np.array([0, 2, 1, 2, 0, 2], np.float32), 0, 4)
    assert [t.token for t in top] == [1, 3, 5, 2]


def test_forbidden_tokens_have_no_probability() -> None:
    own, top = top_logprobs(np.array([-np.inf, 0, 0], np.float32), 0, 2)
    assert own.logprob == -np.inf
    assert [t.token for t in top] == [1, 2]
    assert [t.logprob for t in top] == pytest.approx([-np.log(2)] * 2)


def test_huge_logits_do_not_overflow() -> None:
    own, _ = top_logprobs(np.array([1e38, -1e38], np.float32), 0, 1)
    assert own.logprob == 0


def test_of_a_real_prompt(context: Context, vocabulary: Vocabulary) -> None:
    logits = read(context, 0, tokens_of(vocabulary, "The capital of France is"))
    before = logits.copy()
    expected = log_softmax(logits)
    likeliest = np.argsort(-expected)[:20]
    own, top = top_logprobs(logits, 1234, 20)
    assert own.logprob == pytest.approx(expected[1234], abs=1e-4)
    assert [t.token for t in top] == likeliest.tolist()
    assert [t.logprob for t in top] == pytest.approx(expected[likeliest].tolist(), abs=1e-4)
    assert vocabulary.piece(top[0].token) == b" Paris"
    assert np.array_equal(logits, before)
