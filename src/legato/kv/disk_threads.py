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

    @property
    def writing(self) -> str | None:
        """The entry that is being written."""
        ...

    def fetch(self, entry: str, tokens: Tokens) -> None:
        """Read an entry's state; `done` says when it is there."""
        ...

    def write(self, entry: str, scope: str, tokens: Tokens, state: KvState, prefill_s: float) -> None:
        """Write an entry; `done` says when it is there. One at a time: see `writing`."""
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
    """Carries out what has to do with files.

    Args:
        store: The files.
        is_busy: Whether the engine works; asked from another thread.
    """

    def __init__(self, store: DiskStore, is_busy: Callable[[], bool]) -> None:
        self._store = store
        self._is_busy = is_busy
        self._fetches: queue.SimpleQueue[tuple[str, Tokens] | None] = queue.SimpleQueue()
        self._writes: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[Fetched | Written] = queue.SimpleQueue()
        self._writing: str | None = None
        self._threads = [
            threading.Thread(target=self._fetch_all, name="fetching", daemon=True),
            threading.Thread(target=self._write_all, name="writing", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    @property
    def writing(self) -> str | None:
        """The entry that is being written."""
        return self._writing

    def fetch(self, entry: str, tokens: Tokens) -> None:
        """Read an entry's state; `done` says when it is there.

        Args:
            entry: Its id.
            tokens: Its tokens, which the file must have too.
        """
        self._fetches.put((entry, tokens))

    def write(self, entry: str, scope: str, tokens: Tokens, state: KvState, prefill_s: float) -> None:
        """Write an entry; `done` says when it is there. One at a time: see `writing`."""
        self._writing = entry
        self._writes.put(lambda: self._write(entry, scope, tokens, state, prefill_s))

    def touch(self, entry: str) -> None:
        """An entry was used."""
        self._writes.put(lambda: self._store.touch(entry))

    def pin(self, entry: str, *, pinned: bool) -> None:
        """Keep an entry whatever it is worth, or no longer."""
        self._writes.put(lambda: self._store.pin(entry, pinned))

    def remove(self, entry: str) -> None:
        """Remove an entry's file."""
        self._writes.put(lambda: self._store.remove(entry))

    def done(self) -> list[Fetched | Written]:
        """What was done since this was asked last."""
        found: list[Fetched | Written] = []
        with contextlib.suppress(queue.Empty):
            while True:
                found.append(self._done.get_nowait())
                if isinstance(found[-1], Written):
                    self._writing = None
        return found

    def close(self, within_s: float) -> None:
        """Finish what was begun, if that takes no longer than this.

        Args:
            within_s: Seconds.
        """
        self._fetches.put(None)
        self._writes.put(None)
        until_s = time.monotonic() + within_s
        for thread in self._threads:
            thread.join(max(0.0, until_s - time.monotonic()))
        self._store.close()

    def _fetch_all(self) -> None:
        while (wanted := self._fetches.get()) is not None:
            entry, tokens = wanted
            begun_s = time.monotonic()
            state = None
            try:
                found, state = self._store.read(entry)
                if not np.array_equal(found, tokens):
                    state = None
            except (DamagedEntryError, OSError) as error:
                logger.warning("a remembered prompt could not be read from disk: %s", error)
            except Exception:
                # Too little memory, say. Somebody waits for an answer, and the next one for this thread.
                logger.exception("a remembered prompt could not be read from disk")
            self._done.put(Fetched(entry, state, time.monotonic() - begun_s))

    def _write_all(self) -> None:
        with contextlib.suppress(OSError, AttributeError):
            # Linux has priorities of threads; elsewhere the pauses must do.
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
        while (job := self._writes.get()) is not None:
            try:
                job()
            except OSError as error:
                logger.warning("the remembered prompts on disk could not be changed: %s", error)
            except Exception:
                logger.exception("the remembered prompts on disk could not be changed")

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
