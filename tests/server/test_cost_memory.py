"""What calls cost, remembered for the next start."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
import pytest

from legato.errors import LegatoError
from legato.scheduling.costs import Coefficients
from legato.server.cost_memory import CostMemory
from legato.tuning.profile import ProfileStore, cost_settings
from tests.server.models import COSTS, PROFILE

NEWER = msgspec.structs.replace(COSTS, decode_call_s=0.005)
NEWEST = msgspec.structs.replace(COSTS, decode_call_s=0.006)
KEY = cost_settings(PROFILE, -1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"weights")
    return path


class SlowStore:
    """Saves when it is let to, and keeps what it was told."""

    def __init__(self) -> None:
        self.saved: list[Coefficients] = []
        self.threads: set[int] = set()
        self.let = threading.Event()

    def save(self, costs: Coefficients) -> None:
        assert self.let.wait(10)
        self.threads.add(threading.get_ident())
        self.saved.append(costs)


def remember(save: Callable[[Coefficients], None], *costs: Coefficients, known: Coefficients | None = None) -> None:
    async def run() -> None:
        memory = CostMemory(save, known)
        for one in costs:
            memory.remember(one)
            await memory.close()

    asyncio.run(run())


def test_costs_are_saved(tmp_path: Path, path: Path) -> None:
    store = ProfileStore(tmp_path / "tuning.json")
    remember(partial(store.save_costs, path, KEY), COSTS)
    assert store.find_costs(path, KEY) == COSTS
    remember(partial(store.save_costs, path, KEY), COSTS, NEWER)
    assert store.find_costs(path, KEY) == NEWER


def test_nothing_is_saved_in_the_event_loop_and_only_the_newest_of_what_comes_meanwhile() -> None:
    store = SlowStore()

    async def run() -> None:
        memory = CostMemory(store.save, None)
        memory.remember(COSTS)
        await asyncio.sleep(0)
        memory.remember(NEWER)
        memory.remember(NEWEST)
        store.let.set()
        await memory.close()

    asyncio.run(run())
    assert store.saved == [COSTS, NEWEST]
    assert threading.get_ident() not in store.threads


def test_what_is_known_is_not_saved_again() -> None:
    store = SlowStore()
    remember(store.save, msgspec.structs.replace(COSTS), known=COSTS)
    assert store.saved == []


def test_a_place_that_cannot_be_written_is_a_warning(
    tmp_path: Path, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    store = ProfileStore(tmp_path / "file" / "tuning.json")
    with pytest.raises(LegatoError):
        store.save_costs(path, KEY, COSTS)
    remember(partial(store.save_costs, path, KEY), COSTS)
    assert "cannot be written" in caplog.text
