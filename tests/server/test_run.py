"""From the settings to the engine's."""

from __future__ import annotations

from legato.server.run import engine_settings
from legato.settings import Settings
from tests.server.models import a_model


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
