"""What Prometheus is told."""

from __future__ import annotations

import os
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.parser import text_string_to_metric_families

from legato.core.calls import Call, PrefillChunk
from legato.core.causes import CAUSES
from legato.sinks.metrics import ERROR_BUCKETS, GAP_BUCKETS_S, PHASE_BUCKETS_S, Distribution, Live, Metrics, Planning
from tests.telemetry.records import request_record, stall

HISTOGRAMS = ("ttft", "queue", "load", "prefill", "inter_token_latency", "time_per_output_token", "request")


def some_metrics(live: Live | None = None, processes: dict[str, int] | None = None) -> Metrics:
    return Metrics(lambda: live, processes=lambda: processes or {}, build={"version": "9.9"})


def scraped(metrics: Metrics) -> dict[str, float]:
    """Samples as they stand in the text, such as `legato_requests_total{end="stop"}`."""
    body, _ = metrics.render()
    lines = (line for line in body.decode().splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_the_phases_of_a_request() -> None:
    metrics = some_metrics()
    metrics.request_ended(request_record(load_ms=500, queue_ms=10, prefill_ms=100, tokens=5, gap_ms=20))
    values = scraped(metrics)
    for name in HISTOGRAMS:
        count = 4 if name == "inter_token_latency" else 1
        assert values[f'legato_{name}_seconds_count{{model="smollm2"}}'] == count, name
    sums = {name: values[f'legato_{name}_seconds_sum{{model="smollm2"}}'] for name in HISTOGRAMS}
    assert sums == pytest.approx(
        {
            "load": 0.5,
            "queue": 0.01,
            "prefill": 0.1,
            "ttft": 0.61,
            "inter_token_latency": 0.08,
            "time_per_output_token": 0.02,
            "request": 0.69,
        }
    )


def test_a_request_without_a_token_has_no_first_one() -> None:
    metrics = some_metrics()
    metrics.request_ended(request_record(end="cancelled", tokens=0))
    values = scraped(metrics)
    assert 'legato_ttft_seconds_count{model="smollm2"}' not in values
    assert 'legato_prefill_seconds_count{model="smollm2"}' not in values
    assert values['legato_request_seconds_count{model="smollm2"}'] == 1
    assert values['legato_requests_total{end="cancelled"}'] == 1


def test_tokens_and_ends_are_counted() -> None:
    metrics = some_metrics()
    for end in ("stop", "stop", "length"):
        metrics.request_ended(request_record(end=end, prompt_tokens=100, cached_tokens=40, tokens=7))
    values = scraped(metrics)
    assert values["legato_prompt_tokens_total"] == 300
    assert values["legato_cached_tokens_total"] == 120
    assert values["legato_generated_tokens_total"] == 21
    ends = {end: values[f'legato_requests_total{{end="{end}"}}'] for end in ("stop", "length", "cancelled", "failed")}
    assert ends == {"stop": 2, "length": 1, "cancelled": 0, "failed": 0}


def test_stalls_are_counted_by_cause_and_those_not_listed_as_other() -> None:
    metrics = some_metrics()
    record = request_record(stalls=[stall(300), stall(200)])
    record = structs.replace(record, timings=replace(record.timings, stalls=5, stalled_ms=800.0))
    metrics.request_ended(record)
    values = scraped(metrics)
    assert values['legato_stalls_total{cause="others_prefill"}'] == 2
    assert values['legato_stalled_seconds_total{cause="others_prefill"}'] == pytest.approx(0.5)
    assert values['legato_stalls_total{cause="other"}'] == 3
    assert values['legato_stalled_seconds_total{cause="other"}'] == pytest.approx(0.3)
    assert all(f'legato_stalls_total{{cause="{cause}"}}' in values for cause in CAUSES)


def test_the_engines_time_is_shared_out_by_tokens() -> None:
    metrics = some_metrics()
    metrics.call(Call(1.0, 2.0, decoded=[1]))
    metrics.call(Call(2.0, 4.0, chunks=[PrefillChunk(2, 0, 128)]))
    metrics.call(Call(4.0, 5.0, decoded=[1], chunks=[PrefillChunk(2, 128, 2), PrefillChunk(3, 0, 1)]))
    metrics.call(Call(5.0, 5.0))
    values = scraped(metrics)
    assert values["legato_calls_total"] == 4
    assert values['legato_engine_seconds_total{phase="decode"}'] == pytest.approx(1.25)
    assert values['legato_engine_seconds_total{phase="prefill"}'] == pytest.approx(2.75)


def test_the_error_of_predictions_is_relative_to_what_a_call_took() -> None:
    metrics = some_metrics()
    for predicted_s in (1.0, 1.1, 0.5, 5.0, None):
        metrics.call(Call(1.0, 2.0, decoded=[1], predicted_s=predicted_s))
    metrics.call(Call(1.0, 1.0, predicted_s=1.0))
    values = scraped(metrics)
    name = "legato_step_prediction_error_ratio"
    assert values[f"{name}_count"] == 4
    assert values[f"{name}_sum"] == pytest.approx(0 + 0.1 + 0.5 + 4)
    assert values[f'{name}_bucket{{le="0.01"}}'] == 1
    assert values[f'{name}_bucket{{le="0.5"}}'] == 3
    assert values[f'{name}_bucket{{le="2.0"}}'] == 3
    assert (ERROR_BUCKETS[0], ERROR_BUCKETS[-1]) == (0.01, 2.0)


def test_preemptions_are_counted_when_their_request_ends() -> None:
    metrics = some_metrics()
    assert scraped(metrics)["legato_preemptions_total"] == 0
    record = request_record()
    metrics.request_ended(structs.replace(record, timings=replace(record.timings, preemptions=3)))
    assert scraped(metrics)["legato_preemptions_total"] == 3


def test_how_steps_are_planned_is_asked_for_at_each_scrape() -> None:
    now = Planning("adaptive", 0.1)
    metrics = Metrics(lambda: None, processes=dict, build={}, planning=lambda: now)
    values = scraped(metrics)
    assert (values['legato_policy_info{policy="adaptive"}'], values["legato_gap_target_seconds"]) == (1, 0.1)
    now = Planning("whole", 0.05)
    values = scraped(metrics)
    assert (values['legato_policy_info{policy="whole"}'], values["legato_gap_target_seconds"]) == (1, 0.05)
    assert 'legato_policy_info{policy="adaptive"}' not in values
    assert "legato_gap_target_seconds" not in scraped(some_metrics())


def test_gauges_are_asked_for_once_a_scrape() -> None:
    asked: list[None] = []

    def live() -> Live:
        asked.append(None)
        return Live(running=1, waiting=2, kv_cells_used=30, kv_cells=len(asked))

    metrics = Metrics(live, processes=dict, build={"version": "1"})
    assert asked == []
    scraped(metrics)
    values = scraped(metrics)
    assert values["legato_requests_running"] == 1
    assert values["legato_requests_waiting"] == 2
    assert values["legato_kv_cells_used"] == 30
    assert values["legato_kv_cells"] == 2


def test_gauges_are_left_out_while_nothing_is_known() -> None:
    assert "legato_requests_running" not in scraped(some_metrics(live=None))


def test_the_build_and_the_processes() -> None:
    values = scraped(some_metrics(processes={"server": os.getpid(), "gone": 2**22 + 1}))
    assert values['legato_build_info{version="9.9"}'] == 1
    assert values['legato_process_resident_memory_bytes{process="server"}'] > 2**20
    assert values['legato_process_cpu_seconds_total{process="server"}'] > 0
    assert 'legato_process_resident_memory_bytes{process="gone"}' not in values


def test_the_text_is_what_prometheus_reads() -> None:
    metrics = some_metrics(Live(1, 2, 30, 400), processes={"server": os.getpid()})
    metrics.request_ended(request_record())
    body, content_type = metrics.render()
    families = {family.name: family for family in text_string_to_metric_families(body.decode())}
    assert content_type.startswith("text/plain; version=0.0.4")
    assert families["legato_ttft_seconds"].type == "histogram"
    assert families["legato_requests"].type == "counter"
    assert all(family.documentation for family in families.values())
    assert all(name.startswith("legato_") for name in families)


def test_no_label_names_a_person_or_a_request() -> None:
    metrics = some_metrics()
    metrics.request_ended(request_record("chatcmpl-secret", client="ann"))
    assert b"ann" not in metrics.render()[0].replace(b"cancelled", b"")
    assert b"secret" not in metrics.render()[0]


@pytest.mark.parametrize("bounds", [PHASE_BUCKETS_S, GAP_BUCKETS_S])
def test_buckets_ascend_from_a_millisecond_to_minutes(bounds: tuple[float, ...]) -> None:
    assert list(bounds) == sorted(set(bounds))
    assert bounds[0] == 0.001
    assert bounds[-1] >= 120


@given(st.lists(st.floats(0, 1000) | st.sampled_from(GAP_BUCKETS_S), min_size=1, max_size=60))
def test_a_distribution_is_the_librarys_histogram_of_the_same_values(values: list[float]) -> None:
    registry = CollectorRegistry()
    theirs = Histogram("h", "help", ["model"], buckets=GAP_BUCKETS_S, registry=registry)
    ours = Distribution("h", "help", GAP_BUCKETS_S)
    for value in values:
        theirs.labels(model="m").observe(value)
    for value in values[:20]:
        ours.observe("m", value)
    ours.observe("m", np.asarray(values[20:], dtype=np.float64))
    (expected,), (got,) = registry.collect(), ours.collect()
    samples = {(s.name, *s.labels.values()): s.value for s in got.samples}
    for sample in expected.samples:
        if not sample.name.endswith("_created"):
            assert samples[sample.name, *sample.labels.values()] == pytest.approx(sample.value)


def test_a_long_answer_is_counted_quickly() -> None:
    metrics = some_metrics()
    record = request_record(tokens=8000)
    metrics.request_ended(record)
    rounds = 10
    begun = time.thread_time()
    for _ in range(rounds):
        metrics.request_ended(record)
    assert (time.thread_time() - begun) / rounds < 0.01
