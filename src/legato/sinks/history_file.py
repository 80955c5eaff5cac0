"""The SQLite file of the history: its tables, how it is opened, written, asked and pruned. All of it blocks."""

from __future__ import annotations

import os
import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from legato.telemetry.record import RequestRecord
from legato.telemetry.summary import Cursor, RequestSummary

VERSION = 2
"""Version of the file's tables, and of the records in it. A file of another version is set aside.

The list's columns are the fields of `RequestSummary`: other fields are another version. A field may be added to
`RequestRecord` without a new one, if it has a default.
"""
BATCH_ROWS = 200
"""Rows of one transaction at most, so that the write-ahead log stays small and a reader never waits long."""
ROOM = 0.9
"""Part of the size limit that pruning leaves in use, so that it has not to prune at every write."""
LOG_PAGES = 256
"""Pages of the write-ahead log after which it is folded into the file: about 1 MiB."""
RARE_ROWS = 5_000
"""A filter that lets no more rows through than this is rare: its rows are read and sorted, not looked for."""

COLUMN_TYPES: dict[object, str] = {
    str: "TEXT NOT NULL",
    str | None: "TEXT",
    int: "INTEGER NOT NULL",
    float: "REAL NOT NULL",
    float | None: "REAL",
}
FIELDS = msgspec.structs.fields(RequestSummary)
COLUMNS = ", ".join(f'"{field.name}"' for field in FIELDS)
INSERT_REQUEST = f"INSERT INTO requests ({COLUMNS}) VALUES ({', '.join('?' * len(FIELDS))})"
TABLES = f"""
CREATE TABLE requests (
    number INTEGER PRIMARY KEY, {", ".join(f'"{field.name}" {COLUMN_TYPES[field.type]}' for field in FIELDS)}
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


@dataclass(frozen=True, slots=True)
class Filter:
    """A condition on the rows, and the index that finds them."""

    index: str
    condition: str
    values: tuple[object, ...]
    in_order: bool
    """Whether that index gives its rows in the order of the list."""


class UnusableFileError(Exception):
    """A file that is damaged, or not this version's history; the text goes on after the file's name."""


@contextmanager
def telling_damage() -> Iterator[None]:
    """Tells a damaged file from other troubles, such as a full disk.

    Raises:
        UnusableFileError: What was done met damage.
    """
    try:
        yield
    except sqlite3.DatabaseError as error:
        # The low byte is the kind; the rest says more about it.
        code = getattr(error, "sqlite_errorcode", 0)
        if code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            raise UnusableFileError("is damaged") from error
        raise


def pack(record: RequestRecord) -> bytes:
    """A record as it is kept: compressed, with the instants of its tokens as differences in whole microseconds."""
    instants = np.rint(np.asarray(record.token_ms, dtype=np.float64) * 1000).astype(np.int64)
    steps: list[int] = np.diff(instants, prepend=np.int64(0)).tolist()
    return zlib.compress(msgspec.msgpack.encode((msgspec.structs.replace(record, token_ms=[]), steps)), 3)


def unpack(packed: bytes) -> RequestRecord:
    """The record that `pack` was given, with its tokens' instants rounded to a microsecond."""
    record, steps = msgspec.msgpack.decode(zlib.decompress(packed), type=tuple[RequestRecord, list[int]])
    instants_ms: list[float] = (np.cumsum(np.asarray(steps, dtype=np.int64)) / 1000).tolist()
    return msgspec.structs.replace(record, token_ms=instants_ms)


def filters_of(
    client: str | None, model: str | None, end: str | None, text: str | None, slower_than_ms: float | None
) -> list[Filter]:
    """What a list is asked for."""
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


def insert(file: sqlite3.Connection, record: RequestRecord) -> int:
    """Add a record, in the transaction that is open or to a new one; how many bytes it takes, about."""
    packed = pack(record)
    row = file.execute(INSERT_REQUEST, msgspec.structs.astuple(RequestSummary.of(record)))
    file.execute("INSERT INTO records VALUES (?, ?)", (row.lastrowid, packed))
    return len(packed)


def packed_record(file: sqlite3.Connection, id: str) -> list[Any]:  # noqa: A002 - what it is
    """One row with what `pack` made of the latest record of that id, or none."""
    latest = "SELECT max(number) FROM requests WHERE id = ?"
    return file.execute(f"SELECT packed FROM records WHERE number = ({latest})", (id,)).fetchall()


