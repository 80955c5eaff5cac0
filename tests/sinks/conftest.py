"""A history of each test's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from legato.sinks.history import History
from tests.sinks.histories import opened


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "history.sqlite"


@pytest.fixture
def history(path: Path) -> Iterator[History]:
    history = opened(path)
    yield history
    history.close()
