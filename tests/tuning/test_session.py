"""A run of measurements with the real model, and what it does when there is no time."""

from __future__ import annotations

from pathlib import Path

import pytest

from legato.tuning.isolated import Measure, OutOfTimeError, RefusedError, run
from legato.tuning.measure import Configuration, Measurement
from legato.tuning.session import Session, thread_counts


def configuration(path: Path, **changes: object) -> Configuration:
    usual: dict[str, object] = {
        "model_path": str(path),
        "flash_attention": "off",
        "kv_type_k": "f16",
        "kv_type_v": "f16",
        "threads": 1,
        "threads_prefill": 1,
    }
    return Configuration(**(usual | changes))  # type: ignore[arg-type]


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


def test_what_there_is_no_time_for_is_said(model_path: Path) -> None:
    said: list[str] = []
    findings = Session(
        model_path,
        size_bytes=model_path.stat().st_size,
        own_weights="Q4_1",
        limit_s=10.0,
        gap_target_s=0.1,
        convert=True,
        report=lambda name, _share: said.append(name),
    ).run()
    names = [trial.name for trial in findings.trials]
    skipped = " ".join(findings.skipped)
    assert said[0] == "FlashAttention off"
    assert names[:1] == ["FlashAttention off"] or "FlashAttention off" in skipped
    assert "FlashAttention on, f32 KV" in names or "FlashAttention on, f32 KV" in skipped


def test_thread_counts_begin_with_the_usual_one() -> None:
    assert thread_counts(1, 1) == [1]
    assert thread_counts(2, 2) == [2, 1]
    assert thread_counts(12, 6) == [6, 12, 8, 4, 2, 1]
