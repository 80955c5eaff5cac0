"""Measurements of the real model in processes of their own: events and counts, for times are the machine's own."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from legato.tuning.isolated import Measure, OutOfTimeError, RefusedError, TimeThreads, run
from legato.tuning.measure import CHUNKS, Configuration, Measurement, ThreadTimes


def configuration(path: Path, **changes: object) -> Configuration:
    usual: dict[str, object] = {
        "model_path": str(path),
        "flash_attention": "off",
        "kv_type_k": "f16",
        "kv_type_v": "f16",
        "threads": 1,
        "threads_prefill": 1,
        "batch_tokens": 512,
    }
    return Configuration(**(usual | changes))  # type: ignore[arg-type]


def test_a_configuration_is_measured(model_path: Path) -> None:
    measurement = run(Measure(configuration(model_path), 1.0), Measurement, timeout_s=120)
    assert all(value >= 0 for value in msgspec.structs.astuple(measurement.costs))
    assert measurement.size_factors
    assert set(measurement.size_factors) <= set(CHUNKS)
    assert measurement.deepest >= 16
    assert measurement.probe_s > 0


def test_numbers_of_threads_are_timed_the_first_however_little_time_there_is(model_path: Path) -> None:
    times = run(TimeThreads(configuration(model_path), [1, 2], 0.0), ThreadTimes, timeout_s=120)
    assert set(times.decode_s) == set(times.chunk_s) == {1}


def test_a_refused_configuration_is_a_sentence(model_path: Path) -> None:
    task = Measure(configuration(model_path, kv_type_v="q8_0"), 1.0)
    with pytest.raises(RefusedError, match="flash_attn"):
        run(task, Measurement, timeout_s=60)


def test_a_model_that_is_not_there_is_a_sentence(model_path: Path) -> None:
    with pytest.raises(RefusedError):
        run(Measure(configuration(model_path, model_path="none.gguf"), 1.0), Measurement, timeout_s=60)


def test_a_measurement_that_takes_too_long_is_ended(model_path: Path) -> None:
    with pytest.raises(OutOfTimeError):
        run(Measure(configuration(model_path), 5.0), Measurement, timeout_s=0.05)
