"""A model for tests that never load one."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from legato.models import LocalModel


def a_model() -> LocalModel:
    """A description without a file."""
    return LocalModel("model", Path("model.gguf"), 0, "model", "file", datetime(2026, 1, 1, tzinfo=UTC))
