"""Ended requests, kept in a file: listed newest first, and pruned by age and by size.

Prompts and answers are never in it: only what `RequestRecord` holds.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from legato.errors import LegatoError
from legato.telemetry.record import EndReason, RequestRecord
from legato.telemetry.verdict import verdict

logger = logging.getLogger(__name__)

VERSION = 1
"""Version of the file's tables, and of the records in it. A file of another version is set aside.

A field may be added to `RequestRecord` without a new one, if it has a default.
"""

QUEUE_LIMIT = 10_000
"""Records that may wait for the disk; then the oldest of them are dropped."""

BATCH_ROWS = 200
"""Rows of one transaction at most, so that the write-ahead log stays small and a reader never waits long."""
BATCH_BYTES = 1 << 20
"""Bytes of packed records after which a transaction ends early."""
LINGER_S = 0.25
"""How long the writer waits for more once there is something to write: what a killed process may lose."""
IDLE_S = 60.0
"""How often old records are looked for while nothing ends."""
LOG_PAGES = 256
"""Pages of the write-ahead log after which it is folded into the file: about 1 MiB."""
ROOM = 0.9
"""Part of the size limit that pruning leaves in use, so that it has not to prune at every write."""
RARE_ROWS = 5_000
"""A filter that lets no more rows through than this is rare: its rows are read and sorted, not looked for."""

TABLES = """
CREATE TABLE requests (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL,
    arrived_at REAL NOT NULL,
    client TEXT,
    model TEXT NOT NULL,
    endpoint TEXT NOT NULL,
    "end" TEXT NOT NULL,
    prompt_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL,
    answer_tokens INTEGER NOT NULL,
    queue_ms REAL NOT NULL,
    load_ms REAL NOT NULL,
    prefill_ms REAL NOT NULL,
    ttft_ms REAL,
    decode_ms REAL NOT NULL,
    total_ms REAL NOT NULL,
    itl_max_ms REAL,
    stalls INTEGER NOT NULL,
    verdict TEXT NOT NULL
);
CREATE INDEX by_arrival ON requests (arrived_at);
CREATE INDEX by_client ON requests (client, arrived_at);
CREATE INDEX by_model ON requests (model, arrived_at);
CREATE INDEX by_end ON requests ("end", arrived_at);
CREATE INDEX by_id ON requests (id);
CREATE INDEX by_total ON requests (total_ms);
-- Apart from the rows that are listed, so that a list reads few pages of the file.
CREATE TABLE records (number INTEGER PRIMARY KEY, packed BLOB NOT NULL);
"""


class Summary(msgspec.Struct, frozen=True):
    """One line of the list of ended requests. The fields are those of `RequestRecord` and `Timings`."""

    id: str
    arrived_at: float
    """Unix time, s."""
    client: str | None
    model: str
    endpoint: str
    end: str
    prompt_tokens: int
    cached_tokens: int
    answer_tokens: int
    queue_ms: float
    load_ms: float
    prefill_ms: float
    ttft_ms: float | None
    decode_ms: float
    total_ms: float
    itl_max_ms: float | None
    stalls: int
    verdict: str
    """What the wait was, in one sentence."""

    @classmethod
    def of(cls, record: RequestRecord) -> Summary:
        """The line of a record."""
        timings = record.timings
        return cls(
            id=record.id,
            arrived_at=record.arrived_at,
            client=record.client,
            model=record.model,
            endpoint=record.endpoint,
            end=record.end,
            prompt_tokens=record.prompt_tokens,
            cached_tokens=timings.cached_tokens,
            answer_tokens=timings.decode_tokens,
            queue_ms=timings.queue_ms,
            load_ms=timings.load_ms,
            prefill_ms=timings.prefill_ms,
            ttft_ms=timings.ttft_ms,
            decode_ms=timings.decode_ms,
            total_ms=timings.total_ms,
            itl_max_ms=timings.itl_max_ms,
            stalls=timings.stalls,
            verdict=verdict(record).sentences[0],
        )


COLUMNS = ", ".join(f'"{name}"' for name in Summary.__struct_fields__)
INSERT_REQUEST = f"INSERT INTO requests ({COLUMNS}) VALUES ({', '.join('?' * len(Summary.__struct_fields__))})"


class Cursor(msgspec.Struct, frozen=True):
    """A place in the list: just after one request, in the order from new to old."""

    arrived_at: float
    number: int
    """The row, which tells apart requests that arrived at the same instant."""

    def __str__(self) -> str:
        return f"{self.arrived_at!r}_{self.number}"

    @classmethod
    def parse(cls, text: str) -> Cursor:
        """The cursor that `str` made the text of.

        Raises:
            LegatoError: It made no such text.
        """
        arrived_at, _, number = text.partition("_")
        try:
            return cls(float(arrived_at), int(number))
        except ValueError:
            raise LegatoError(f"{text!r} is no place in the history: use the 'next' of the page before.") from None


class Page(msgspec.Struct, frozen=True):
    """A part of the list, newest first."""

    records: list[Summary]
    next: Cursor | None
    """Where the next page begins; None at the end."""


@dataclass(frozen=True, slots=True)
class Filter:
    """A condition on the rows, and the index that finds them."""

    index: str
    condition: str
    values: tuple[object, ...]
    in_order: bool
    """Whether that index gives its rows in the order of the list."""


EVERYTHING = Filter("by_arrival", "1", (), in_order=True)


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
        filters = _filters(client, model, end, text, slower_than_ms)
        rows = self._read(lambda file: _select(file, filters, before, limit + 1))
        found = [Summary(*row[1:]) for row in rows[:limit]]
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
                    self._reader = _connect(self._path)
                    self._reader.execute("PRAGMA query_only = 1")
                return query(self._reader)
            except sqlite3.Error as error:
                self._forget_reader()
                if _is_damage(error):
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
            file = _prepared(self._path)
        except UnusableFileError as error:
            self._set_aside(str(error))
        except sqlite3.DatabaseError as error:
            if not _is_damage(error):
                raise
            self._set_aside("is damaged")
        else:
            return file
        return _prepared(self._path)

    def _set_aside(self, why: str) -> None:
        aside = _free_name(self._path)
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
                    _fold_log(file)
                    return
                except sqlite3.DatabaseError as error:
                    if not _is_damage(error):
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
                row = file.execute(INSERT_REQUEST, msgspec.structs.astuple(Summary.of(record)))
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
            while _delete_oldest(file, "arrived_at < ?", (oldest,)):
                _give_back_pages(file)
        if self._max_bytes is None or _bytes_on_disk(self._path) <= self._max_bytes:
            return
        _fold_log(file)
        if _bytes_on_disk(self._path) <= self._max_bytes:
            return
        while _bytes_in_use(file) > self._max_bytes * ROOM and _delete_oldest(file, "1", ()):
            _give_back_pages(file)
        _fold_log(file)


class UnusableFileError(Exception):
    """A whole file that is not this version's history; the text goes on after the file's name."""


def pack(record: RequestRecord) -> bytes:
    """A record as it is kept: compressed, with the instants of its tokens as differences in whole microseconds."""
    instants = np.rint(np.asarray(record.token_ms, dtype=np.float64) * 1000).astype(np.int64)
    steps: list[int] = np.diff(instants, prepend=np.int64(0)).tolist()
    return zlib.compress(msgspec.msgpack.encode((msgspec.structs.replace(record, token_ms=[]), steps)), 3)


def unpack(packed: bytes) -> RequestRecord:
    """The record that `pack` was given, with its tokens' instants rounded to a microsecond."""
    record, steps = msgspec.msgpack.decode(zlib.decompress(packed), type=tuple[RequestRecord, list[int]])
    record.token_ms = (np.cumsum(np.asarray(steps, dtype=np.int64)) / 1000).tolist()
    return record


