"""Servers that answer one at a time, to see who waits for whom."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.server import LegatoProcess


@pytest.fixture(scope="session")
def narrow(model_path: Path) -> Iterator[LegatoProcess]:
    """One sequence of 8,192 tokens, and room for one request to wait. An answer can take a minute here."""
    with LegatoProcess("smollm2", "--parallel", "1", "--max-queue", "1", "--ctx", "8192") as process:
        process.wait_ready()
        yield process
