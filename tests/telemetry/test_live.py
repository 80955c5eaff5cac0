"""Requests as a watcher sees them, and how long their prompts still take."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legato.core.origin import Origin
from legato.core.timings import ChunkRead
from legato.telemetry.live import live_request, prefill_left_ms
from legato.telemetry.record import LiveRequest
from legato.telemetry.timeline import Timeline

ORIGIN = Origin("chatcmpl-1", "chat", "ana")


def live(timeline: Timeline, *, now_s: float = 110.0, loading: bool = False, ahead: int = 0) -> LiveRequest:
    return live_request(ORIGIN, timeline, now_s, loading=loading, ahead=ahead)


def read(costs_ms: list[float], tokens: int = 64) -> list[ChunkRead]:
    """Chunks one after the other that took so long."""
    at_ms = 0.0
    chunks = []
    for number, took_ms in enumerate(costs_ms):
        chunks.append(ChunkRead(at_ms, took_ms, number * tokens, tokens))
        at_ms += took_ms
    return chunks


def preempted(timeline: Timeline, *, answering: bool) -> Timeline:
    timeline.preempt(103.0, answering=answering)
    return timeline


@pytest.mark.parametrize(
    ("timeline", "loading", "phase"),
    [
        (Timeline(100.0), True, "load"),
        (Timeline(100.0), False, "queue"),
        (Timeline(100.0, admitted_s=101.0), False, "prefill"),
        (Timeline(100.0, admitted_s=101.0, token_times_s=[102.0]), False, "decode"),
        (preempted(Timeline(100.0, admitted_s=101.0), answering=False), False, "queue"),
        (preempted(Timeline(100.0, admitted_s=101.0, token_times_s=[102.0]), answering=True), False, "decode"),
    ],
)
def test_the_phase_is_what_it_waits_for(timeline: Timeline, loading: bool, phase: str) -> None:
    found = live(timeline, loading=loading)
    assert (found.phase, found.id, found.client, found.since_ms) == (phase, "chatcmpl-1", "ana", 10_000)


def test_background_work_and_preemptions_are_shown() -> None:
    origin = Origin("chatcmpl-1", "chat", "ana", "flex")
    timeline = preempted(Timeline(100.0, admitted_s=101.0), answering=False)
    found = live_request(origin, timeline, 110.0, loading=False, ahead=0)
    assert (found.service_tier, found.preemptions) == ("flex", 1)
    assert (live(Timeline(100.0)).service_tier, live(Timeline(100.0)).preemptions) == ("default", 0)


def test_rates_and_gaps_are_of_the_latest_tokens() -> None:
    timeline = Timeline(100.0, prompt_tokens=9, admitted_s=100.0)
    for left_s in [100.5, 105.0, *(105 + n / 10 for n in range(1, 31))]:
        timeline.add_token(left_s, None)
    found = live(timeline)
    assert found.decode_tokens_per_second == pytest.approx(10)
    assert found.gap_ms == pytest.approx(100)
    assert found.gap_max_ms == pytest.approx(4500)
    assert (found.read_tokens, found.answer_tokens, found.prefill_left_ms) == (9, 32, None)


def test_a_prompt_that_is_read_evenly_is_read_on_evenly() -> None:
    assert prefill_left_ms(read([50.0] * 6), 10 * 64) == pytest.approx(4 * 50)


def test_a_prompt_that_gets_dearer_with_depth_gets_dearer_still() -> None:
    costs = [100 + 10 * number for number in range(20)]
    assert prefill_left_ms(read(costs[:10]), 20 * 64) == pytest.approx(sum(costs[10:]), rel=0.01)


def test_turns_of_others_count() -> None:
    chunks = [ChunkRead(number * 80.0, 50.0, number * 64, 64) for number in range(8)]
    assert prefill_left_ms(chunks, 16 * 64) == pytest.approx(8 * 80, rel=0.1)


def test_nothing_is_known_before_the_first_chunk_and_nothing_left_after_the_last() -> None:
    assert prefill_left_ms([], 100) is None
    assert prefill_left_ms(read([50.0]), 64) == 0


@given(st.lists(st.floats(0, 10_000), min_size=1, max_size=50), st.integers(0, 100_000))
def test_no_estimate_is_negative(costs: list[float], more: int) -> None:
    left = prefill_left_ms(read(costs), len(costs) * 64 + more)
    assert left is not None
    assert left >= 0
