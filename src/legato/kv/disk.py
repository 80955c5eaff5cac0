"""States of prefixes on disk, so that they survive a restart.

There is no list of the files: each file describes itself, and the folder is the list. A list would be a second truth,
which a kill, a full disk or a removed file can set against the first one. Here nothing can get out of step, and the
folder can be copied, thinned out or deleted by hand.

A file is written beside its place and renamed into it when all of it is on disk, so that its place holds the old state
or the new one, whole. Every byte of it is under a checksum.

    preamble    magic, format version, bytes of the header, number of tokens, digest of preamble, header and tokens
    header      msgpack: hash of the store's key, scope, bytes of the state, what prefilling it anew takes, when made
    tokens      int32 each
    state       in pieces of 1 MiB
    checksums   a CRC-32 for each piece, and a digest of them that only this preamble's digest can make

All numbers are little-endian.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import re
import stat
import struct
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import msgspec
import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from legato.core.tokens import Tokens
from legato.errors import LegatoError
from legato.files import sync_folder

FORMAT_VERSION: Final = 1
"""Version of the files. Those of another version are removed: their prompts are prefilled anew."""
PIECE_BYTES: Final = 1 << 20
"""Bytes of a state that are read or written at a time and share a checksum; part of the format."""

_MAGIC: Final = b"LEGATOKV"
_PREAMBLE: Final = struct.Struct("<8sIIQ")
_DIGEST_BYTES: Final = 16
_ENTRY: Final = ".kv"
_PIN: Final = ".pin"
_TEMPORARY: Final = ".tmp"
_LOCK: Final = ".lock"
_HASH: Final = re.compile(r"[0-9a-f]{32}")
# These say that the process has too much open, and nothing about the file.
_PASSING: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR})

logger = logging.getLogger(__name__)


class DamagedEntryError(LegatoError):
    """The state cannot be had from disk: its file is gone, damaged, or none of this store's."""


class DiskInUseError(LegatoError):
    """Another process keeps its states in the same place."""


@dataclass(frozen=True, slots=True, eq=False)
class DiskEntry:
    """A state on disk."""

    id: str
    """Hash of its scope and tokens, 32 hexadecimal digits."""
    scope: str
    """Whose it is; "" for everybody's."""
    tokens: Tokens
    """The prefix that it is the state of."""
    state_bytes: int
    file_bytes: int
    prefill_s: float
    """What prefilling the prefix anew takes, in seconds."""
    created_at: float
    """When it was written, in seconds since 1970."""
    used_at: float
    """When it was written or touched last, in seconds since 1970."""
    pinned: bool
    """Whether somebody wants it kept."""


def entry_id(scope: str, tokens: Tokens) -> str:
    """The id that the state of a prefix has on disk; its scope is "" for everybody's."""
    name = scope.encode()
    # With its length, so that no scope's end can pass for tokens.
    return _digest(struct.pack("<Q", len(name)), name, np.ascontiguousarray(tokens, "<i4").data).hex()


