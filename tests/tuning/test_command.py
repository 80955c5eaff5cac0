"""`legato tune` with the real model, and little time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from legato.tuning.profile import ProfileStore
from tests.support.command import refused, run_legato


@pytest.fixture
def one_cpu() -> Iterator[None]:
    """The test, and what it starts, run on one CPU: threads would wait for those of tests that run beside it."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    cpus = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cpus)})
    yield
    os.sched_setaffinity(0, cpus)


@pytest.mark.usefixtures("one_cpu")
def test_it_measures_says_what_it_chose_and_remembers_it(model_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "tuning.json"
    done = run_legato(
        "tune", "smollm2", "--gap-target", "2000", "--time-limit", "20", "--no-convert",
        environment={"LEGATO_TUNING": str(path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "FlashAttention off" in done.stdout
    assert "6,000-token prompt" in done.stdout
    assert "legato serve uses this for smollm2 from now on" in done.stdout
    assert "Measuring FlashAttention off" in done.stderr
    profile = ProfileStore(path).find_profile(model_path)
    assert profile is not None
    assert (profile.gap_target_s, profile.model_name, profile.advised_weights) == (2.0, "smollm2", None)
    assert profile.batch_tokens >= 64


@pytest.mark.parametrize("arguments", [["--time-limit", "1"], ["--gap-target", "0"]])
def test_numbers_out_of_range_are_usage_errors(arguments: list[str]) -> None:
    assert run_legato("tune", "smollm2", *arguments).returncode == 2


def test_a_model_that_is_not_there_is_refused() -> None:
    assert "none.gguf" in refused("tune", "./none.gguf")


def test_help_names_every_option() -> None:
    text = run_legato("tune", "--help").stdout
    assert all(option in text for option in ("--gap-target", "--time-limit", "--no-convert"))
