"""The cost model: what it learns, what it forgets, and that one bad call does not lead it astray."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from legato.scheduling.costs import Coefficients, CostModel, Work

TRUTH = Coefficients(
    decode_call_s=0.010,
    decode_sequence_s=0.002,
    decode_depth_s=3e-6,
    prefill_call_s=0.002,
    prefill_token_s=0.006,
    prefill_pair_s=1e-6,
)
GUESS = Coefficients(
    decode_call_s=0.005,
    decode_sequence_s=0.001,
    decode_depth_s=1e-6,
    prefill_call_s=0.001,
    prefill_token_s=0.010,
    prefill_pair_s=3e-7,
)
TILED = msgspec.structs.replace(TRUTH, loose_pair_s=5e-6, tile_rows=64)


def some_work(rng: random.Random) -> Work:
    if rng.random() < 0.5:
        return Work(depths=tuple(rng.randrange(10, 6000) for _ in range(rng.randrange(1, 5))))
    return Work(chunks=((rng.randrange(0, 6000), rng.randrange(1, 200)),))


def errors(model: CostModel, calls: int, took: Callable[[Work], float], seed: int = 1) -> list[float]:
    """Relative errors of predictions made before each of so many calls."""
    rng = random.Random(seed)
    found: list[float] = []
    for _ in range(calls):
        work = some_work(rng)
        true_s = took(work)
        found.append(abs(model.predict(work) - true_s) / true_s)
        model.observe(work, true_s)
    return found


@pytest.mark.parametrize("truth", [TRUTH, TILED])
def test_it_learns_what_calls_cost(truth: Coefficients) -> None:
    guess = msgspec.structs.replace(GUESS, tile_rows=truth.tile_rows, loose_pair_s=truth.tile_rows > 1 and 1e-6)
    found = errors(CostModel(guess), 400, CostModel(truth).predict)
    assert statistics.median(found[50:150]) <= 0.10
    assert statistics.median(found[300:]) <= 0.02


def test_it_is_right_at_depths_that_it_has_not_seen() -> None:
    model, truth = CostModel(GUESS), CostModel(TRUTH)
    for n in range(200):
        work = Work(chunks=((n * 10, 8 + n % 40),))
        model.observe(work, truth.predict(work))
    for start in (2000, 3000, 4000):
        assert model.chunk_s(start, 24) == pytest.approx(truth.chunk_s(start, 24), rel=0.05)


def test_noise_is_averaged_and_hiccups_are_passed_over() -> None:
    rng = random.Random(2)
    truth = CostModel(TRUTH)

    def took(work: Work) -> float:
        return truth.predict(work) * rng.lognormvariate(0, 0.05) * (10 if rng.random() < 0.03 else 1)

    found = errors(CostModel(GUESS), 600, took)
    assert statistics.median(found[50:]) <= 0.10


@pytest.mark.parametrize("by", [1 / 3, 3])
def test_a_machine_that_changes_its_pace_is_followed(by: float) -> None:
    model, truth = CostModel(TRUTH), CostModel(TRUTH)
    errors(model, 200, truth.predict)
    found = errors(model, 400, lambda work: by * truth.predict(work), seed=3)
    assert statistics.median(found[:8]) > 0.5
    # Five calls of each of the two kinds, which come in random order.
    assert max(found[20:]) <= 0.1


def test_one_hiccup_changes_hardly_anything() -> None:
    model, truth = CostModel(TRUTH), CostModel(TRUTH)
    errors(model, 200, truth.predict)
    work = Work(chunks=((100, 30),))
    model.observe(work, 100 * truth.predict(work))
    assert model.predict(work) == pytest.approx(truth.predict(work), rel=0.02)
    found = errors(model, 64, truth.predict, seed=5)
    assert max(found) <= 0.1


@given(
    start=st.integers(0, 8000),
    budget_s=st.floats(0, 2),
    most=st.integers(0, 512),
    tile=st.sampled_from([TRUTH, TILED]),
)
def test_the_longest_chunk_fits_and_no_longer_one_does(
    start: int, budget_s: float, most: int, tile: Coefficients
) -> None:
    model = CostModel(tile)
    length = model.longest_chunk(start, budget_s, most)
    assert 0 <= length <= most
    assert length == 0 or model.chunk_s(start, length) <= budget_s
    longer = range(length + 1, most + 1)
    if tile.tile_rows > 1:
        # Whole tiles, or what a prompt ends with: parts of a tile cost as much as a whole one.
        longer = range(length + 1, min(most + 1, 64)) if length < 64 else range((length // 64 + 1) * 64, most + 1, 64)
    assert all(model.chunk_s(start, n) > budget_s for n in longer)


def test_what_was_learned_can_be_given_to_another_model() -> None:
    model = CostModel(GUESS)
    errors(model, 300, CostModel(TRUTH).predict)
    again = CostModel(msgspec.json.decode(msgspec.json.encode(model.coefficients), type=Coefficients))
    for work in (Work(depths=(10, 3000)), Work(chunks=((500, 30),))):
        assert again.predict(work) == pytest.approx(model.predict(work))


def test_joined_calls_have_a_pace_of_their_own() -> None:
    model = CostModel(TRUTH)
    work = Work(depths=(100,), chunks=((0, 100),))
    apart_s = model.predict(work)
    for _ in range(20):
        model.observe(work, 0.7 * apart_s)
    assert model.predict(work) == pytest.approx(0.7 * apart_s)
    assert model.chunk_s(0, 100) == CostModel(TRUTH).chunk_s(0, 100)