class DiskStore:
    """The states of one key on disk. All of it blocks.

    One thread may read while another one does the rest.

    Args:
        folder: Where the states of all keys lie. It is made if there is none.
        key: Names everything that a state depends on: weights, the library's build, KV types. States of one key are
            never seen under another.

    Raises:
        DiskInUseError: Another process has this folder and key.
        LegatoError: The folder cannot be made, or is none.
    """

    def __init__(self, folder: Path, key: str) -> None:
        self._root = folder
        self._key = _digest(key.encode()).hex()
        self._folder = folder / self._key
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._folder.mkdir(mode=0o700, exist_ok=True)
            # It may be an old one, made with other rights.
            self._folder.chmod(0o700)
            self._lock = _lock(self._folder)
            self._lock.acquire(timeout=0)
        except Timeout:
            raise DiskInUseError(
                f"Another process keeps its KV states in {self._folder}; stop that one, or give this another folder."
            ) from None
        except OSError as error:
            raise LegatoError(_sentence(error, folder)) from error

    def scan(self) -> list[DiskEntry]:
        """List the entries, the one that was used longest ago first, and remove every file that is none.

        Headers and tokens are read and checked, states are not. Not while an entry is being written: its temporary file
        would go too.

        Raises:
            OSError: The folder cannot be listed, or the process can open no more files.
        """
        entries: list[DiskEntry] = []
        pins: set[str] = set()
        bad = unfinished = 0
        for path in list(self._folder.iterdir()):
            if path.name == _LOCK:
                continue
            if path.suffix == _PIN and _HASH.fullmatch(path.stem):
                pins.add(path.stem)
            elif path.suffix == _TEMPORARY:
                unfinished += _discard(path)
            else:
                try:
                    entries.append(self._entry(path))
                except _DamageError:
                    bad += _discard(path)
        for orphan in pins - {entry.id for entry in entries}:
            _discard(self._folder / (orphan + _PIN))
        if bad or unfinished:
            logger.warning(
                "Removed from %s: %d damaged or foreign files, and %d that were not written to their end",
                self._folder,
                bad,
                unfinished,
            )
        return sorted(entries, key=lambda entry: entry.used_at)

    def write(
        self,
        scope: str,
        tokens: Tokens,
        state: NDArray[np.uint8],
        *,
        prefill_s: float,
        pause: Callable[[], None] = lambda: None,
    ) -> DiskEntry:
        """Write a state; it takes the place of an earlier one of the same scope and tokens, whose pin it keeps.

        Args:
            scope: Whose it is; "" for everybody's.
            tokens: The prefix, shape [n].
            state: Bytes, shape [m].
            prefill_s: What prefilling the prefix anew takes, in seconds.
            pause: Called between two pieces of 1 MiB. What it raises ends the writing.

        Raises:
            OSError: The disk is full or fails. No part of the new state stays.
        """
        tokens = np.array(tokens, "<i4")
        state = np.ascontiguousarray(state)
        name = entry_id(scope, tokens)
        descriptor, temporary = tempfile.mkstemp(suffix=_TEMPORARY, dir=self._folder)
        try:
            with os.fdopen(descriptor, "wb") as file:
                # The file system's clock, as for the time of use.
                header = _Header(self._key, scope, len(state), prefill_s, os.fstat(descriptor).st_mtime)
                packed = msgspec.msgpack.encode(header)
                preamble = _PREAMBLE.pack(_MAGIC, FORMAT_VERSION, len(packed), len(tokens))
                digest = _digest(preamble, packed, tokens.data)
                file.write(b"".join((preamble, digest, packed, tokens.data)))
                sums: list[int] = []
                for piece in _pieces(state, pause):
                    file.write(piece)
                    sums.append(zlib.crc32(piece))
                file.write(_trailer(sums, digest))
                file.flush()
                os.fsync(descriptor)
                status = os.fstat(descriptor)
            Path(temporary).replace(self._path(name))
            sync_folder(self._folder)
        except BaseException:
            with suppress(OSError):
                Path(temporary).unlink()
            raise
        return self._described(name, header, tokens, status)

    def read(self, entry_id: str) -> tuple[Tokens, NDArray[np.uint8]]:
        """Read an entry's tokens and state, all of it checked.

        Raises:
            DamagedEntryError: It is gone, or something was wrong with it; it is removed now.
            OSError: The process can open no more files, or get no more memory; the entry stays.
            ValueError: No entry can have this id.
        """
        try:
            with _opened(self._path(entry_id)) as file:
                header, tokens, digest = self._read_head(file, entry_id)
                state = np.empty(header.state_bytes, np.uint8)
                sums: list[int] = []
                for piece in _pieces(state):
                    if file.readinto(piece) < len(piece):
                        raise _DamageError("it is too short")
                    # Now, while the piece is in the processor's cache.
                    sums.append(zlib.crc32(piece))
                if _read(file, _trailer_bytes(len(state))) != _trailer(sums, digest):
                    raise _DamageError("its state fails its checksums")
        except _DamageError as damage:
            with suppress(OSError):
                self.remove(entry_id)
            raise DamagedEntryError(
                f"The state {entry_id} cannot be had from {self._folder} ({damage}); it has to be read anew."
            ) from None
        except MemoryError:
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)) from None
        return tokens, state

    def touch(self, entry_id: str) -> None:
        """Note that an entry is used now. Nothing happens if it is gone.

        Raises:
            OSError: The disk fails.
            ValueError: No entry can have this id.
        """
        with suppress(FileNotFoundError):
            os.utime(self._path(entry_id))

    def pin(self, entry_id: str, pinned: bool) -> None:
        """Note that an entry is to be kept, or no longer. Nothing happens if it is gone.

        Raises:
            OSError: The disk is full or fails.
            ValueError: No entry can have this id.
        """
        path = self._path(entry_id)
        if not path.exists():
            return
        if pinned:
            path.with_suffix(_PIN).touch(0o600)
        else:
            path.with_suffix(_PIN).unlink(missing_ok=True)
        sync_folder(self._folder)

    def remove(self, entry_id: str) -> None:
        """Remove an entry and its pin. Nothing happens if it is gone.

        Raises:
            OSError: The disk fails.
            ValueError: No entry can have this id.
        """
        path = self._path(entry_id)
        _remove(path)
        path.with_suffix(_PIN).unlink(missing_ok=True)

    def others_bytes(self) -> int:
        """Bytes of the files of all other keys."""
        return sum(file.bytes for file in self._other_files())

    def remove_oldest_other(self, bytes_needed: int) -> int:
        """Remove files of other keys, those that were used longest ago first and pinned ones last.

        Those of a key that another process has are left alone.

        Returns:
            The bytes that are free now: fewer than needed if there was no more to remove.
        """
        freed = 0
        in_use: set[Path] = set()
        for file in sorted(self._other_files()):
            if freed >= bytes_needed:
                break
            folder = file.path.parent
            if folder in in_use:
                continue
            try:
                # For each file anew, so that a process that starts with that key finds its folder free.
                with _lock(folder).acquire(timeout=0):
                    file.path.unlink()
                    file.path.with_suffix(_PIN).unlink(missing_ok=True)
                    freed += file.bytes
            except FileNotFoundError:
                pass
            except OSError:
                # The lock's Timeout too: another process has the folder.
                in_use.add(folder)
        return freed

    def close(self) -> None:
        """Let other processes have this folder and key."""
        self._lock.release()

    def _path(self, entry_id: str) -> Path:
        if not _HASH.fullmatch(entry_id):
            raise ValueError(f"{entry_id!r} is no id of an entry")
        return self._folder / (entry_id + _ENTRY)

    def _entry(self, path: Path) -> DiskEntry:
        if path.suffix != _ENTRY:
            raise _DamageError("its name is no entry's")
        with _opened(path) as file:
            header, tokens, _ = self._read_head(file, path.stem)
            status = os.fstat(file.fileno())
        return self._described(path.stem, header, tokens, status)

    def _described(self, name: str, header: _Header, tokens: Tokens, status: os.stat_result) -> DiskEntry:
        return DiskEntry(
            id=name,
            scope=header.scope,
            tokens=tokens,
            state_bytes=header.state_bytes,
            file_bytes=status.st_size,
            prefill_s=header.prefill_s,
            created_at=header.created_at,
            used_at=status.st_mtime,
            pinned=self._path(name).with_suffix(_PIN).exists(),
        )

    def _read_head(self, file: BufferedReader, name: str) -> tuple[_Header, Tokens, bytes]:
        """Read what stands before the state, and its digest; the state comes next in the file."""
        file_bytes = os.fstat(file.fileno()).st_size
        preamble = _read(file, _PREAMBLE.size)
        digest = _read(file, _DIGEST_BYTES)
        magic, version, header_bytes, token_count = _PREAMBLE.unpack(preamble)
        if magic != _MAGIC or version != FORMAT_VERSION:
            raise _DamageError("it is of another format")
        # Before anything of that size is asked for.
        if header_bytes + 4 * token_count > file_bytes:
            raise _DamageError("it is too short")
        packed = _read(file, header_bytes)
        tokens = np.frombuffer(_read(file, 4 * token_count), "<i4")
        if _digest(preamble, packed, tokens.data) != digest:
            raise _DamageError("its header fails its checksum")
        try:
            header = msgspec.msgpack.decode(packed, type=_Header)
        except (msgspec.MsgspecError, UnicodeError):
            # Which of the two it is for text that is no UTF-8 depends on msgspec's version.
            raise _DamageError("its header is none") from None
        if header.key != self._key:
            raise _DamageError("it is another key's")
        if entry_id(header.scope, tokens) != name:
            raise _DamageError("its name is another entry's")
        if file_bytes != file.tell() + header.state_bytes + _trailer_bytes(header.state_bytes):
            raise _DamageError("it has the wrong size")
        return header, tokens, digest

    def _other_files(self) -> Iterator[_OtherFile]:
        # Other processes work in there: whatever vanishes, or may not be looked at, is none of ours.
        for folder in _listed(self._root):
            if folder == self._folder or not _HASH.fullmatch(folder.name) or folder.is_symlink():
                continue
            paths = set(_listed(folder))
            for path in paths:
                if path.name == _LOCK or (path.suffix == _PIN and path.with_suffix(_ENTRY) in paths):
                    continue
                with suppress(OSError):
                    status = path.lstat()
                    if stat.S_ISREG(status.st_mode):
                        pinned = path.suffix == _ENTRY and path.with_suffix(_PIN) in paths
                        yield _OtherFile(pinned, status.st_mtime, status.st_size, path)


