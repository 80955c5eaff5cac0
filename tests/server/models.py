"""A model for tests that never load one."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from fastapi import FastAPI

from legato.models import LocalModel
from legato.scheduling.costs import Coefficients
from legato.server.app import create_app
from legato.server.engine_settings import engine_settings
from legato.server.prompting import Language
from legato.server.service import Service
from legato.settings import Settings
from legato.tuning.profile import Profile
from legato.wire.messages import ModelInfo

COSTS = Coefficients(0.004, 0.001, 1e-6, 0.002, 0.003, 1e-7, 4e-7, 64)
PROFILE = Profile(
    flash_attention="on",
    kv_type_k="f32",
    kv_type_v="f32",
    threads=3,
    threads_prefill=5,
    batch_tokens=128,
    joined_calls=True,
    gap_target_s=0.1,
    model_name="model",
    advised_weights=None,
    tuned_at=1.0,
)


def a_model(path: Path = Path("model.gguf")) -> LocalModel:
    """A description; its file is there if the test made one."""
    return LocalModel("model", path, 0, "model", "file", datetime(2026, 1, 1, tzinfo=UTC))


def make_app(**settings: Any) -> FastAPI:
    """A server whose model is never loaded."""

    def read_language() -> Language:
        raise AssertionError("the server was started")

    whole = Settings(**settings)
    engine = engine_settings(whole, a_model())
    return create_app(whole, Service("model", engine, read_language, max_queue=whole.max_queue))


def model_info(costs: Coefficients, **changes: Any) -> ModelInfo:
    """A model that is ready."""
    values: dict[str, Any] = {
        "description": "a model",
        "parameters": 1,
        "size_bytes": 1,
        "context_tokens": 2048,
        "parallel": 4,
        "threads": 2,
        "threads_prefill": 2,
        "flash_attention": "off",
        "policy": "adaptive",
        "chunk": 64,
        "interruptible": False,
        "costs": costs,
    }
    return msgspec.convert(values | changes, ModelInfo)
