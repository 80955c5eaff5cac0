"""What a state on disk depends on: a server that would compute another one does not find it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from legato.engine.context import ContextSettings
from legato.wire.messages import EngineSettings
from legato.worker.cache_setup import SAMPLE_BYTES, SAMPLES, state_key

SETTINGS = EngineSettings("model.gguf", cache_folder="cache")
CONTEXT = ContextSettings(4, 1024, 512, 2, 2, "off")


@pytest.fixture
def model(tmp_path: Path) -> Any:
    """A file of a model, twice as large as what is looked at of it."""
    path = tmp_path / "model.gguf"
    path.write_bytes(bytes(range(256)) * (2 * SAMPLES * SAMPLE_BYTES // 256))
    return SimpleNamespace(description="a model", parameters=7, size_bytes=9, path=path)


def test_the_same_key_is_made_again(model: Any) -> None:
    assert state_key(SETTINGS, CONTEXT, model) == state_key(SETTINGS, CONTEXT, model)


def test_what_changes_nothing_of_a_state_changes_no_key(model: Any) -> None:
    settings = msgspec.structs.replace(SETTINGS, policy="whole", gap_target_s=1.0, cache_disk_bytes=5)
    context = ContextSettings(4, 2048, 128, 1, 8, "off")
    assert state_key(settings, context, model) == state_key(SETTINGS, CONTEXT, model)


@pytest.mark.parametrize(
    "context",
    [
        ContextSettings(8, 1024, 512, 2, 2, "off"),
        ContextSettings(4, 1024, 512, 2, 2, "on"),
        ContextSettings(4, 1024, 512, 2, 2, "off", kv_type_k="q8_0"),
        ContextSettings(4, 1024, 512, 2, 2, "off", kv_type_v="f32"),
    ],
)
def test_another_context_is_another_key(model: Any, context: ContextSettings) -> None:
    assert state_key(SETTINGS, context, model) != state_key(SETTINGS, CONTEXT, model)


@pytest.mark.parametrize("change", [{"gpu_layers": 0}, {"cache_scope": "key"}])
def test_other_settings_are_another_key(model: Any, change: dict[str, Any]) -> None:
    """Scopes are names of clients, or everybody's: one must not pass for the other."""
    assert state_key(msgspec.structs.replace(SETTINGS, **change), CONTEXT, model) != state_key(SETTINGS, CONTEXT, model)


@pytest.mark.parametrize("at", [0, SAMPLES * SAMPLE_BYTES, -1])
def test_another_file_is_another_key(model: Any, at: int) -> None:
    before = state_key(SETTINGS, CONTEXT, model)
    data = bytearray(model.path.read_bytes())
    data[at] ^= 1
    model.path.write_bytes(data)
    assert state_key(SETTINGS, CONTEXT, model) != before