class _DamageError(Exception):
    """What is wrong with a file."""


class _Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a file says about itself."""

    key: str
    scope: str
    state_bytes: Annotated[int, msgspec.Meta(ge=0)]
    prefill_s: float = msgspec.field(name="reading_s")
    created_at: float


class _OtherFile(NamedTuple):
    """A file of another key; the one to remove first is the least."""

    pinned: bool
    used_at: float
    bytes: int
    path: Path


def _lock(folder: Path) -> FileLock:
    # Not bound to a thread: the one that closes a store need not be the one that opened it.
    return FileLock(folder / _LOCK, mode=0o600, thread_local=False)


def _digest(*parts: bytes | memoryview, key: bytes = b"") -> bytes:
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES, key=key)
    for part in parts:
        digest.update(part)
    return digest.digest()


def _pieces(state: NDArray[np.uint8], pause: Callable[[], None] = lambda: None) -> Iterator[memoryview]:
    for start in range(0, len(state), PIECE_BYTES):
        if start:
            pause()
        yield state[start : start + PIECE_BYTES].data


def _trailer(sums: list[int], digest: bytes) -> bytes:
    packed = np.array(sums, "<u4").tobytes()
    # The head's digest is the key, so that the end of one file does not fit the beginning of another.
    return packed + _digest(packed, key=digest)


def _trailer_bytes(state_bytes: int) -> int:
    return 4 * -(-state_bytes // PIECE_BYTES) + _DIGEST_BYTES


@contextmanager
def _opened(path: Path) -> Iterator[BufferedReader]:
    """A regular file, open for reading."""
    try:
        # No link leads out of the folder, and no pipe makes us wait.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK)) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise _DamageError("it is no file")
            yield file
    except OSError as error:
        if error.errno in _PASSING:
            raise
        raise _DamageError(_reason(error)) from None


def _read(file: BufferedReader, count: int) -> bytes:
    data = file.read(count)
    if len(data) < count:
        raise _DamageError("it is too short")
    return data


def _remove(path: Path) -> None:
    """Remove a file if it is there; a folder too, if it is empty."""
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    else:
        path.unlink(missing_ok=True)


def _discard(path: Path) -> bool:
    """Remove what is no entry; False if that cannot be done."""
    try:
        _remove(path)
    except OSError:
        return False
    return True


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def _sentence(error: OSError, folder: Path) -> str:
    if isinstance(error, (FileExistsError, NotADirectoryError)):
        return f"KV states cannot be kept in {folder}: it is no folder, or lies in none; give the path of a folder."
    return f"KV states cannot be kept in {folder} ({_reason(error)}); give a folder that can be written to."
