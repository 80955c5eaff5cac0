"""What is kept of calls and requests in memory."""

from __future__ import annotations

import pytest

from legato.core.calls import Call
from legato.core.origin import Origin
from legato.server.recorder import JUDGED_CALLS, Recorder
from legato.sinks.metrics import Metrics
from legato.telemetry.timeline import Timeline


def a_recorder() -> Recorder:
    return Recorder("m", Metrics(lambda: None, processes=dict, build={}), None, None)


def test_the_error_of_predictions_is_the_median_of_the_latest_calls() -> None:
    recorder = a_recorder()
    assert recorder.prediction_error_p50() is None
    recorder.call(Call(1.0, 2.0))
    assert recorder.prediction_error_p50() is None
    for predicted_s in (1.1, 0.5, 3.0):
        recorder.call(Call(1.0, 2.0, predicted_s=predicted_s))
    assert recorder.prediction_error_p50() == pytest.approx(0.5)
    for _ in range(JUDGED_CALLS):
        recorder.call(Call(1.0, 2.0, predicted_s=1.0))
    assert recorder.prediction_error_p50() == 0


@pytest.mark.parametrize("tier", ["default", "flex"])
def test_a_record_says_how_its_request_was_served(tier: str) -> None:
    recorder = a_recorder()
    timeline = Timeline(10.0, gap_target_s=0.05, ended_s=11.0)
    recorder.ended(Origin("a", "chat", None, tier), timeline, "stop")  # type: ignore[arg-type]
    record = recorder.find("a")
    assert record is not None
    assert (record.service_tier, record.timings.gap_target_ms) == (tier, 50)
