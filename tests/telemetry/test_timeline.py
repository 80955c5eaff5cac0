"""Where the time of a request went."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legato.core.cache import Restored
from legato.core.calls import Call, PrefillChunk
from legato.core.causes import CauseTimes
from legato.core.timings import Timings
from legato.telemetry.attribution import Stretch
from legato.telemetry.timeline import LONGEST_STALLS, Timeline

ROUNDING_MS = 0.0026
"""Five figures are rounded to a microsecond each, so that four of them may miss the fifth by half of one each."""

instants = st.floats(0, 1e6)
durations = st.floats(0, 1e6)


@st.composite
def timelines(draw: st.DrawFn) -> Timeline:
    """Instants in any order, but for a clock that never goes back between arrival and end."""
    arrived, ended = sorted([draw(instants), draw(instants)])
    return Timeline(
        arrived,
        prompt_tokens=draw(st.integers(0, 1000)),
        load_s=draw(durations),
        admitted_s=draw(st.none() | instants),
        token_times_s=sorted(draw(st.lists(instants, max_size=5))),
        ended_s=ended,
    )


def assert_adds_up(timings: Timings) -> None:
    parts = (timings.load_ms, timings.queue_ms, timings.prefill_ms, timings.decode_ms)
    assert all(part >= 0 for part in parts)
    assert sum(parts) == pytest.approx(timings.total_ms, abs=ROUNDING_MS, rel=1e-12)


@given(timelines())
def test_the_parts_add_up_to_the_whole(timeline: Timeline) -> None:
    assert_adds_up(timeline.timings())


@given(timelines())
def test_the_whole_is_from_arrival_to_end(timeline: Timeline) -> None:
    assert timeline.ended_s is not None
    expected = (timeline.ended_s - timeline.arrived_s) * 1000
    assert timeline.timings().total_ms == pytest.approx(expected, abs=ROUNDING_MS)


@given(arrived=instants, waits=st.lists(st.floats(0, 1000), min_size=4, max_size=4), load_share=st.floats(0, 1))
def test_instants_in_their_order_are_split_as_they_came(arrived: float, waits: list[float], load_share: float) -> None:
    to_admission, to_first, to_second, to_end = waits
    admitted = arrived + to_admission
    first = admitted + to_first
    second = first + to_second
    timings = Timeline(
        arrived,
        load_s=load_share * (admitted - arrived),
        admitted_s=admitted,
        token_times_s=[first, second],
        ended_s=second + to_end,
    ).timings()
    assert_adds_up(timings)
    about = {"abs": 0.002}
    assert timings.load_ms == pytest.approx(load_share * to_admission * 1000, **about)
    assert timings.queue_ms == pytest.approx((1 - load_share) * to_admission * 1000, **about)
    assert timings.prefill_ms == pytest.approx(to_first * 1000, **about)
    assert timings.decode_ms == pytest.approx((to_second + to_end) * 1000, **about)
    assert timings.ttft_ms == pytest.approx((to_admission + to_first) * 1000, **about)
    assert timings.itl_max_ms == pytest.approx(to_second * 1000, **about)


def test_a_whole_answer() -> None:
    timeline = Timeline(
        10.0,
        prompt_tokens=100,
        restored=Restored(1, 40, "live", 0.0, 0.0),
        load_s=0.5,
        admitted_s=12.0,
        token_times_s=[15.0, 15.1, 15.3, 15.4, 15.5],
        ended_s=16.0,
    )
    assert timeline.timings() == Timings(
        load_ms=500.0,
        queue_ms=1500.0,
        prefill_ms=3000.0,
        prefill_tokens=60,
        cached_tokens=40,
        cached_in="live",
        prefill_tokens_per_second=20.0,
        ttft_ms=5000.0,
        decode_ms=1000.0,
        decode_tokens=5,
        decode_tokens_per_second=8.0,
        itl_p50_ms=100.0,
        itl_p95_ms=200.0,
        itl_max_ms=200.0,
        total_ms=6000.0,
        gap_target_ms=100.0,
    )


def test_a_request_that_was_never_admitted_spent_all_its_time_in_the_queue() -> None:
    timings = Timeline(10.0, prompt_tokens=100, load_s=1.0, ended_s=14.0).timings()
    assert (timings.load_ms, timings.queue_ms, timings.prefill_ms, timings.decode_ms) == (1000, 3000, 0, 0)
    assert timings.prefill_tokens == 0
    assert timings.ttft_ms is None
    assert timings.prefill_tokens_per_second is None


def test_a_load_is_no_longer_than_the_wait() -> None:
    timings = Timeline(10.0, load_s=60.0, ended_s=14.0).timings()
    assert (timings.load_ms, timings.queue_ms, timings.total_ms) == (4000, 0, 4000)


def test_a_request_that_never_got_a_token_spent_the_rest_on_its_prompt() -> None:
    timings = Timeline(10.0, prompt_tokens=100, admitted_s=11.0, ended_s=14.0).timings()
    assert (timings.queue_ms, timings.prefill_ms, timings.decode_ms) == (1000, 3000, 0)
    assert (timings.prefill_tokens, timings.decode_tokens) == (100, 0)
    assert timings.ttft_ms is None
    assert timings.prefill_tokens_per_second is None
    assert timings.decode_tokens_per_second is None


def test_a_request_that_was_cancelled_midway_keeps_what_it_got() -> None:
    timings = Timeline(10.0, prompt_tokens=8, admitted_s=11.0, token_times_s=[12.0, 12.5], ended_s=13.0).timings()
    assert (timings.queue_ms, timings.prefill_ms, timings.decode_ms) == (1000, 1000, 1000)
    assert timings.decode_tokens == 2
    assert timings.decode_tokens_per_second == 2.0


@pytest.mark.parametrize(
    ("timeline", "total_ms"),
    [
        (Timeline(10.0), 0),
        (Timeline(10.0, admitted_s=11.0), 1000),
        (Timeline(10.0, admitted_s=11.0, token_times_s=[12.0, 14.0]), 4000),
    ],
)
def test_without_an_end_the_latest_instant_counts(timeline: Timeline, total_ms: float) -> None:
    timings = timeline.timings()
    assert timings.total_ms == total_ms
    assert_adds_up(timings)


def test_a_single_token_has_no_gaps_and_no_decode_rate() -> None:
    timings = Timeline(10.0, prompt_tokens=5, admitted_s=10.0, token_times_s=[11.0], ended_s=12.0).timings()
    assert timings.prefill_tokens_per_second == 5.0
    assert timings.decode_tokens_per_second is None
    assert timings.itl_p50_ms is timings.itl_p95_ms is timings.itl_max_ms is None


def test_rates_over_no_time_are_left_out() -> None:
    timings = Timeline(10.0, prompt_tokens=5, admitted_s=10.0, token_times_s=[10.0, 10.0], ended_s=10.0).timings()
    assert timings.prefill_tokens_per_second is None
    assert timings.decode_tokens_per_second is None
    assert timings.itl_max_ms == 0


@given(gaps=st.lists(st.floats(0.001, 10), min_size=1, max_size=30))
def test_the_decode_rate_counts_tokens_after_the_first(gaps: list[float]) -> None:
    times = [5.0]
    for gap in gaps:
        times.append(times[-1] + gap)
    timings = Timeline(0.0, admitted_s=1.0, token_times_s=times, ended_s=times[-1] + 100).timings()
    assert timings.decode_tokens_per_second == pytest.approx(len(gaps) / (times[-1] - times[0]), abs=0.0051)


@given(timelines())
def test_gaps_are_in_order(timeline: Timeline) -> None:
    timings = timeline.timings()
    if timings.itl_p50_ms is not None:
        assert timings.itl_p95_ms is not None
        assert timings.itl_max_ms is not None
        assert timings.itl_p50_ms <= timings.itl_p95_ms <= timings.itl_max_ms


# Causes


def stretch(until_s: float, **causes_s: float) -> Stretch:
    """Causes in seconds, such as `own_decode_s`."""
    return Stretch(until_s, CauseTimes(**{f"{name[:-2]}_ms": value * 1000 for name, value in causes_s.items()}))


def test_a_gap_beyond_the_target_is_a_stall_with_its_cause() -> None:
    timeline = Timeline(100.0, admitted_s=100.0, gap_target_s=0.1)
    timeline.add_token(101.0, stretch(101.0, own_prefill_s=1.0))
    timeline.add_token(101.05, stretch(101.05, own_decode_s=0.05))
    timeline.add_token(101.45, stretch(101.45, own_decode_s=0.05, others_prefill_s=0.35))
    timings = timeline.timings()
    assert (timings.stalls, timings.stalled_ms) == (1, pytest.approx(400))
    (stall,) = timeline.stalls
    assert (stall.cause, stall.at_ms, stall.gap_ms) == ("others_prefill", pytest.approx(1050), pytest.approx(400))
    assert timings.prefill_parts is not None
    assert timings.prefill_parts.own_prefill_ms == pytest.approx(1000)
    assert timings.decode_parts is not None
    assert (timings.decode_parts.own_decode_ms, timings.decode_parts.others_prefill_ms) == (100, 350)


def test_a_late_delivery_is_made_good_by_the_next_token() -> None:
    timeline = Timeline(100.0, admitted_s=100.0)
    timeline.add_token(101.0, stretch(101.0, own_prefill_s=1.0))
    timeline.add_token(101.8, stretch(101.3, own_decode_s=0.3))
    timeline.add_token(101.9, stretch(101.9, own_decode_s=0.6))
    assert timeline.stalls[0].parts.delivery_ms == pytest.approx(500)
    parts = timeline.timings().decode_parts
    assert parts is not None
    assert parts.delivery_ms == pytest.approx(0, abs=0.01)
    assert parts.total_ms == pytest.approx(900)


def test_only_the_longest_stalls_are_kept_and_all_are_counted() -> None:
    timeline = Timeline(0.0, admitted_s=0.0, gap_target_s=0.1)
    at = 0.0
    for number in range(60):
        at += 0.2 + number / 1000
        timeline.add_token(at, stretch(at, own_decode_s=0.2 + number / 1000))
    assert timeline.stall_count == 59
    gaps = [stall.gap_ms for stall in timeline.stalls]
    assert len(gaps) == LONGEST_STALLS
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[0] == pytest.approx(259)


def test_a_chunk_of_a_shared_call_takes_its_share() -> None:
    timeline = Timeline(100.0)
    timeline.add_chunk(Call(100.5, 100.9, [], [PrefillChunk(1, 0, 30), PrefillChunk(2, 0, 10)]), 0, 30)
    (chunk,) = timeline.chunks
    assert (chunk.at_ms, chunk.took_ms, chunk.tokens) == (pytest.approx(500), pytest.approx(300), 30)


# Giving way to others


@given(
    waits=st.lists(st.floats(0, 1000), min_size=6, max_size=6),
    answering=st.booleans(),
)
def test_a_preempted_request_adds_up_and_waits_in_the_phase_that_it_was_in(waits: list[float], answering: bool) -> None:
    to_admission, to_token, to_preemption, to_second_admission, to_next_token, to_end = waits
    timeline = Timeline(10.0, prompt_tokens=100)
    at = 10.0 + to_admission
    timeline.admit(at)
    if answering:
        at += to_token
        timeline.add_token(at, None)
    at += to_preemption
    timeline.preempt(at, answering=answering)
    assert not timeline.holds_cells
    at += to_second_admission
    timeline.admit(at)
    assert timeline.holds_cells
    at += to_next_token
    timeline.add_token(at, None)
    timeline.ended_s = at + to_end
    timings = timeline.timings()
    assert_adds_up(timings)
    assert timings.preemptions == 1
    about = {"abs": 0.002}
    if answering:
        assert timings.queue_ms == pytest.approx(to_admission * 1000, **about)
        assert timings.prefill_ms == pytest.approx(to_token * 1000, **about)
    else:
        assert timings.queue_ms == pytest.approx((to_admission + to_second_admission) * 1000, **about)
        assert timings.prefill_ms == pytest.approx((to_preemption + to_next_token) * 1000, **about)


@pytest.mark.parametrize(("answering", "queue_ms", "prefill_ms"), [(False, 4000, 2000), (True, 1000, 5000)])
def test_one_that_ends_while_it_waits_again_adds_up(answering: bool, queue_ms: float, prefill_ms: float) -> None:
    """Where its first token never left, the wait is as the engine saw it."""
    timeline = Timeline(10.0, prompt_tokens=100)
    timeline.admit(11.0)
    timeline.preempt(13.0, answering=answering)
    timeline.ended_s = 16.0
    timings = timeline.timings()
    assert_adds_up(timings)
    assert (timings.queue_ms, timings.prefill_ms) == (queue_ms, prefill_ms)


def test_a_first_admission_stays_the_first() -> None:
    timeline = Timeline(10.0)
    timeline.admit(11.0)
    timeline.admit(12.0)
    assert timeline.admitted_s == 11.0
    assert timeline.requeued_s == 0


def test_several_preemptions_are_counted_and_added_up() -> None:
    timeline = Timeline(0.0, prompt_tokens=10)
    for at in (1.0, 3.0, 5.0):
        timeline.admit(at)
        timeline.preempt(at + 1, answering=False)
    timeline.admit(7.0)
    timeline.add_token(8.0, None)
    timeline.ended_s = 8.0
    timings = timeline.timings()
    assert (timings.preemptions, timings.queue_ms, timings.prefill_ms) == (3, 4000, 4000)


def test_what_is_read_is_lost_with_the_cells_and_read_again() -> None:
    timeline = Timeline(0.0, prompt_tokens=100, restored=Restored(1, 5, "live", 0.0, 0.0))
    assert timeline.read_tokens == 5
    timeline.admit(0.0)
    timeline.add_chunk(Call(0.0, 0.1, [], [PrefillChunk(1, 5, 60)]), 5, 60)
    assert timeline.read_tokens == 65
    timeline.preempt(1.0, answering=False)
    assert timeline.read_tokens == 0
    assert timeline.latest_chunks == []
    timeline.admit(2.0)
    assert timeline.read_tokens == 0
    timeline.add_chunk(Call(2.0, 2.1, [], [PrefillChunk(1, 0, 80)]), 0, 80)
    assert timeline.read_tokens == 80
    assert [chunk.tokens for chunk in timeline.latest_chunks] == [80]
    timeline.add_token(3.0, None)
    assert timeline.read_tokens == 100
    timeline.preempt(4.0, answering=True)
    timeline.admit(5.0)
    # The answer so far is read again too.
    timeline.add_chunk(Call(5.0, 5.1, [], [PrefillChunk(1, 0, 101)]), 0, 101)
    assert timeline.read_tokens == 100
    assert len(timeline.chunks) == 3


# Targets that can't be kept


def test_a_raised_target_makes_longer_gaps_no_stalls() -> None:
    timeline = Timeline(0.0, admitted_s=0.0, gap_target_s=0.1)
    timeline.add_token(1.0, stretch(1.0, own_prefill_s=1.0))
    timeline.raise_gap_target(0.14, 8)
    timeline.add_token(1.13, stretch(1.13, own_decode_s=0.13))
    assert timeline.stall_count == 0
    timeline.add_token(1.28, stretch(1.28, own_decode_s=0.15))
    assert timeline.stall_count == 1
    timings = timeline.timings()
    assert (timings.gap_target_ms, timings.raised_gap_target_ms, timings.raised_at_answers) == (100, 140, 8)


def test_a_raised_target_falls_with_what_is_possible() -> None:
    timeline = Timeline(0.0, admitted_s=0.0, gap_target_s=0.1)
    timeline.add_token(1.0, stretch(1.0, own_prefill_s=1.0))
    timeline.raise_gap_target(0.14, 8)
    timeline.raise_gap_target(0.12, 9)
    assert timeline.stall_from_s == 0.12
    timeline.raise_gap_target(0.0, 1)
    assert timeline.stall_from_s == 0.1
    timeline.add_token(1.13, stretch(1.13, own_decode_s=0.13))
    assert timeline.stall_count == 0, "0.14 s was what was possible when the gap began"
    timeline.add_token(1.24, stretch(1.24, own_decode_s=0.11))
    assert timeline.stall_count == 1
    timings = timeline.timings()
    assert (timings.gap_target_ms, timings.raised_gap_target_ms, timings.raised_at_answers) == (100, 140, 8)


def test_a_target_above_what_is_possible_is_not_raised() -> None:
    timeline = Timeline(0.0, gap_target_s=0.2)
    timeline.raise_gap_target(0.14, 8)
    timings = timeline.timings()
    assert (timings.gap_target_ms, timings.raised_gap_target_ms, timings.raised_at_answers) == (200, None, 0)
