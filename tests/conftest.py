"""Fixtures with the real thing: real models, and real servers on free loopback ports that end with their test."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from legato.models import default_store
from legato.tuning.profile import PATH_VARIABLE
from tests.support.server import LegatoProcess

ServerFactory = Callable[..., LegatoProcess]

# pytest-xdist sets it for its workers, and what prints tables would keep to it for good.
os.environ.pop("COLUMNS", None)


@pytest.fixture(scope="session", autouse=True)
def tuning(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What was measured here, shared by all servers and commands: only the first of a kind calibrates.

    In the environment, so that no process that a test starts, by whatever way, finds the user's own.
    """
    path = tmp_path_factory.mktemp("tuning") / "tuning.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(PATH_VARIABLE, str(path))
        yield path


@pytest.fixture(scope="session")
def model_path() -> Path:
    """The demonstration model."""
    return default_store().resolve("smollm2").path


@pytest.fixture(scope="session")
def gemma_path() -> Path:
    """A base model of another architecture: sliding-window attention, 262,144 tokens, no chat template."""
    return default_store().resolve("gemma3-270m").path


@pytest.fixture(scope="session")
def server(model_path: Path) -> Iterator[LegatoProcess]:
    """One server for all tests that leave it as it was; it remembers nothing, so that none hits another's prompts."""
    with LegatoProcess("smollm2", "--parallel", "8", "--ctx", "2048", "--cache-scope", "off") as process:
        process.wait_ready()
        yield process


@pytest.fixture
def serve(model_path: Path) -> Iterator[ServerFactory]:
    """Starts servers of one's own: `serve("smollm2", "--parallel", "1")`; they are ready when it returns."""
    started: list[LegatoProcess] = []

    def start(*arguments: str, ready: bool = True, environment: dict[str, str] | None = None) -> LegatoProcess:
        process = LegatoProcess(*(arguments or ("smollm2",)), environment=environment)
        started.append(process)
        process.start()
        if ready:
            process.wait_ready()
        return process

    yield start
    for process in started:
        process.stop()
