"""The threads beside the engine's loop: whatever files do, whoever waits has an answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from legato.kv.disk import DiskStore
from legato.kv.disk_threads import DiskThreads, Fetched, Written
from tests.support.waiting import wait_until

TOKENS = np.arange(5, dtype=np.int32)
STATE = np.arange(100, dtype=np.uint8)


@pytest.fixture
def store(tmp_path: Path) -> DiskStore:
    return DiskStore(tmp_path, "key")


@pytest.fixture
def threads(store: DiskStore) -> Iterator[DiskThreads]:
    made = DiskThreads(store, lambda: False)
    yield made
    made.close(5.0)


def done(threads: DiskThreads) -> Any:
    """The next thing that was done."""
    (one,) = wait_until(threads.done, "something is done")
    return one


def failing(error: Exception) -> Callable[..., Any]:
    def fail(*_arguments: Any, **_more: Any) -> Any:
        raise error

    return fail


def test_what_is_written_is_fetched(threads: DiskThreads) -> None:
    threads.write("name", "scope", TOKENS, STATE, 2.0)
    written = done(threads)
    assert isinstance(written, Written)
    assert written.on_disk is not None
    assert (written.entry, written.on_disk.scope, written.on_disk.prefill_s) == ("name", "scope", 2.0)
    threads.fetch(written.on_disk.id, TOKENS)
    fetched = done(threads)
    assert isinstance(fetched, Fetched)
    assert fetched.state is not None
    assert fetched.state.tolist() == STATE.tolist()


def test_other_tokens_than_were_asked_for_are_none(threads: DiskThreads) -> None:
    threads.write("name", "", TOKENS, STATE, 2.0)
    entry = done(threads).on_disk.id
    threads.fetch(entry, TOKENS + 1)
    assert done(threads).state is None


@pytest.mark.parametrize("error", [OSError("disk full"), MemoryError(), RuntimeError("anything")])
def test_a_write_that_fails_is_told_and_the_next_one_goes_on(
    threads: DiskThreads, store: DiskStore, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(store, "write", failing(error))
        threads.write("name", "", TOKENS, STATE, 2.0)
        assert done(threads).on_disk is None
    threads.write("name", "", TOKENS, STATE, 2.0)
    assert done(threads).on_disk is not None


@pytest.mark.parametrize("error", [OSError("gone"), MemoryError(), RuntimeError("anything")])
def test_a_fetch_that_fails_is_told_and_the_next_one_goes_on(
    threads: DiskThreads, store: DiskStore, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    threads.write("name", "", TOKENS, STATE, 2.0)
    entry = done(threads).on_disk.id
    with monkeypatch.context() as patch:
        patch.setattr(store, "read", failing(error))
        threads.fetch(entry, TOKENS)
        assert done(threads).state is None
    threads.fetch(entry, TOKENS)
    assert done(threads).state is not None


def test_a_job_that_fails_does_not_end_the_others(
    threads: DiskThreads, store: DiskStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "touch", failing(RuntimeError("anything")))
    threads.touch("name")
    threads.write("name", "", TOKENS, STATE, 2.0)
    assert done(threads).on_disk is not None