def _filters(
    client: str | None, model: str | None, end: str | None, text: str | None, slower_than_ms: float | None
) -> list[Filter]:
    found: list[Filter] = []
    for column, value in (("client", client), ("model", model), ("end", end)):
        if value is not None:
            found.append(Filter(f"by_{column}", f'"{column}" = ?', (value,), in_order=True))
    if text:
        # The range of the texts that begin so; LIKE would neither use the index nor leave % and _ alone.
        found.append(Filter("by_id", "id >= ? AND id < ?", (text, text + "\U0010ffff"), in_order=False))
    if slower_than_ms is not None:
        found.append(Filter("by_total", "total_ms > ?", (slower_than_ms,), in_order=False))
    return found


def _select(file: sqlite3.Connection, filters: list[Filter], before: Cursor | None, limit: int) -> list[Any]:
    """Rows with their number, from the index that has to look at the fewest."""
    index = _best_index(file, filters)
    conditions = [f.condition for f in filters]
    values = [value for f in filters for value in f.values]
    if before is not None:
        conditions.append("(arrived_at, number) < (?, ?)")
        values += [before.arrived_at, before.number]
    where = f"WHERE {' AND '.join(conditions)} " if conditions else ""
    return file.execute(
        f"SELECT number, {COLUMNS} FROM requests INDEXED BY {index} {where}"
        "ORDER BY arrived_at DESC, number DESC LIMIT ?",
        (*values, limit),
    ).fetchall()


