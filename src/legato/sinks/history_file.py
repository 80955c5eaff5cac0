"""The SQLite file of the history: its tables, how it is opened, asked and pruned. All of it blocks."""

from __future__ import annotations

import os
import sqlite3
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from legato.telemetry.record import RequestRecord
from legato.telemetry.summary import Cursor, RequestSummary

VERSION = 2
"""Version of the file's tables, and of the records in it. A file of another version is set aside.

A field may be added to `RequestRecord` without a new one, if it has a default.
"""


BATCH_ROWS = 200
"""Rows of one transaction at most, so that the write-ahead log stays small and a reader never waits long."""
LOG_PAGES = 256
"""Pages of the write-ahead log after which it is folded into the file: about 1 MiB."""
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

COLUMNS = ", ".join(f'"{name}"' for name in RequestSummary.__struct_fields__)
INSERT_REQUEST = f"INSERT INTO requests ({COLUMNS}) VALUES ({', '.join('?' * len(RequestSummary.__struct_fields__))})"


@dataclass(frozen=True, slots=True)
class Filter:
    """A condition on the rows, and the index that finds them."""

    index: str
    condition: str
    values: tuple[object, ...]
    in_order: bool
    """Whether that index gives its rows in the order of the list."""


EVERYTHING = Filter("by_arrival", "1", (), in_order=True)


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
    instants_ms: list[float] = (np.cumsum(np.asarray(steps, dtype=np.int64)) / 1000).tolist()
    return msgspec.structs.replace(record, token_ms=instants_ms)


def conditions_of(
    client: str | None, model: str | None, end: str | None, text: str | None, slower_than_ms: float | None
) -> list[Filter]:
    """What a list is asked for, as conditions on its rows."""
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


def select(file: sqlite3.Connection, filters: list[Filter], before: Cursor | None, limit: int) -> list[Any]:
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


def connect(path: Path) -> sqlite3.Connection:
    """The file, as it is."""
    file = sqlite3.connect(path, timeout=5.0, check_same_thread=False)
    # Safe against a killed process; only a power cut may lose the latest records, never the file.
    file.execute("PRAGMA synchronous = NORMAL")
    return file


def prepared(path: Path) -> sqlite3.Connection:
    """The file with its tables.

    Raises:
        UnusableFileError: It is something else.
        sqlite3.Error: It is damaged, or cannot be written.
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


def is_damage(error: sqlite3.Error) -> bool:
    """Whether an error says that the file is damaged, and not, say, that the disk is full."""
    # The low byte is the kind; the rest says more about it.
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def free_name(path: Path) -> Path:
    """A name beside a file's own to set it aside under."""
    number = 1
    while (aside := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    return aside


def delete_oldest(file: sqlite3.Connection, condition: str, values: tuple[object, ...]) -> int:
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


def give_back_pages(file: sqlite3.Connection) -> None:
    """Shorten the file by the pages that deleting freed."""
    # As a script, because this statement gives back one page a step, and `execute` makes one step.
    file.executescript("PRAGMA incremental_vacuum")


def bytes_in_use(file: sqlite3.Connection) -> int:
    """Of the pages that hold something."""
    pages, free, size = (
        file.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
    )
    used: int = (pages - free) * size
    return used


def bytes_on_disk(path: Path) -> int:
    """Of the file and its write-ahead log."""
    return sum(part.stat().st_size for part in (path, Path(f"{path}-wal")) if part.exists())


def fold_log(file: sqlite3.Connection) -> None:
    """Write the log into the file and empty it."""
    file.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
