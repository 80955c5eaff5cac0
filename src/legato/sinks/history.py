"""Ended requests, kept in a file: listed newest first, and pruned by age and by size.

Prompts and answers are never in it: only what `RequestRecord` holds.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from legato.core.origin import EndReason
from legato.sinks import history_file
from legato.sinks.history_file import BATCH_ROWS, UnusableFileError, telling_damage
from legato.telemetry.record import RequestRecord
from legato.telemetry.summary import Cursor, Page, RequestSummary

logger = logging.getLogger(__name__)

QUEUE_LIMIT = 10_000
"""Records that may wait for the disk; then the oldest of them are dropped."""
BATCH_BYTES = 1 << 20
"""Bytes of packed records after which a transaction ends early."""
IDLE_S = 60.0
"""How often old records are looked for while nothing ends."""


class History:
    """Ended requests in an SQLite file, which is opened or begun. Making one never raises: look at `problem`.

    A record is kept for `max_age_s` from its arrival, and the file, with its write-ahead log, within `max_bytes`; None
    is without limit. The `clock` tells Unix time, s.

    Adding never waits for the disk and never raises: a thread writes. Reading does wait for the disk, so that an event
    loop should ask from a thread of its own. All methods may be called from any thread. A history that cannot be kept
    says so once, in the log and in `problem`, and is empty from then on.
    """

    def __init__(
        self,
        path: Path,
        *,
        max_age_s: float | None,
        max_bytes: int | None,
        clock: Callable[[], float] = time.time,
        queue_limit: int = QUEUE_LIMIT,
    ) -> None:
        self.is_on = True
        """Whether records are kept. A history that began anew is on, though it has a `problem` to tell."""
        self.problem: str | None = None
        """One sentence for people: why there is no history, or why it began anew. None while all is well."""
        self.dropped = 0
        """Records that were lost because the disk was too slow, or because there is no history."""
        self._path = path
        self._max_age_s = max_age_s
        self._max_bytes = max_bytes
        self._clock = clock
        self._queue: deque[RequestRecord] = deque(maxlen=queue_limit)
        self._changed = threading.Condition()
        self._writing = 0
        self._closing = False
        self._damage_seen = False
        self._reading = threading.Lock()
        self._thread = threading.Thread(target=self._write_all, name="history", daemon=True)
        try:
            self._open().close()
        except (UnusableFileError, sqlite3.Error, OSError) as error:
            self._turn_off(error)
        else:
            self._thread.start()

    def add(self, record: RequestRecord) -> None:
        """Keep a record, soon. What it holds must not be changed afterwards."""
        with self._changed:
            if self._closing or not self.is_on:
                self.dropped += 1
                return
            self.dropped += len(self._queue) == self._queue.maxlen
            self._queue.append(record)
            self._changed.notify_all()

    def flush(self, timeout_s: float = 10.0) -> bool:
        """Wait until all that was added is written; False if that took longer."""
        with self._changed:
            return self._changed.wait_for(lambda: not (self.is_on and (self._queue or self._writing)), timeout_s)

    def close(self, timeout_s: float = 10.0) -> None:
        """Write what waits, and let go of the file."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def page(
        self,
        *,
        before: Cursor | None = None,
        limit: int = 50,
        client: str | None = None,
        model: str | None = None,
        end: EndReason | None = None,
        text: str | None = None,
        slower_than_ms: float | None = None,
    ) -> Page:
        """`limit` records of the list, newest first, from the `next` of the page before on, or from the newest.

        Conditions add up: records of this client, of this model, that ended so, whose id begins with `text`, and that
        took longer than this from arrival to end.
        """
        filters = history_file.filters_of(client, model, end, text, slower_than_ms)
        rows = self._read(lambda file: history_file.select(file, filters, before, limit + 1))
        found = [RequestSummary(*row[1:]) for row in rows[:limit]]
        last = Cursor(found[-1].arrived_at, rows[limit - 1][0]) if len(rows) > limit > 0 else None
        return Page(found, last)

    def get(self, id: str) -> RequestRecord | None:  # noqa: A002 - what it is
        """The whole record of a request, if it is kept and can be read."""
        rows = self._read(lambda file: history_file.packed_record(file, id))
        try:
            return history_file.unpack(rows[0][0]) if rows else None
        except (zlib.error, msgspec.DecodeError) as error:
            logger.warning("The record of %s cannot be read: %s", id, error)
            return None

    def _read(self, query: Callable[[sqlite3.Connection], list[Any]]) -> list[Any]:
        """The rows of a query; none if the file cannot be read."""
        with self._reading:
            if not self._path.exists():
                return []
            try:
                with telling_damage(), closing(history_file.connect(self._path)) as file:
                    file.execute("PRAGMA query_only = 1")
                    return query(file)
            except UnusableFileError:
                with self._changed:  # the writer will set it aside
                    self._damage_seen = True
                    self._changed.notify_all()
            except sqlite3.Error as error:
                self._say(f"The history {self._path} cannot be read: {error}.")
            return []

    def _open(self) -> sqlite3.Connection:
        """The file, with its tables and nobody else's to read; a file that is not ours or damaged is set aside."""
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            return history_file.prepared(self._path)
        except UnusableFileError as error:
            self._begin_anew(error)
            return history_file.prepared(self._path)

    def _begin_anew(self, error: UnusableFileError) -> None:
        """Set the file aside, with what was being written to it."""
        with self._changed:
            self._damage_seen = False
            self.dropped += self._writing
            self._writing = 0
        with self._reading:
            aside = history_file.set_aside(self._path)
        self._say(f"The history {self._path} {error}: it was set aside as {aside.name}, and a new one was begun.")

    def _turn_off(self, error: Exception) -> None:
        with self._changed:
            self.is_on = False
            self.dropped += len(self._queue) + self._writing
            self._queue.clear()
            self._changed.notify_all()
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        self._say(
            f"Ended requests are no longer kept, because the history {self._path} cannot be written ({reason}): "
            f"make room or give access to it, then restart."
        )

    def _say(self, sentence: str) -> None:
        if sentence != self.problem:
            logger.warning(sentence)
        self.problem = sentence

    # Writing, all in one thread

    def _write_all(self) -> None:
        try:
            while True:
                try:
                    with telling_damage(), closing(self._open()) as file:
                        self._write_until_closed(file)
                    return
                except UnusableFileError as error:
                    self._begin_anew(error)
        except Exception as error:  # whatever it is, serving goes on
            self._turn_off(error)

    def _write_until_closed(self, file: sqlite3.Connection) -> None:
        self._prune(file)
        while self._wait_for_records():
            self._write_batch(file)
            self._prune(file)
        history_file.fold_log(file)

    def _prune(self, file: sqlite3.Connection) -> None:
        oldest = None if self._max_age_s is None else self._clock() - self._max_age_s
        history_file.prune(file, self._path, oldest=oldest, max_bytes=self._max_bytes)

    def _wait_for_records(self) -> bool:
        """Wait for something to write, or for the time to prune; False once all is written and closing.

        Raises:
            UnusableFileError: A reader met damage.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closing or self._damage_seen, IDLE_S)
            if self._damage_seen:
                raise UnusableFileError("is damaged")
            return bool(self._queue) or not self._closing

    def _write_batch(self, file: sqlite3.Connection) -> None:
        size = 0
        with file:
            while self._queue and self._writing < BATCH_ROWS and size < BATCH_BYTES:
                with self._changed:
                    self._writing += 1
                    record = self._queue.popleft()
                size += history_file.insert(file, record)
        with self._changed:
            self._writing = 0
            self._changed.notify_all()
