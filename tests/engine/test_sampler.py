"""Choosing tokens, checked against numpy on the logits of a real prompt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from legato.core.sampling import SamplingParameters
from legato.core.tokens import Tokens
from legato.engine.context import Context
from legato.engine.model import Model
from legato.engine.sampler import Sampler
from legato.engine.vocabulary import Vocabulary
from tests.engine.conftest import settings
from tests.engine.reading import Logits, decode, read_row, tokens_of

PROMPT = "The first thing that I saw when I opened the door was the"
NOTHING = np.empty(0, np.int32)


class Chooser:
    """Draws again and again from the logits of one prompt, with a sampler of those parameters each time."""

    def __init__(self, context: Context, vocabulary: Vocabulary) -> None:
        self._context = context
        self._vocabulary = vocabulary
        self.prompt: Tokens = tokens_of(vocabulary, PROMPT)
        self._row = read_row(context, 0, self.prompt)
        self.logits: Logits = context.logits(self._row).copy()

    def draw(self, count: int, *, prompt: Tokens = NOTHING, answer_limit: int = 1000, **parameters: Any) -> list[int]:
        sampler = Sampler(self._vocabulary, SamplingParameters(**parameters), prompt, answer_limit)
        drawn = [sampler.sample(self._context, self._row) for _ in range(count)]
        sampler.close()
        return drawn

    @property
    def ranked(self) -> list[int]:
        """Tokens, likeliest first."""
        return np.argsort(-self.logits, kind="stable").tolist()

    def probabilities(self, temperature: float = 1.0) -> np.ndarray[Any, np.dtype[np.float64]]:
        scaled = self.logits.astype(np.float64) / temperature
        shares = np.exp(scaled - scaled.max())
        return shares / shares.sum()


@pytest.fixture(scope="module")
def chooser(model: Model) -> Iterator[Chooser]:
    # In a context of its own: the row that it draws from is there only until the next call.
    context = Context(model, settings(sequences=1, cells_per_sequence=256))
    yield Chooser(context, model.vocabulary)
    context.close()


def write(context: Context, vocabulary: Vocabulary, prompt: str, count: int, **parameters: Any) -> list[int]:
    """An answer of so many tokens, by a sampler of those parameters."""
    tokens = tokens_of(vocabulary, prompt)
    context.remove(1)
    row = read_row(context, 1, tokens)
    sampler = Sampler(vocabulary, SamplingParameters(**parameters), tokens, count)
    answer = [sampler.sample(context, row)]
    while len(answer) < count:
        decode(context, {1: answer[-1]})
        answer.append(sampler.sample(context, 0))
    sampler.close()
    return answer


# The choice


def test_temperature_zero_takes_the_likeliest(chooser: Chooser) -> None:
    likeliest = int(chooser.logits.argmax())
    assert chooser.draw(20, temperature=0) == [likeliest] * 20
    assert chooser.draw(20, temperature=0, top_k=5, top_p=0.5, min_p=0.5, seed=7) == [likeliest] * 20


def test_a_very_low_temperature_does_too(chooser: Chooser) -> None:
    assert chooser.draw(20, temperature=0.001) == [int(chooser.logits.argmax())] * 20


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.5])
def test_tokens_are_drawn_as_often_as_they_are_likely(chooser: Chooser, temperature: float) -> None:
    count = 1500
    drawn = Counter(chooser.draw(count, temperature=temperature, seed=3))
    probabilities = chooser.probabilities(temperature)
    for token in chooser.ranked[:10]:
        # Five standard deviations.
        error = 5 * np.sqrt(probabilities[token] * (1 - probabilities[token]) / count)
        assert drawn[token] / count == pytest.approx(probabilities[token], abs=error)


def test_the_same_seed_draws_the_same_tokens(chooser: Chooser) -> None:
    assert chooser.draw(100, seed=5) == chooser.draw(100, seed=5)


def test_other_seeds_draw_other_tokens(chooser: Chooser) -> None:
    seeds = [0, 1, 2, 2**31, 2**32 - 2]
    assert len({tuple(chooser.draw(100, seed=seed)) for seed in seeds}) == len(seeds)


def test_the_same_seed_writes_the_same_answer(context: Context, vocabulary: Vocabulary) -> None:
    first, again, other = (write(context, vocabulary, PROMPT, 20, seed=seed) for seed in (5, 5, 6))
    assert first == again != other


# Truncation: at a high temperature all tokens that are kept are about as likely, so that many draws meet every one.


def kept(chooser: Chooser, **parameters: Any) -> set[int]:
    return set(chooser.draw(300, temperature=100.0, **parameters))


@pytest.mark.parametrize("k", [1, 2, 20])
def test_top_k_keeps_the_k_likeliest(chooser: Chooser, k: int) -> None:
    assert kept(chooser, top_k=k) == set(chooser.ranked[:k])


@pytest.mark.parametrize("size", [1, 3, 20])
def test_top_p_keeps_the_likeliest_that_have_the_probability_together(chooser: Chooser, size: int) -> None:
    together = np.cumsum(chooser.probabilities()[chooser.ranked])
    # Between what `size` of them have and what one less has.
    below = together[size - 2] if size > 1 else 0.0
    assert kept(chooser, top_p=(below + together[size - 1]) / 2) == set(chooser.ranked[:size])


@pytest.mark.parametrize("size", [1, 3, 20])
def test_min_p_keeps_what_is_likely_enough_beside_the_likeliest(chooser: Chooser, size: int) -> None:
    shares = chooser.probabilities()[chooser.ranked]
    assert kept(chooser, min_p=(shares[size - 1] + shares[size]) / 2 / shares[0]) == set(chooser.ranked[:size])


@pytest.mark.parametrize("size", [1, 20])
def test_typical_p_keeps_what_is_about_as_surprising_as_the_average(chooser: Chooser, size: int) -> None:
    shares = chooser.probabilities()
    surprise = -np.log(shares)
    typical = np.argsort(np.abs(surprise - np.sum(shares * surprise)), kind="stable")
    together = np.cumsum(shares[typical])
    below = together[size - 2] if size > 1 else 0.0
    assert kept(chooser, typical_p=(below + together[size - 1]) / 2) == set(typical[:size].tolist())


def test_several_truncations_keep_what_they_have_in_common(chooser: Chooser) -> None:
    shares = chooser.probabilities()[chooser.ranked]
    assert kept(chooser, top_k=5, min_p=shares[20] / shares[0]) == set(chooser.ranked[:5])
    assert kept(chooser, top_k=30, min_p=(shares[2] + shares[3]) / 2 / shares[0]) == set(chooser.ranked[:3])


def test_truncation_is_by_the_models_own_probabilities_whatever_the_temperature(chooser: Chooser) -> None:
    together = np.cumsum(chooser.probabilities()[chooser.ranked])
    top_p = (together[3] + together[4]) / 2
    assert set(chooser.draw(300, temperature=50.0, top_p=top_p)) == set(chooser.ranked[:5])


def test_the_defaults_keep_everything(chooser: Chooser) -> None:
    assert len(kept(chooser)) > 250


# Biases


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_bias_can_force_a_token(chooser: Chooser, temperature: float) -> None:
    unlikely = chooser.ranked[-1]
    assert chooser.draw(20, temperature=temperature, logit_bias={unlikely: 100}) == [unlikely] * 20


def test_a_bias_can_forbid_tokens(chooser: Chooser) -> None:
    first, second, third = chooser.ranked[:3]
    assert chooser.draw(5, temperature=0, logit_bias={first: -100}) == [second] * 5
    assert chooser.draw(5, temperature=0, logit_bias={first: -100, second: -100}) == [third] * 5
    assert first not in chooser.draw(300, logit_bias={first: -100})


def test_a_bias_is_added_to_the_logit(chooser: Chooser) -> None:
    first, second = chooser.ranked[:2]
    gap = float(chooser.logits[first] - chooser.logits[second])
    assert chooser.draw(1, temperature=0, logit_bias={second: gap * 0.99}) == [first]
    assert chooser.draw(1, temperature=0, logit_bias={second: gap * 1.01}) == [second]


# Penalties: with temperature 0 the choice shows which logit is highest after them.


def expected_choices(logits: Logits, count: int, *, presence: float = 0, frequency: float = 0) -> list[int]:
    answer: Counter[int] = Counter()
    choices = []
    for _ in range(count):
        penalized = logits.copy()
        for token, times in answer.items():
            penalized[token] -= presence + frequency * times
        choices.append(int(penalized.argmax()))
        answer[choices[-1]] += 1
    return choices


@pytest.mark.parametrize(("presence", "frequency"), [(2.0, 0.0), (0.0, 0.5), (1.0, 0.25), (-1.0, 0.0), (0.5, -0.1)])
def test_presence_and_frequency_penalties_count_the_answer(chooser: Chooser, presence: float, frequency: float) -> None:
    drawn = chooser.draw(40, temperature=0, presence_penalty=presence, frequency_penalty=frequency)
    assert drawn == expected_choices(chooser.logits, 40, presence=presence, frequency=frequency)


def test_presence_and_frequency_penalties_do_not_see_the_prompt(chooser: Chooser) -> None:
    likeliest = np.full(50, chooser.ranked[0], np.int32)
    for penalties in ({"presence_penalty": 2.0}, {"frequency_penalty": 2.0}):
        with_prompt, without = (chooser.draw(10, temperature=0, prompt=p, **penalties) for p in (likeliest, NOTHING))
        assert with_prompt == without
        assert with_prompt[0] == chooser.ranked[0]


def test_presence_and_frequency_penalties_never_forget(chooser: Chooser) -> None:
    # Longer than the window of the repetition penalty.
    drawn = chooser.draw(150, temperature=0, frequency_penalty=2.0)
    assert drawn == expected_choices(chooser.logits, 150, frequency=2.0)


def expected_repetition(logits: Logits, prompt: Tokens, count: int, penalty: float, window: int) -> list[int]:
    seen = prompt.tolist()
    for _ in range(count):
        penalized = logits.copy()
        for token in set(seen[-window:]):
            penalized[token] *= 1 / penalty if penalized[token] > 0 else penalty
        seen.append(int(penalized.argmax()))
    return seen[len(prompt) :]


@pytest.mark.parametrize("penalty", [1.05, 1.3, 2.0])
@pytest.mark.parametrize("window", [4, 64])
def test_the_repetition_penalty_sees_prompt_and_answer(chooser: Chooser, penalty: float, window: int) -> None:
    prompt = np.array(chooser.ranked[:3] * 2, np.int32)
    drawn = chooser.draw(40, temperature=0, prompt=prompt, repetition_penalty=penalty, repetition_window=window)
    assert drawn == expected_repetition(chooser.logits, prompt, 40, penalty, window)


def test_the_repetition_penalty_sees_the_prompts_end_only(chooser: Chooser) -> None:
    first, second = chooser.ranked[:2]
    far = np.array([first, *[chooser.ranked[-1]] * 64], np.int32)
    near = far[:64]
    assert chooser.draw(1, temperature=0, prompt=far, repetition_penalty=2.0) == [first]
    assert chooser.draw(1, temperature=0, prompt=near, repetition_penalty=2.0) != [first]
    assert chooser.draw(1, temperature=0, prompt=near, repetition_penalty=1.0) == [first]
    assert second != first


def test_a_window_of_nothing_penalizes_nothing(chooser: Chooser) -> None:
    prompt = np.array([chooser.ranked[0]], np.int32)
    drawn = chooser.draw(5, temperature=0, prompt=prompt, repetition_penalty=2.0, repetition_window=0)
    assert drawn == [chooser.ranked[0]] * 5


def test_penalties_go_together(chooser: Chooser) -> None:
    prompt = np.array(chooser.ranked[:1], np.int32)
    drawn = chooser.draw(1, temperature=0, prompt=prompt, repetition_penalty=2.0, presence_penalty=1.0)
    assert drawn == expected_repetition(chooser.logits, prompt, 1, 2.0, 64)


# The end of an answer

QUESTION = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"


def test_an_answer_ends_by_itself(context: Context, vocabulary: Vocabulary) -> None:
    answer = write(context, vocabulary, QUESTION, 10, temperature=0)
    assert vocabulary.eos in answer


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_an_answer_that_ignores_the_end_never_ends(
    context: Context, vocabulary: Vocabulary, temperature: float
) -> None:
    answer = write(context, vocabulary, QUESTION, 25, temperature=temperature, ignore_end=True)
    assert not vocabulary.end_tokens & set(answer)


def test_ignoring_the_end_wins_over_a_bias(chooser: Chooser, vocabulary: Vocabulary) -> None:
    bias = dict.fromkeys(vocabulary.end_tokens, 100.0)
    assert set(chooser.draw(20, logit_bias=bias)) <= vocabulary.end_tokens
    assert not vocabulary.end_tokens & set(chooser.draw(20, logit_bias=bias, ignore_end=True))


def test_ignoring_the_end_changes_nothing_else(chooser: Chooser) -> None:
    assert chooser.draw(50, seed=3, ignore_end=True) == chooser.draw(50, seed=3)


@pytest.fixture
def sampler(vocabulary: Vocabulary) -> Iterator[Sampler]:
    sampler = Sampler(vocabulary, SamplingParameters(), NOTHING, 10)
    yield sampler
    sampler.close()


def test_a_sampler_can_be_closed_twice(sampler: Sampler) -> None:
    sampler.close()