def _best_index(file: sqlite3.Connection, filters: list[Filter]) -> str:
    """The index of the rarest condition; if none is rare, one in the list's order, which soon fills a page."""
    rows = {f: _count(file, f) for f in filters}
    rarest = min(filters, key=rows.__getitem__, default=EVERYTHING)
    if rarest is EVERYTHING or rows[rarest] < RARE_ROWS:
        return rarest.index
    return next((f for f in filters if f.in_order), EVERYTHING).index


def _count(file: sqlite3.Connection, condition: Filter) -> int:
    """Rows that a condition lets through, counted no further than to `RARE_ROWS`."""
    count: int = file.execute(
        f"SELECT count(*) FROM (SELECT 1 FROM requests INDEXED BY {condition.index} "
        f"WHERE {condition.condition} LIMIT {RARE_ROWS})",
        condition.values,
    ).fetchone()[0]
    return count


def _connect(path: Path) -> sqlite3.Connection:
    file = sqlite3.connect(path, timeout=5.0, check_same_thread=False)
    # Safe against a killed process; only a power cut may lose the latest records, never the file.
    file.execute("PRAGMA synchronous = NORMAL")
    return file


def _prepared(path: Path) -> sqlite3.Connection:
    """The file with its tables.

    Raises:
        UnusableFileError: It is something else.
        sqlite3.Error: It is damaged, or cannot be written.
        OSError: It cannot be made.
    """
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    path.chmod(0o600)
    file = _connect(path)
    try:
        _check_or_create(file)
    except BaseException:
        file.close()
        raise
    return file


def _check_or_create(file: sqlite3.Connection) -> None:
    version = file.execute("PRAGMA user_version").fetchone()[0]
    empty = file.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] == 0
    if version > VERSION:
        raise UnusableFileError("was written by a newer Legato")
    if version != VERSION and not empty:
        raise UnusableFileError("is not a history that this Legato can read")
    if empty:
        # Before the first table; later it would need the whole file written anew.
        file.execute("PRAGMA auto_vacuum = INCREMENTAL")
    file.execute("PRAGMA journal_mode = WAL")
    file.execute(f"PRAGMA wal_autocheckpoint = {LOG_PAGES}")
    file.execute("PRAGMA journal_size_limit = 0")
    if empty:
        # In one transaction, so that a process killed here leaves an empty file and not half a history.
        file.executescript(f"BEGIN; {TABLES} PRAGMA user_version = {VERSION}; COMMIT;")
    # Writing nothing tells an unwritable file now rather than at the first record; reading an end of each table tells
    # gross damage. Damage further inside is met, and the file set aside, when it is read.
    file.execute("BEGIN IMMEDIATE")
    for end in ("max(arrived_at) FROM requests", "max(number) FROM requests", "max(number) FROM records"):
        file.execute(f"SELECT {end}").fetchone()
    file.rollback()


def _is_damage(error: sqlite3.Error) -> bool:
    # The low byte is the kind; the rest says more about it.
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _free_name(path: Path) -> Path:
    number = 1
    while (aside := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    return aside


def _delete_oldest(file: sqlite3.Connection, condition: str, values: tuple[object, ...]) -> int:
    """Delete a small batch of the oldest rows that meet a condition; how many there were."""
    with file:
        oldest = file.execute(
            f"SELECT number FROM requests INDEXED BY by_arrival WHERE {condition} "
            f"ORDER BY arrived_at LIMIT {BATCH_ROWS}",
            values,
        ).fetchall()
        file.executemany("DELETE FROM records WHERE number = ?", oldest)
        file.executemany("DELETE FROM requests WHERE number = ?", oldest)
    return len(oldest)


def _give_back_pages(file: sqlite3.Connection) -> None:
    """Shorten the file by the pages that deleting freed."""
    # As a script, because this statement gives back one page a step, and `execute` makes one step.
    file.executescript("PRAGMA incremental_vacuum")


def _bytes_in_use(file: sqlite3.Connection) -> int:
    pages, free, size = (
        file.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
    )
    used: int = (pages - free) * size
    return used


def _bytes_on_disk(path: Path) -> int:
    return sum(part.stat().st_size for part in (path, Path(f"{path}-wal")) if part.exists())


def _fold_log(file: sqlite3.Connection) -> None:
    """Write the log into the file and empty it."""
    file.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
