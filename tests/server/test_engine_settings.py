"""The engine's settings: which come from where, what `legato tune` found among them, and what costs hold for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from legato.core.choices import FlashAttention
from legato.server.engine_settings import cost_settings_of, engine_settings, uses_profile, with_profile
from legato.server.run import make_service
from legato.server.service import Service
from legato.settings import Settings
from legato.tuning.profile import CostSettings, ProfileStore, cost_settings
from legato.wire.messages import EngineSettings
from legato.worker.sizing import default_threads
from tests.server.models import COSTS, PROFILE, a_model

KEY = cost_settings(PROFILE, -1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"weights")
    return path


@pytest.fixture
def store(tmp_path: Path) -> ProfileStore:
    return ProfileStore(tmp_path / "tuning.json")


def tuned(**settings: Any) -> EngineSettings:
    return engine_settings(Settings(history="off", **settings), a_model(), PROFILE)


# Settings


def test_what_is_left_open_is_the_default() -> None:
    engine = engine_settings(Settings(), a_model())
    assert (engine.policy, engine.chunk, engine.gap_target_s, engine.background_wait_s) == ("adaptive", None, 0.1, 600)
    assert (engine.kv_type_k, engine.kv_type_v, engine.batch_tokens, engine.joined_calls) == ("f16", "f16", 512, False)
    assert engine.costs is None


def test_what_is_set_is_handed_on() -> None:
    settings = Settings(
        policy="whole",
        chunk=7,
        gap_target_ms=50,
        background_wait=3,
        kv_type_k="q8_0",
        kv_type_v="f32",
        batch=64,
        joined_calls=True,
    )
    engine = engine_settings(settings, a_model())
    assert (engine.policy, engine.chunk, engine.gap_target_s, engine.background_wait_s) == ("whole", 7, 0.05, 3)
    assert (engine.kv_type_k, engine.kv_type_v, engine.batch_tokens, engine.joined_calls) == ("q8_0", "f32", 64, True)


def test_what_is_left_open_is_as_tuned() -> None:
    engine = tuned()
    assert (engine.flash_attention, engine.kv_type_k, engine.kv_type_v) == ("on", "f32", "f32")
    assert (engine.threads, engine.threads_prefill) == (3, 5)
    assert (engine.batch_tokens, engine.joined_calls) == (128, True)


@pytest.mark.parametrize(
    ("setting", "field", "value"),
    [
        ("flash_attention", "flash_attention", "auto"),
        ("kv_type_k", "kv_type_k", "q8_0"),
        ("kv_type_v", "kv_type_v", "q8_0"),
        ("threads", "threads", 1),
        ("threads_prefill", "threads_prefill", 1),
        ("batch", "batch_tokens", 64),
        ("joined_calls", "joined_calls", False),
    ],
)
def test_what_was_set_wins(setting: str, field: str, value: Any) -> None:
    assert getattr(tuned(**{setting: value}), field) == value


def test_attention_and_kv_types_are_taken_together_or_not_at_all() -> None:
    # The tuned half of a pair that the library refuses, or that nobody measured, is worse than the default.
    engine = tuned(kv_type_v="q8_0")
    assert (engine.flash_attention, engine.kv_type_k, engine.kv_type_v) == (None, "f16", "q8_0")
    engine = tuned(flash_attention="off")
    assert (engine.flash_attention, engine.kv_type_k, engine.kv_type_v) == ("off", "f16", "f16")
    engine = tuned(kv_type_k="f32")
    assert (engine.flash_attention, engine.kv_type_k, engine.kv_type_v) == ("on", "f32", "f32")


def test_threads_that_are_set_are_those_for_reading_too() -> None:
    assert (tuned(threads=1).threads, tuned(threads=1).threads_prefill) == (1, None)
    assert (tuned(threads_prefill=1).threads, tuned(threads_prefill=1).threads_prefill) == (3, 1)


def test_a_profile_is_used_if_anything_is_left_to_it() -> None:
    assert uses_profile(Settings(), PROFILE)
    assert not uses_profile(Settings(), None)
    every = {
        "flash_attention": "off",
        "kv_type_k": "f16",
        "kv_type_v": "f16",
        "threads": 1,
        "threads_prefill": 1,
        "batch": 512,
        "joined_calls": False,
    }
    assert not uses_profile(Settings(**every), PROFILE)
    assert uses_profile(Settings(**(every | {"batch": None})), PROFILE)


def test_the_rest_stays() -> None:
    settings = Settings(port=5, policy="whole")
    assert with_profile(settings, None) is settings
    assert (with_profile(settings, PROFILE).port, with_profile(settings, PROFILE).policy) == (5, "whole")


# What costs are remembered by


def test_costs_of_a_tuned_model_are_those_that_tuning_measured() -> None:
    assert cost_settings_of(tuned()) == KEY


@pytest.mark.parametrize(
    ("policy", "kv_type_v", "expected"),
    [("adaptive", "f16", "off"), ("whole", "f16", "on"), ("adaptive", "q8_0", "on")],
)
def test_what_is_left_open_stands_as_the_worker_chooses_it(
    policy: Any, kv_type_v: Any, expected: FlashAttention
) -> None:
    engine = EngineSettings("model.gguf", policy=policy, kv_type_v=kv_type_v, gpu_layers=0)
    threads = default_threads()
    assert cost_settings_of(engine) == CostSettings(expected, "f16", kv_type_v, threads, threads, 512, 0, False)


def test_threads_for_reading_are_those_for_writing() -> None:
    found = cost_settings_of(EngineSettings("model.gguf", threads=7, gpu_layers=0))
    assert (found.threads, found.threads_prefill) == (7, 7)


def test_a_service_begins_with_what_is_known(store: ProfileStore, path: Path) -> None:
    def service(**settings: Any) -> Service:
        return make_service(Settings(history="off", **settings), a_model(path), store)

    assert service().engine.settings.costs is None
    assert service().engine.settings.threads is None
    store.save_profile(path, PROFILE)
    store.save_costs(path, KEY, COSTS)
    assert service().engine.settings.costs == COSTS
    assert service().engine.settings.threads == 3
    # Costs hold whatever the gap target is, and for no other settings.
    assert service(gap_target_ms=20).engine.settings.costs == COSTS
    assert service(threads=2).engine.settings.costs is None
