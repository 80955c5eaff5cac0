"""Instants of workers that go by another machine's clock."""

from __future__ import annotations

import random

import pytest

from legato.client.clock import KEPT_ROUND_TRIPS, WorkerClock, on_server_clock
from legato.core.calls import Call, PrefillChunk
from legato.wire.messages import Report


def test_a_local_worker_has_the_server_s_clock_and_its_reports_are_left_as_they_are() -> None:
    report = Report(0.1 + 0.2, call=Call(0.1, 0.3, [1]))
    assert on_server_clock(report, WorkerClock().offset_s) is report


def test_every_instant_is_shifted_and_nothing_else() -> None:
    call = Call(10.0, 10.5, [1], [PrefillChunk(2, 0, 64)], 0.4)
    report = Report(10.5, admitted=[2], raised=[(1, 0.2)], tokens=[(1, 7, None)], ended=[(1, "stop", "")], call=call)
    shifted = Call(1010.0, 1010.5, [1], [PrefillChunk(2, 0, 64)], 0.4)
    assert on_server_clock(report, 1000.0) == Report(
        1010.5, admitted=[2], raised=[(1, 0.2)], tokens=[(1, 7, None)], ended=[(1, "stop", "")], call=shifted
    )
    assert on_server_clock(Report(10.5), -10.0) == Report(0.5)


def test_the_shortest_round_trip_is_believed() -> None:
    clock, dice = WorkerClock(), random.Random(1)
    for begun_s in range(10):
        there_s, back_s = dice.uniform(0.001, 0.5), dice.uniform(0.001, 0.5)
        if begun_s == 4:
            there_s = back_s = 0.0005
        clock.observe(begun_s, begun_s + there_s - 1000.0, begun_s + there_s + back_s)
    assert clock.offset_s == pytest.approx(1000.0, abs=1e-9)


def test_it_is_off_by_half_a_round_trip_at_most() -> None:
    clock = WorkerClock()
    clock.observe(5.0, 5.0 - 1000.0, 5.2)  # the way there took no time, the way back all of it
    assert clock.offset_s == pytest.approx(1000.1)


def test_clocks_that_drift_apart_are_followed() -> None:
    clock = WorkerClock()
    clock.observe(0.0, 0.0, 0.0)
    assert clock.offset_s == 0.0
    for begun_s in range(KEPT_ROUND_TRIPS):
        clock.observe(begun_s, begun_s - 0.5, begun_s + 0.002)
    assert clock.offset_s == pytest.approx(0.501)