def select(file: sqlite3.Connection, filters: list[Filter], before: Cursor | None, limit: int) -> list[Any]:
    """Rows with their number, newest first, from the index that has to look at the fewest."""
    wanted = [(f.condition, f.values) for f in filters]
    if before is not None:
        wanted.append(("(arrived_at, number) < (?, ?)", (before.arrived_at, before.number)))
    return file.execute(
        f"SELECT number, {COLUMNS} FROM requests INDEXED BY {_best_index(file, filters)} "
        f"WHERE {' AND '.join(condition for condition, _ in wanted) or '1'} "
        "ORDER BY arrived_at DESC, number DESC LIMIT ?",
        (*chain.from_iterable(values for _, values in wanted), limit),
    ).fetchall()


def _best_index(file: sqlite3.Connection, filters: list[Filter]) -> str:
    """The index of the rarest condition; if none is rare, one in the list's order, which soon fills a page."""
    rows = {f: _count(file, f) for f in filters}
    rarest = min(filters, key=rows.__getitem__, default=None)
    if rarest is not None and rows[rarest] < RARE_ROWS:
        return rarest.index
    return next((f.index for f in filters if f.in_order), "by_arrival")


def _count(file: sqlite3.Connection, wanted: Filter) -> int:
    """Rows that a filter lets through, counted no further than to `RARE_ROWS`."""
    rows = f"SELECT 1 FROM requests INDEXED BY {wanted.index} WHERE {wanted.condition} LIMIT {RARE_ROWS}"
    return _number(file, f"SELECT count(*) FROM ({rows})", wanted.values)


def _number(file: sqlite3.Connection, question: str, values: tuple[object, ...] = ()) -> int:
    """The answer to a question that has one number as its answer."""
    number: int = file.execute(question, values).fetchone()[0]
    return number


def connect(path: Path) -> sqlite3.Connection:
    """The file, as it is."""
    file = sqlite3.connect(path, timeout=5.0)
    # Safe against a killed process; only a power cut may lose the latest records, never the file.
    file.execute("PRAGMA synchronous = NORMAL")
    return file


@telling_damage()
def prepared(path: Path) -> sqlite3.Connection:
    """The file with its tables.

    Raises:
        UnusableFileError: It is something else, or damaged.
        sqlite3.Error: It cannot be written.
        OSError: It cannot be made.
    """
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    path.chmod(0o600)
    file = connect(path)
    try:
        _check_or_create(file)
    except BaseException:
        file.close()
        raise
    return file


def _check_or_create(file: sqlite3.Connection) -> None:
    version = _number(file, "PRAGMA user_version")
    empty = _number(file, "SELECT count(*) FROM sqlite_schema") == 0
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


def set_aside(path: Path) -> Path:
    """Give the file and its log another name beside its own, which is returned."""
    names = (path.with_name(f"{path.name}.damaged-{number}") for number in count(1))
    aside = next(name for name in names if not name.exists())
    for suffix in ("", "-wal", "-shm"):
        part = Path(f"{path}{suffix}")
        if part.exists():
            part.rename(f"{aside}{suffix}")
    return aside


def prune(file: sqlite3.Connection, path: Path, *, oldest: float | None, max_bytes: int | None) -> None:
    """Delete what arrived before `oldest` (Unix time, s), then the oldest until file and log fit in `max_bytes`."""
    if oldest is not None:
        while _delete_oldest(file, "arrived_at < ?", oldest):
            pass
    if max_bytes is None or _bytes_on_disk(path) <= max_bytes:
        return
    fold_log(file)
    if _bytes_on_disk(path) <= max_bytes:
        return
    pragmas = "pragma_page_count, pragma_freelist_count, pragma_page_size"
    used = f"SELECT (page_count - freelist_count) * page_size FROM {pragmas}"
    while _number(file, used) > max_bytes * ROOM and _delete_oldest(file, "1"):
        pass
    fold_log(file)


def _delete_oldest(file: sqlite3.Connection, condition: str, *values: object) -> int:
    """Delete a small batch of the oldest rows that meet a condition, and shorten the file; how many there were."""
    with file:
        oldest = file.execute(
            f"SELECT number FROM requests INDEXED BY by_arrival WHERE {condition} "
            f"ORDER BY arrived_at LIMIT {BATCH_ROWS}",
            values,
        ).fetchall()
        file.executemany("DELETE FROM records WHERE number = ?", oldest)
        file.executemany("DELETE FROM requests WHERE number = ?", oldest)
    if oldest:
        # As a script, because this statement gives back one page a step, and `execute` makes one step.
        file.executescript("PRAGMA incremental_vacuum")
    return len(oldest)


def _bytes_on_disk(path: Path) -> int:
    """Of the file and its write-ahead log."""
    return sum(part.stat().st_size for part in (path, Path(f"{path}-wal")) if part.exists())


def fold_log(file: sqlite3.Connection) -> None:
    """Write the log into the file and empty it."""
    file.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
