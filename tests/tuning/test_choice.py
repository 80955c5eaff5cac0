"""Choosing from made-up measurements."""

from __future__ import annotations

import msgspec
import pytest

from legato.scheduling.costs import Coefficients
from legato.tuning.advice import ConvertedModel, advised_weights, sentence
from legato.tuning.choice import CHAT_DEPTH, INTERRUPTIBLE_GAP, Measured, choose, forecast, is_confirmed_by

USUAL = Coefficients(0.005, 0.001, 1e-6, 0.002, 0.003, 1e-7, 1e-7, 1)


def costs(**changes: float) -> Coefficients:
    return msgspec.structs.replace(USUAL, **changes)


def test_the_faster_reader_is_chosen() -> None:
    choice = choose([Measured("usual", USUAL), Measured("fast", costs(prefill_token_s=0.001))], 0.1)
    assert choice.index == 1
    assert "fast" in choice.reason
    assert "100 ms" in choice.reason


def test_a_little_faster_is_not_enough() -> None:
    choice = choose([Measured("usual", USUAL), Measured("other", costs(prefill_token_s=0.00298))], 0.1)
    assert choice.index == 0


def test_one_that_changes_answers_is_not_chosen() -> None:
    rough = Measured("rough", costs(prefill_token_s=0.001), keeps_answers=False)
    choice = choose([Measured("usual", USUAL), rough], 0.1)
    assert choice.index == 0
    assert len(choice.forecasts) == 2
    with pytest.raises(ValueError, match="may be chosen"):
        choose([rough], 0.1)


def test_one_that_was_not_faster_twice_is_not_chosen() -> None:
    fast = Measured("fast", costs(prefill_token_s=0.001), is_confirmed=False)
    good = Measured("good", costs(prefill_token_s=0.002))
    assert choose([Measured("usual", USUAL), fast], 0.1).index == 0
    choice = choose([Measured("usual", USUAL), fast, good], 0.1)
    assert choice.index == 2
    assert "fast" not in choice.reason
    with pytest.raises(ValueError, match="may be chosen"):
        choose([fast], 0.1)


def test_a_second_measurement_confirms_only_what_is_better_by_the_margin() -> None:
    usual = Measured("usual", USUAL)
    assert is_confirmed_by(usual, Measured("fast", costs(prefill_token_s=0.002)), 0.1)
    assert not is_confirmed_by(usual, Measured("hardly faster", costs(prefill_token_s=0.0029)), 0.1)
    assert not is_confirmed_by(usual, Measured("slower", costs(prefill_token_s=0.004)), 0.1)


def test_where_no_gap_is_kept_the_second_measurement_must_have_the_shorter_gap() -> None:
    usual = Measured("usual", costs(decode_call_s=0.5))
    assert is_confirmed_by(usual, Measured("shorter", costs(decode_call_s=0.3)), 0.1)
    assert not is_confirmed_by(usual, Measured("hardly shorter", costs(decode_call_s=0.49)), 0.1)


def test_reading_that_is_interrupted_has_what_decodes_leave_of_each_gap() -> None:
    seen = forecast(Measured("usual", USUAL, interruptible=True), 0.1)
    assert seen.decode_s == pytest.approx(0.005 + 0.001 + CHAT_DEPTH * 1e-6)
    assert seen.smallest_gap_s == pytest.approx(INTERRUPTIBLE_GAP * seen.decode_s)
    assert seen.beside_chat_s == pytest.approx(seen.alone_s * 0.1 / (0.1 - seen.decode_s))


@pytest.mark.parametrize(("share", "is_kept"), [(0.9, False), (1.2, False), (1.3, True), (10.0, True)])
def test_reading_that_is_interrupted_needs_a_gap_of_a_decode_and_a_quarter(share: float, is_kept: bool) -> None:
    measured = Measured("usual", USUAL, interruptible=True)
    decode_s = forecast(measured, 1.0).decode_s
    assert (forecast(measured, share * decode_s).beside_chat_s is not None) is is_kept


def test_long_tiles_lose_where_gaps_are_short_and_win_where_they_may_be_long() -> None:
    """A kernel that takes 64 rows at once reads fast, but not in pieces that fit a short gap."""
    tiled = Measured("tiled", costs(prefill_token_s=0.002, loose_pair_s=1e-5, tile_rows=64))
    plain = Measured("plain", USUAL)
    assert choose([plain, tiled], 0.05).index == 0
    assert choose([plain, tiled], 0.5).index == 1


def test_a_chat_that_waits_less_reads_slower() -> None:
    short, long = (forecast(Measured("usual", USUAL), target_s).beside_chat_s for target_s in (0.05, 0.5))
    assert short is not None
    assert long is not None
    assert short > long > forecast(Measured("usual", USUAL), 0.1).alone_s * 0.9


def test_a_gap_that_cannot_be_kept_is_said() -> None:
    slow = costs(decode_call_s=0.5)
    choice = choose([Measured("slow", slow), Measured("slower", costs(decode_call_s=0.9))], 0.1)
    assert choice.index == 0
    assert choice.forecasts[0].beside_chat_s is None
    assert "No configuration keeps gaps of 100 ms" in choice.reason


@pytest.mark.parametrize(("ratio", "joined"), [(None, False), (1.2, False), (0.97, False), (0.7, True)])
def test_calls_are_joined_where_that_pays(ratio: float | None, joined: bool) -> None:
    seen = forecast(Measured("usual", USUAL, joined_ratio=ratio), 0.1)
    assert seen.joined_calls is joined
    apart = forecast(Measured("usual", USUAL), 0.1).beside_chat_s
    assert seen.beside_chat_s is not None
    assert apart is not None
    assert (seen.beside_chat_s < apart) is joined


def test_the_best_size_is_the_smallest_of_the_good_ones() -> None:
    factors = {8: 0.5, 64: 1.0, 128: 0.8, 512: 0.79}
    assert forecast(Measured("usual", USUAL, size_factors=factors), 0.1).best_size == 128
    assert forecast(Measured("usual", USUAL, batch_tokens=64, size_factors=factors), 0.1).best_size == 64


def converted(weights: str, speedup: float, divergence: float | None) -> ConvertedModel:
    return ConvertedModel(weights, speedup, 1.2, divergence, None if divergence is None else 1.01)


def test_weights_are_advised_if_they_read_faster_and_lose_little() -> None:
    q8_0, q4_0 = converted("Q8_0", 1.4, 0.005), converted("Q4_0", 1.6, 0.3)
    assert advised_weights([q8_0, q4_0]) == "Q8_0"
    assert advised_weights([q4_0]) is None
    assert advised_weights([converted("Q8_0", 1.02, 0.0)]) is None
    assert advised_weights([converted("Q8_0", 1.4, None)]) is None


def test_what_weights_bring_and_cost_is_said() -> None:
    text = sentence(converted("Q8_0", 1.4, 0.005), "legato convert tiny Q8_0")
    assert "1.4 times faster" in text
    assert "hardly anything" in text
    assert text.endswith("legato convert tiny Q8_0 makes it.")
    assert "lose much" in sentence(converted("Q4_0", 1.6, 0.3), "x")
    assert "makes it" not in sentence(converted("Q8_0", 1.0, 0.0), "x")
    assert "no time to measure" in sentence(converted("Q8_0", 1.4, None), "x")
