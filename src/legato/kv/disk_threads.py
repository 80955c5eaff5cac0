"""Reading and writing remembered entries beside the engine's loop: two threads, one for each."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from legato.core.tokens import KvState, Tokens
from legato.kv.disk import DamagedEntryError, DiskEntry, DiskStore

logger = logging.getLogger(__name__)

NICENESS = 19
"""Of the thread that writes: it gets the time that nobody else wants."""
PIECE_PAUSE_S = 0.005
"""Pause after each MiB that is written while the engine works."""

_Jobs = queue.SimpleQueue[Callable[[], None] | None]
"""What a thread has to do, one after another; None ends it."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """An entry was read, or could not be."""

    entry: str
    state: KvState | None
    """None if it was damaged or gone; its file is removed then."""
    took_s: float


@dataclass(frozen=True, slots=True)
class Written:
    """An entry was written, or could not be."""

    entry: str
    on_disk: DiskEntry | None
    """None if the disk refused it."""
    error: str = ""


class Disk(Protocol):
    """Reads and writes remembered entries beside the engine's loop, which never waits for it."""

    def fetch(self, entry: str, tokens: Tokens) -> None:
        """Read an entry's state, whose file must have these tokens; `done` says when it is there."""
        ...

    def write(self, entry: str, scope: str, tokens: Tokens, state: KvState, prefill_s: float) -> None:
        """Write an entry; `done` says when it is there."""
        ...

    def touch(self, entry: str) -> None:
        """An entry was used."""
        ...

    def pin(self, entry: str, *, pinned: bool) -> None:
        """Keep an entry whatever it is worth, or no longer."""
        ...

    def remove(self, entry: str) -> None:
        """Remove an entry's file."""
        ...

    def done(self) -> list[Fetched | Written]:
        """What was done since this was asked last."""
        ...

    def close(self, within_s: float) -> None:
        """Finish what was begun, if that takes no longer than so many seconds."""
        ...


class DiskThreads:
    """The `Disk` of a worker: carries out what has to do with files.

    Args:
        store: The files.
        is_busy: Whether the engine works; asked from another thread.
    """

    def __init__(self, store: DiskStore, is_busy: Callable[[], bool]) -> None:
        self._store = store
        self._is_busy = is_busy
        self._fetches: _Jobs = queue.SimpleQueue()
        self._changes: _Jobs = queue.SimpleQueue()
        self._done: queue.SimpleQueue[Fetched | Written] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=_work, args=arguments, name=arguments[0], daemon=True)
            for arguments in (
                ("fetching", self._fetches, 0, "a remembered prompt could not be read from disk"),
                ("writing", self._changes, NICENESS, "the remembered prompts on disk could not be changed"),
            )
        ]
        for thread in self._threads:
            thread.start()

    def fetch(self, entry: str, tokens: Tokens) -> None:
        """Read an entry's state, whose file must have these tokens; `done` says when it is there."""
        self._fetches.put(lambda: self._fetch(entry, tokens))

    def write(self, entry: str, scope: str, tokens: Tokens, state: KvState, prefill_s: float) -> None:
        """Write an entry; `done` says when it is there."""
        self._changes.put(lambda: self._write(entry, scope, tokens, state, prefill_s))

    def touch(self, entry: str) -> None:
        """An entry was used."""
        self._changes.put(lambda: self._store.touch(entry))

    def pin(self, entry: str, *, pinned: bool) -> None:
        """Keep an entry whatever it is worth, or no longer."""
        self._changes.put(lambda: self._store.pin(entry, pinned))

    def remove(self, entry: str) -> None:
        """Remove an entry's file."""
        self._changes.put(lambda: self._store.remove(entry))

    def done(self) -> list[Fetched | Written]:
        """What was done since this was asked last."""
        return [self._done.get() for _ in range(self._done.qsize())]

    def close(self, within_s: float) -> None:
        """Finish what was begun, if that takes no longer than so many seconds."""
        self._fetches.put(None)
        self._changes.put(None)
        until_s = time.monotonic() + within_s
        for thread in self._threads:
            thread.join(max(0.0, until_s - time.monotonic()))
        self._store.close()

    def _fetch(self, entry: str, tokens: Tokens) -> None:
        begun_s = time.monotonic()
        state = None
        try:
            found, read = self._store.read(entry)
            state = read if np.array_equal(found, tokens) else None
        finally:
            self._done.put(Fetched(entry, state, time.monotonic() - begun_s))  # whatever happened: somebody waits

    def _write(self, entry: str, scope: str, tokens: Tokens, state: KvState, prefill_s: float) -> None:
        done = Written(entry, None, "see above")
        try:
            done = Written(entry, self._store.write(scope, tokens, state, prefill_s=prefill_s, pause=self._pause))
        except OSError as error:
            done = Written(entry, None, str(error))
        finally:
            self._done.put(done)  # whatever happened: as long as it counts as being written, nothing else is

    def _pause(self) -> None:
        if self._is_busy():
            time.sleep(PIECE_PAUSE_S)


def _work(_name: str, jobs: _Jobs, niceness: int, failure: str) -> None:
    """Do one job after another until there is None; what goes wrong with one is told, and the next one is done."""
    if niceness:
        with contextlib.suppress(OSError, AttributeError):
            # Linux has priorities of threads; elsewhere the pauses must do.
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness)
    while (job := jobs.get()) is not None:
        try:
            job()
        except (DamagedEntryError, OSError) as error:
            logger.warning("%s: %s", failure, error)
        except Exception:
            logger.exception(failure)  # too little memory, say
