"""A disk that takes virtual time: the files are real, and whoever asks for them waits on the simulation's clock."""

from __future__ import annotations

import logging

import numpy as np

from legato.core.clock import Clock
from legato.core.tokens import KvState, Tokens
from legato.kv.disk import DamagedEntryError, DiskStore
from legato.kv.disk_threads import Fetched, Written

logger = logging.getLogger(__name__)


class ModelledDisk:
    """Does the work of `legato.kv.disk_threads.DiskThreads` without threads.

    Args:
        store: The files.
        clock: Of the simulation.
        takes_s: What reading or writing a state takes; infinite for a disk that never answers.
    """

    def __init__(self, store: DiskStore, clock: Clock, *, takes_s: float = 0.001) -> None:
        self._store = store
        self._clock = clock
        self.takes_s = takes_s
        """What reading or writing a state takes, from now on."""
        self._pending: list[tuple[float, Fetched | Written]] = []
        """What is done, and the instants at which that is known."""

    @property
    def writing(self) -> str | None:
        """The entry that is being written."""
        return next((done.entry for _, done in self._pending if isinstance(done, Written)), None)

    def fetch(self, entry: str, tokens: Tokens) -> None:
        """Read an entry's state."""
        state: KvState | None = None
        try:
            found, state = self._store.read(entry)
            state = state if np.array_equal(found, tokens) else None
        except (DamagedEntryError, OSError) as error:
            logger.warning("a remembered prompt could not be read from disk: %s", error)
        self._later(Fetched(entry, state, self.takes_s))

    def write(self, entry: str, scope: str, tokens: Tokens, state: KvState, prefill_s: float) -> None:
        """Write an entry."""
        try:
            self._later(Written(entry, self._store.write(scope, tokens, state, prefill_s=prefill_s)))
        except OSError as error:
            self._later(Written(entry, None, str(error)))

    def touch(self, entry: str) -> None:
        """An entry was used."""
        self._store.touch(entry)

    def pin(self, entry: str, *, pinned: bool) -> None:
        """Keep an entry whatever it is worth, or no longer."""
        self._store.pin(entry, pinned)

    def remove(self, entry: str) -> None:
        """Remove an entry's file."""
        self._store.remove(entry)

    def done(self) -> list[Fetched | Written]:
        """What is known to be done since this was asked last."""
        now_s = self._clock.now_s()
        found = [done for at_s, done in self._pending if at_s <= now_s]
        self._pending = [(at_s, done) for at_s, done in self._pending if at_s > now_s]
        return found

    def close(self, within_s: float) -> None:
        """Everything is written already."""
        self._store.close()

    def _later(self, done: Fetched | Written) -> None:
        self._pending.append((self._clock.now_s() + self.takes_s, done))
