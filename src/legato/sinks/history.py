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
from pathlib import Path
from typing import Any

import msgspec

from legato.core.origin import EndReason
from legato.sinks.history_file import (
    BATCH_ROWS,
    INSERT_REQUEST,
    UnusableFileError,
    bytes_in_use,
    bytes_on_disk,
    conditions_of,
    connect,
    delete_oldest,
    fold_log,
    free_name,
    give_back_pages,
    is_damage,
    pack,
    prepared,
    select,
    unpack,
)
from legato.telemetry.record import RequestRecord
from legato.telemetry.summary import Cursor, Page, RequestSummary

logger = logging.getLogger(__name__)

QUEUE_LIMIT = 10_000
"""Records that may wait for the disk; then the oldest of them are dropped."""
BATCH_BYTES = 1 << 20
"""Bytes of packed records after which a transaction ends early."""
LINGER_S = 0.25
"""How long the writer waits for more once there is something to write: what a killed process may lose."""
IDLE_S = 60.0
"""How often old records are looked for while nothing ends."""
ROOM = 0.9
"""Part of the size limit that pruning leaves in use, so that it has not to prune at every write."""


class History:
    """Ended requests in an SQLite file.

    Adding never waits for the disk and never raises: a thread writes. Reading does wait for the disk, so that an event
    loop should ask from a thread of its own. All methods may be called from any thread. A history that cannot be kept
    says so once, in the log and in `problem`, and is empty from then on.
    """

    problem: str | None
    """One sentence for people: why there is no history, or why it began anew. None while all is well."""
    dropped: int
    """Records that were lost because the disk was too slow, or because there is no history."""

    def __init__(
        self,
        path: Path,
        *,
        max_age_s: float | None,
        max_bytes: int | None,
        clock: Callable[[], float] = time.time,
        queue_limit: int = QUEUE_LIMIT,
    ) -> None:
        """For `open`."""
        self.problem = None
        self.dropped = 0
        self._path = path
        self._max_age_s = max_age_s
        self._max_bytes = max_bytes
        self._clock = clock
        self._queue: deque[RequestRecord] = deque()
        self._queue_limit = queue_limit
        self._changed = threading.Condition()
        self._writing = 0
        self._flushing = 0
        self._closing = False
        self._off = False
        self._damage_seen = False
        self._reading = threading.Lock()
        self._reader: sqlite3.Connection | None = None
        self._thread = threading.Thread(target=self._write_all, name="history", daemon=True)

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        max_age_s: float | None,
        max_bytes: int | None,
        clock: Callable[[], float] = time.time,
        queue_limit: int = QUEUE_LIMIT,
    ) -> History:
        """Open the file, or begin it. Never raises: look at `problem`.

        Args:
            path: The file. A folder that has to be made for it is this user's alone.
            max_age_s: How long a record is kept from its arrival, s; None for ever.
            max_bytes: How large the file may be, its write-ahead log included; None without limit.
            clock: Unix time, s.
            queue_limit: Records that may wait for the disk.
        """
        history = cls(path, max_age_s=max_age_s, max_bytes=max_bytes, clock=clock, queue_limit=queue_limit)
        try:
            writer = history._open()
        except (sqlite3.Error, OSError) as error:
            history._turn_off(error)
        else:
            writer.close()
            history._thread.start()
        return history

    @property
    def is_on(self) -> bool:
        """Whether records are kept. A history that began anew is on, though it has a `problem` to tell."""
        return not self._off

    def add(self, record: RequestRecord) -> None:
        """Keep a record, soon. It must not be changed afterwards."""
        with self._changed:
            if self._off or self._closing:
                self.dropped += 1
                return
            if len(self._queue) >= self._queue_limit:
                self._queue.popleft()
                self.dropped += 1
            self._queue.append(record)
            self._changed.notify_all()

    def flush(self, timeout_s: float = 10.0) -> bool:
        """Wait until all that was added is written; False if that took longer."""
        with self._changed:
            self._flushing += 1
            self._changed.notify_all()
            try:
                return self._changed.wait_for(lambda: self._off or not (self._queue or self._writing), timeout_s)
            finally:
                self._flushing -= 1

    def close(self, timeout_s: float = 10.0) -> None:
        """Write what waits, and let go of the file."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        with self._reading:
            self._forget_reader()

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
        """A part of the list, newest first. Conditions add up.

        Args:
            before: The `next` of the page before; None for the newest.
            limit: Records of the page.
            client: Only those of this API key.
            model: Only those of this model.
            end: Only those that ended so.
            text: Only those whose id begins so.
            slower_than_ms: Only those that took longer than this, from arrival to end.
        """
        conditions = conditions_of(client, model, end, text, slower_than_ms)
        rows = self._read(lambda file: select(file, conditions, before, limit + 1))
        found = [RequestSummary(*row[1:]) for row in rows[:limit]]
        last = Cursor(found[-1].arrived_at, rows[limit - 1][0]) if len(rows) > limit > 0 else None
        return Page(found, last)

    def get(self, id: str) -> RequestRecord | None:  # noqa: A002 - what it is
        """The whole record of a request, if it is kept and can be read."""
        rows = self._read(
            lambda file: file.execute(
                "SELECT packed FROM records WHERE number = (SELECT max(number) FROM requests WHERE id = ?)", (id,)
            ).fetchall()
        )
        try:
            return unpack(rows[0][0]) if rows else None
        except (zlib.error, msgspec.DecodeError) as error:
            logger.warning("The record of %s cannot be read: %s", id, error)
            return None

    # Reading

    def _read(self, query: Callable[[sqlite3.Connection], list[Any]]) -> list[Any]:
        """The rows of a query; none if the file cannot be read."""
        with self._reading:
            try:
                if self._reader is None:
                    if not self._path.exists():
                        return []
                    self._reader = connect(self._path)
                    self._reader.execute("PRAGMA query_only = 1")
                return query(self._reader)
            except sqlite3.Error as error:
                self._forget_reader()
                if is_damage(error):
                    self._report_damage()
                else:
                    self._say(f"The history {self._path} cannot be read: {error}.")
                return []

    def _forget_reader(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _report_damage(self) -> None:
        """Let the writer set the file aside."""
        with self._changed:
            self._damage_seen = True
            self._changed.notify_all()

    # Opening

    def _open(self) -> sqlite3.Connection:
        """The file, with its tables and nobody else's to read; a file that is not ours or damaged is set aside."""
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            file = prepared(self._path)
        except UnusableFileError as error:
            self._set_aside(str(error))
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                raise
            self._set_aside("is damaged")
        else:
            return file
        return prepared(self._path)

    def _set_aside(self, why: str) -> None:
        aside = free_name(self._path)
        with self._reading:
            self._forget_reader()
            for suffix in ("", "-wal", "-shm"):
                part = Path(f"{self._path}{suffix}")
                if part.exists():
                    part.rename(f"{aside}{suffix}")
        self._say(f"The history {self._path} {why}: it was set aside as {aside.name}, and a new one was begun.")

    def _turn_off(self, error: Exception) -> None:
        with self._changed:
            self._off = True
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
        file: sqlite3.Connection | None = None
        try:
            while not self._off:
                try:
                    file = file or self._open()
                    self._write_until_closed(file)
                    fold_log(file)
                    return
                except sqlite3.DatabaseError as error:
                    if not is_damage(error):
                        raise
                    self._begin_anew(file)
                    file = None
        except Exception as error:  # whatever it is, serving goes on
            self._turn_off(error)
        finally:
            if file is not None:
                file.close()

    def _begin_anew(self, file: sqlite3.Connection | None) -> None:
        if file is not None:
            file.close()
        with self._changed:
            self._damage_seen = False
            self.dropped += self._writing
            self._writing = 0
        self._set_aside("is damaged")

    def _write_until_closed(self, file: sqlite3.Connection) -> None:
        self._prune(file)
        while self._wait_for_records():
            self._write_batch(file)
            self._prune(file)

    def _wait_for_records(self) -> bool:
        """Wait for something to write, or for the time to prune; False once all is written and closing.

        Raises:
            sqlite3.DatabaseError: A reader met damage.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closing or self._damage_seen, IDLE_S)
            if self._queue and not self._closing:
                self._changed.wait_for(self._is_urgent, LINGER_S)
            if self._damage_seen:
                damage = sqlite3.DatabaseError("damaged")
                damage.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
                raise damage
            return bool(self._queue) or not self._closing

    def _is_urgent(self) -> bool:
        return len(self._queue) >= BATCH_ROWS or self._flushing > 0 or self._closing

    def _write_batch(self, file: sqlite3.Connection) -> None:
        size = 0
        with file:
            while size < BATCH_BYTES and (record := self._next_of_batch()) is not None:
                packed = pack(record)
                size += len(packed)
                row = file.execute(INSERT_REQUEST, msgspec.structs.astuple(RequestSummary.of(record)))
                file.execute("INSERT INTO records VALUES (?, ?)", (row.lastrowid, packed))
        with self._changed:
            self._writing = 0
            self._changed.notify_all()

    def _next_of_batch(self) -> RequestRecord | None:
        with self._changed:
            if not self._queue or self._writing >= BATCH_ROWS:
                return None
            self._writing += 1
            return self._queue.popleft()

    def _prune(self, file: sqlite3.Connection) -> None:
        """Delete what is too old, then the oldest until the file is small enough."""
        if self._max_age_s is not None:
            oldest = self._clock() - self._max_age_s
            while delete_oldest(file, "arrived_at < ?", (oldest,)):
                give_back_pages(file)
        if self._max_bytes is None or bytes_on_disk(self._path) <= self._max_bytes:
            return
        fold_log(file)
        if bytes_on_disk(self._path) <= self._max_bytes:
            return
        while bytes_in_use(file) > self._max_bytes * ROOM and delete_oldest(file, "1", ()):
            give_back_pages(file)
        fold_log(file)
