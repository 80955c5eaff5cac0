"""States on disk: what is written comes back exactly, and what does not come back exactly does not come back."""

from __future__ import annotations

import errno
import hashlib
import io
import logging
import os
import random
import resource
import shutil
import stat
import struct
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from legato.core.tokens import Tokens
from legato.errors import LegatoError
from legato.kv import disk
from legato.kv.disk import (
    FORMAT_VERSION,
    PIECE_BYTES,
    DamagedEntryError,
    DiskEntry,
    DiskInUseError,
    DiskStore,
    entry_id,
)
from tests.kv.disk_writer import KEY, PREFIXES, prefix, state_of

ROOT = Path(__file__).parents[2]
KILLS = int(os.environ.get("LEGATO_TEST_KILLS", "20"))
"""Writers that are killed in one run."""
DAMAGES = 1000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "states"


@pytest.fixture
def store(folder: Path) -> Iterator[DiskStore]:
    with closing(DiskStore(folder, "a key")) as opened:
        yield opened


def tokens_of(seed: int, count: int = 50) -> Tokens:
    return np.random.default_rng(seed).integers(-(2**31), 2**31, count, dtype=np.int32)


def bytes_of(seed: int, count: int = 1000) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, count, dtype=np.uint8)


def write(store: DiskStore, seed: int = 1, *, scope: str = "", state_bytes: int = 1000) -> DiskEntry:
    return store.write(scope, tokens_of(seed), bytes_of(seed, state_bytes), prefill_s=1.5)


def file_of(folder: Path, entry: DiskEntry) -> Path:
    (path,) = folder.glob(f"*/{entry.id}.kv")
    return path


def place(folder: Path, key: str) -> Path:
    """Where the entries of a key lie."""
    return folder / hashlib.blake2b(key.encode(), digest_size=16).hexdigest()


def files_in(folder: Path) -> list[str]:
    """Names of all files but locks."""
    return sorted(path.name for path in folder.rglob("*") if not path.is_dir() and path.name != ".lock")


def fields(entry: DiskEntry) -> tuple[object, ...]:
    return tuple(
        value.tolist() if isinstance(value, np.ndarray) else value
        for value in (getattr(entry, name) for name in DiskEntry.__slots__)
    )


def opening(kind: type[io.FileIO]) -> Callable[..., Any]:
    """`open`, with files of that kind below the buffer."""

    def opened(file: Any, mode: str, **more: Any) -> Any:
        raw = kind(file, mode, **more)
        return io.BufferedReader(raw) if mode == "rb" else io.BufferedWriter(raw)

    return opened


@pytest.mark.parametrize("state_bytes", [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES + 5])
@pytest.mark.parametrize(("scope", "token_count"), [("", 0), ("", 1), ("Zoë's", 4000)])
def test_what_is_written_comes_back(store: DiskStore, scope: str, token_count: int, state_bytes: int) -> None:
    tokens, state = tokens_of(3, token_count), bytes_of(4, state_bytes)
    entry = store.write(scope, tokens, state, prefill_s=2.5)
    read_tokens, read_state = store.read(entry.id)
    assert (read_tokens.dtype.name, read_state.dtype.name) == ("int32", "uint8")
    assert entry.id == entry_id(scope, tokens)
    assert read_tokens.tobytes() == tokens.tobytes()
    assert read_state.tobytes() == state.tobytes()


def test_calls_that_move_less_than_they_are_given_are_repeated(
    store: DiskStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow(io.FileIO):
        def write(self, data: Any) -> int:
            return super().write(memoryview(data)[:100_001])

        def readinto(self, buffer: Any) -> int:
            return super().readinto(memoryview(buffer)[:70_001])

    monkeypatch.setattr(disk, "open", opening(Slow), raising=False)
    monkeypatch.setattr(os, "fdopen", opening(Slow))
    state = bytes_of(1, 2 * PIECE_BYTES + 1)
    assert store.read(store.write("", tokens_of(1, 50_000), state, prefill_s=1.0).id)[1].tobytes() == state.tobytes()


def test_a_slice_of_another_array_comes_back(store: DiskStore) -> None:
    tokens, state = tokens_of(1, 100)[::2], bytes_of(1, 3 * PIECE_BYTES)[::2]
    entry = store.write("", tokens, state, prefill_s=1.0)
    assert entry.id == entry_id("", tokens) == entry_id("", tokens.copy())
    read_tokens, read_state = store.read(entry.id)
    assert np.array_equal(read_tokens, tokens)
    assert np.array_equal(read_state, state)


def test_a_scan_says_what_writing_said(folder: Path, store: DiskStore) -> None:
    entries = [write(store, seed, scope=scope) for seed, scope in ((1, ""), (2, "Ann"))]
    for age_s, entry in zip((20, 10), entries, strict=True):
        os.utime(file_of(folder, entry), (entry.used_at - age_s, entry.used_at - age_s))
    listed = store.scan()
    assert [entry.id for entry in listed] == [entry.id for entry in entries]
    for found, entry, seed, scope, age_s in zip(listed, entries, (1, 2), ("", "Ann"), (20, 10), strict=True):
        path = file_of(folder, entry)
        assert (found.scope, found.state_bytes, found.prefill_s, found.pinned) == (scope, 1000, 1.5, False)
        assert found.tokens.tolist() == tokens_of(seed).tolist()
        assert found.file_bytes == entry.file_bytes == path.stat().st_size
        assert found.created_at == entry.created_at <= entry.used_at
        assert found.used_at == path.stat().st_mtime == pytest.approx(entry.used_at - age_s)


def test_a_scan_begins_with_what_was_used_longest_ago(folder: Path, store: DiskStore) -> None:
    entries = [write(store, seed) for seed in range(8)]
    for age_s, entry in enumerate(entries):
        os.utime(file_of(folder, entry), (1000 - age_s, 1000 - age_s))
    assert [entry.id for entry in store.scan()] == [entry.id for entry in reversed(entries)]


def test_an_entry_is_the_same_before_and_after(folder: Path) -> None:
    with closing(DiskStore(folder, "a key")) as store:
        written = write(store)
    with closing(DiskStore(folder, "a key")) as store:
        (found,) = store.scan()
        assert fields(found) == fields(written)
        assert store.read(found.id)[1].tolist() == bytes_of(1).tolist()


def test_the_same_prefix_replaces_its_file(folder: Path, store: DiskStore) -> None:
    first = store.write("", tokens_of(1), bytes_of(1, 5000), prefill_s=1.0)
    store.pin(first.id, True)
    second = store.write("", tokens_of(1), bytes_of(2, 70), prefill_s=2.0)
    assert second.id == first.id
    assert second.pinned
    assert files_in(folder) == [f"{first.id}.kv", f"{first.id}.pin"]
    assert [entry.prefill_s for entry in store.scan()] == [2.0]
    assert store.read(first.id)[1].tolist() == bytes_of(2, 70).tolist()


def test_scopes_have_entries_of_their_own(store: DiskStore) -> None:
    ids = [store.write(scope, tokens_of(1), bytes_of(seed), prefill_s=1.0).id for seed, scope in ((1, ""), (2, "Ann"))]
    assert len(set(ids)) == 2
    assert [store.read(name)[1].tolist() for name in ids] == [bytes_of(1).tolist(), bytes_of(2).tolist()]


def test_no_end_of_a_scope_passes_for_tokens(store: DiskStore) -> None:
    tokens = np.frombuffer(b"abcdefgh", np.int32)
    ids = [store.write(*case, bytes_of(1), prefill_s=1.0).id for case in (("", tokens), ("abcd", tokens[1:]))]
    assert len(set(ids)) == 2


def test_pins_and_use_survive_reopening(folder: Path) -> None:
    with closing(DiskStore(folder, "a key")) as store:
        entries = [write(store, seed) for seed in (1, 2, 3)]
        for entry in entries:
            os.utime(file_of(folder, entry), (1000.0, 1000.0))
        store.pin(entries[0].id, True)
        store.pin(entries[1].id, True)
        store.pin(entries[1].id, False)
        store.touch(entries[2].id)
    with closing(DiskStore(folder, "a key")) as store:
        found = {entry.id: entry for entry in store.scan()}
    assert [found[entry.id].pinned for entry in entries] == [True, False, False]
    assert [found[entry.id].used_at == 1000.0 for entry in entries] == [True, True, False]
    assert found[entries[2].id].used_at >= entries[2].created_at


def test_only_the_owner_can_read_any_of_it(folder: Path) -> None:
    before = os.umask(0)
    try:
        with closing(DiskStore(folder, "a key")) as store:
            store.pin(write(store).id, True)
    finally:
        os.umask(before)
    rights = {path.suffix or path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.glob("*/*")}
    assert rights == {".kv": 0o600, ".pin": 0o600, ".lock": 0o600}
    assert [stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.iterdir())] == [0o700, 0o700]


def test_a_folder_that_others_could_read_is_closed_to_them(folder: Path) -> None:
    DiskStore(folder, "a key").close()
    (inner,) = folder.iterdir()
    inner.chmod(0o755)
    DiskStore(folder, "a key").close()
    assert stat.S_IMODE(inner.stat().st_mode) == 0o700


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def made_text(path: Path) -> None:
    path.write_text("Buy milk. " * 100)


def made_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def made_a_link(path: Path) -> None:
    path.rename(path.parent.parent / "elsewhere")
    path.symlink_to(path.parent.parent / "elsewhere")


def made_a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def of_another_version(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[8:12] = struct.pack("<I", FORMAT_VERSION + 1)
    path.write_bytes(data)


def of_another_key(path: Path) -> None:
    with closing(DiskStore(path.parent.parent.parent / "another", "another key")) as other:
        entry = write(other)
        shutil.copy(file_of(path.parent.parent.parent / "another", entry), path)


def of_another_prefix(path: Path) -> None:
    with closing(DiskStore(path.parent.parent.parent / "another", "a key")) as other:
        entry = write(other, 2)
        shutil.copy(file_of(path.parent.parent.parent / "another", entry), path)


SPOILED = [
    emptied,
    made_text,
    made_a_folder,
    made_a_link,
    made_a_pipe,
    of_another_version,
    of_another_key,
    of_another_prefix,
]


@pytest.mark.parametrize("spoil", SPOILED)
def test_what_is_no_entry_is_no_answer(folder: Path, store: DiskStore, spoil: Callable[[Path], None]) -> None:
    entry = write(store)
    path = file_of(folder, entry)
    spoil(path)
    with pytest.raises(DamagedEntryError, match=rf"The state {entry.id} cannot be had .*; it has to be read anew\."):
        store.read(entry.id)
    assert not os.path.lexists(path)
    assert store.scan() == []


@pytest.mark.parametrize("spoil", SPOILED)
def test_a_scan_removes_what_is_no_entry(
    folder: Path, store: DiskStore, spoil: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    good, bad = write(store, 7), write(store)
    store.pin(bad.id, True)
    path = file_of(folder, bad)
    spoil(path)
    assert [entry.id for entry in store.scan()] == [good.id]
    assert not os.path.lexists(path)
    assert not path.with_suffix(".pin").exists()
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "1 damaged or foreign files, and 0 that" in caplog.text
    caplog.clear()
    store.scan()
    assert not caplog.records


def test_a_folder_with_something_in_it_is_left_alone(folder: Path, store: DiskStore) -> None:
    entry = write(store)
    path = file_of(folder, entry)
    made_a_folder(path)
    (path / "letter").write_text("mine")
    assert store.scan() == []
    with pytest.raises(DamagedEntryError):
        store.read(entry.id)
    assert (path / "letter").read_text() == "mine"


def test_strange_files_and_those_of_killed_writers_go(
    folder: Path, store: DiskStore, caplog: pytest.LogCaptureFixture
) -> None:
    entry = write(store)
    (inner,) = folder.iterdir()
    for name in (
        "x1.tmp",
        f"{entry.id}.tmp",
        "notes.txt",
        "x.kv",
        "x.pin",
        f"{'0' * 32}.pin",
        f"{entry.id.upper()}.kv",
    ):
        (inner / name).write_bytes(file_of(folder, entry).read_bytes())
    assert [found.id for found in store.scan()] == [entry.id]
    assert files_in(folder) == [f"{entry.id}.kv"]
    assert "4 damaged or foreign files, and 2 that" in caplog.text


HEADER: dict[str, object] = {
    "key": place(Path(), "a key").name,
    "scope": "",
    "state_bytes": 3,
    "reading_s": 1.0,
    "created_at": 2.0,
}


def made_by_hand(
    header: bytes,
    *,
    magic: bytes = b"LEGATOKV",
    version: int = FORMAT_VERSION,
    token_count: int = 0,
    header_bytes: int | None = None,
) -> bytes:
    """A file whose checksums are right, whatever it says. Its state is b"abc"."""
    header_bytes = len(header) if header_bytes is None else header_bytes
    head = struct.pack("<8sIIQ", magic, version, header_bytes, token_count)
    digest = hashlib.blake2b(head + header, digest_size=16).digest()
    sums = struct.pack("<I", zlib.crc32(b"abc"))
    return head + digest + header + b"abc" + sums + hashlib.blake2b(sums, key=digest, digest_size=16).digest()


def test_a_file_made_by_hand_is_read(folder: Path, store: DiskStore) -> None:
    entry = store.write("", tokens_of(1, 0), bytes_of(1), prefill_s=5.0)
    file_of(folder, entry).write_bytes(made_by_hand(msgspec.msgpack.encode(HEADER)))
    assert [(found.prefill_s, found.created_at) for found in store.scan()] == [(1.0, 2.0)]
    assert store.read(entry.id)[1].tobytes() == b"abc"


@pytest.mark.parametrize(
    "data",
    [
        made_by_hand(msgspec.msgpack.encode(HEADER), magic=b"LEGATOXY"),
        made_by_hand(msgspec.msgpack.encode(HEADER), version=FORMAT_VERSION - 1),
        made_by_hand(msgspec.msgpack.encode(HEADER), version=FORMAT_VERSION + 1),
        made_by_hand(msgspec.msgpack.encode({**HEADER, "state_bytes": -1})),
        # Of the very size that it says.
        made_by_hand(msgspec.msgpack.encode({**HEADER, "state_bytes": -5}))[:-12],
        made_by_hand(msgspec.msgpack.encode({**HEADER, "state_bytes": 2})),
        made_by_hand(msgspec.msgpack.encode({**HEADER, "state_bytes": 2**40})),
        made_by_hand(msgspec.msgpack.encode({**HEADER, "state_bytes": 2**64 - 1})),
        made_by_hand(msgspec.msgpack.encode({**HEADER, "reading_s": "long"})),
        made_by_hand(msgspec.msgpack.encode({**HEADER, "more": 1})),
        made_by_hand(msgspec.msgpack.encode({"scope": ""})),
        made_by_hand(msgspec.msgpack.encode(HEADER).replace(b"scope", b"\xff" * 5)),
        made_by_hand(msgspec.msgpack.encode({**HEADER, "scope": "Ann"}).replace(b"Ann", b"\xff" * 3)),
        made_by_hand(b"\x81\xa1a" + b"\x91" * 100_000 + b"\xc0"),
        made_by_hand(b"\xc1"),
        made_by_hand(b""),
        made_by_hand(b"", token_count=2**62),
        made_by_hand(b"", token_count=2**64 - 1),
        made_by_hand(b"", header_bytes=2**32 - 1),
    ],
    ids=range(19),
)
def test_a_header_that_lies_costs_neither_memory_nor_a_crash(folder: Path, store: DiskStore, data: bytes) -> None:
    path = file_of(folder, store.write("", tokens_of(1, 0), bytes_of(1), prefill_s=1.0))
    path.write_bytes(data)
    assert store.scan() == []
    assert not path.exists()
    path.write_bytes(data)
    with pytest.raises(DamagedEntryError):
        store.read(path.stem)
    assert not path.exists()


def test_a_file_that_is_larger_than_it_says_is_damaged(folder: Path, store: DiskStore) -> None:
    entry = write(store)
    os.truncate(file_of(folder, entry), 2**40)
    assert store.scan() == []
    assert files_in(folder) == []


def flipped(data: bytearray, rng: random.Random) -> None:
    for _ in range(rng.choice((1, 1, 2, 20))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def truncated(data: bytearray, rng: random.Random) -> None:
    del data[rng.randrange(len(data)) :]


def appended(data: bytearray, rng: random.Random) -> None:
    data += rng.randbytes(rng.randrange(1, 300))


def zeroed(data: bytearray, rng: random.Random) -> None:
    start = rng.randrange(len(data))
    count = min(rng.randrange(1, 300), len(data) - start)
    data[start : start + count] = bytes(count)


def cut_out(data: bytearray, rng: random.Random) -> None:
    start = rng.randrange(len(data))
    del data[start : start + rng.randrange(1, 300)]


def swapped(data: bytearray, rng: random.Random) -> None:
    size = min(rng.choice((1, 4, 256)), len(data) // 2)
    a, b = (rng.randrange(len(data) - size) for _ in range(2))
    data[a : a + size], data[b : b + size] = data[b : b + size], data[a : a + size]


def test_no_damage_is_ever_an_answer(folder: Path, store: DiskStore, monkeypatch: pytest.MonkeyPatch) -> None:
    # Small pieces, so that a small file has several.
    monkeypatch.setattr(disk, "PIECE_BYTES", 256)
    rng = random.Random(5)
    originals: list[tuple[DiskEntry, bytes, NDArray[np.uint8]]] = []
    for seed, state_bytes in enumerate((0, 1, 255, 256, 257, 1000, 3000)):
        state = bytes_of(seed, state_bytes)
        # As in real states, where some damage changes nothing.
        state[: state_bytes // 2] = 0
        entry = store.write("Ann", tokens_of(seed, 1 + 10 * seed), state, prefill_s=1.0)
        originals.append((entry, file_of(folder, entry).read_bytes(), state))
    outcomes = {"refused by the scan": 0, "refused when read": 0, "unharmed": 0}
    for number in range(DAMAGES):
        entry, original, state = originals[number % len(originals)]
        data = bytearray(original)
        rng.choice((flipped, truncated, appended, zeroed, cut_out, swapped))(data, rng)
        path = place(folder, "a key") / f"{entry.id}.kv"
        path.write_bytes(data)
        if number % 2 and entry.id not in {found.id for found in store.scan()}:
            outcomes["refused by the scan"] += 1
            assert data != original
            assert not path.exists()
            continue
        try:
            tokens, read = store.read(entry.id)
        except DamagedEntryError:
            outcomes["refused when read"] += 1
            assert data != original
            assert not path.exists()
        else:
            outcomes["unharmed"] += 1
            assert tokens.tobytes() == entry.tokens.tobytes()
            assert read.tobytes() == state.tobytes()
            assert data == original
    assert sum(outcomes.values()) == DAMAGES
    assert min(outcomes.values()) > 0, outcomes


def test_every_single_bit_counts(folder: Path, store: DiskStore) -> None:
    entry = store.write("Ann", tokens_of(1, 3), bytes_of(1, 20), prefill_s=1.0)
    path = file_of(folder, entry)
    original = path.read_bytes()
    for bit in range(8 * len(original)):
        data = bytearray(original)
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        with pytest.raises(DamagedEntryError):
            store.read(entry.id)
    path.write_bytes(original)
    assert store.read(entry.id)[1].tolist() == bytes_of(1, 20).tolist()


def test_two_good_halves_are_no_whole(folder: Path, store: DiskStore) -> None:
    entry = store.write("", tokens_of(1), bytes_of(1), prefill_s=1.0)
    first = file_of(folder, entry).read_bytes()
    store.write("", tokens_of(1), bytes_of(2), prefill_s=2.0)
    second = file_of(folder, entry).read_bytes()
    tail = 1000 + 4 + 16
    file_of(folder, entry).write_bytes(first[:-tail] + second[-tail:])
    with pytest.raises(DamagedEntryError):
        store.read(entry.id)


@pytest.mark.parametrize("room", [0, 100, PIECE_BYTES + PIECE_BYTES // 2, 3 * PIECE_BYTES])
def test_a_full_disk_leaves_the_old_state_and_nothing_of_the_new(folder: Path, store: DiskStore, room: int) -> None:
    entry = write(store)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            store.write("", entry.tokens, bytes_of(2, 3 * PIECE_BYTES), prefill_s=1.0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert files_in(folder) == [f"{entry.id}.kv"]
    assert store.read(entry.id)[1].tolist() == bytes_of(1).tolist()


def test_so_does_a_disk_that_says_so_at_the_end(
    folder: Path, store: DiskStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = write(store)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            store.write("", entry.tokens, bytes_of(2), prefill_s=1.0)
    assert files_in(folder) == [f"{entry.id}.kv"]
    assert store.read(entry.id)[1].tolist() == bytes_of(1).tolist()


def test_pauses_come_between_pieces_and_can_end_the_writing(folder: Path, store: DiskStore) -> None:
    pauses: list[int] = []
    state = bytes_of(1, 3 * PIECE_BYTES + 1)
    entry = store.write("", tokens_of(1), state, prefill_s=1.0, pause=lambda: pauses.append(1))
    assert len(pauses) == 3

    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.write("", tokens_of(2), state, prefill_s=1.0, pause=stop)
    assert files_in(folder) == [f"{entry.id}.kv"]
    assert store.read(entry.id)[1].tobytes() == state.tobytes()


def test_one_process_has_a_key_in_a_folder(folder: Path, store: DiskStore) -> None:
    with pytest.raises(DiskInUseError, match=r"^Another process keeps its KV states in .*; stop that one, or .*\.$"):
        DiskStore(folder, "a key")
    DiskStore(folder, "another key").close()
    # Closed by another thread than the one that opened it.
    closer = threading.Thread(target=store.close)
    closer.start()
    closer.join()
    DiskStore(folder, "a key").close()


@pytest.mark.parametrize("below", ["", "below"])
def test_a_file_is_no_folder(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_text("text")
    with pytest.raises(LegatoError, match=r"it is no folder, or lies in none; give the path of a folder\.$"):
        DiskStore(tmp_path / "file" / below, "a key")


def test_a_folder_that_cannot_be_made_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(LegatoError, match=r"states \(permission denied\); give a folder that can be written to\.$"):
        DiskStore(folder, "a key")


@pytest.mark.parametrize("with_folder", [False, True])
def test_what_is_gone_is_gone(folder: Path, store: DiskStore, with_folder: bool) -> None:
    entry = write(store)
    store.pin(entry.id, True)
    if with_folder:
        shutil.rmtree(folder)
    for _ in range(2):
        store.remove(entry.id)
    store.touch(entry.id)
    store.pin(entry.id, True)
    store.pin(entry.id, False)
    assert files_in(folder) == []
    with pytest.raises(DamagedEntryError, match="no such file"):
        store.read(entry.id)


@pytest.mark.parametrize("name", ["", "../x", "A" * 32, "0" * 31, "0" * 33, f"{'0' * 32}\n"])
def test_other_names_name_no_entry(store: DiskStore, name: str) -> None:
    for use in (store.read, store.touch, store.remove, lambda other: store.pin(other, True)):
        with pytest.raises(ValueError, match="is no id of an entry"):
            use(name)


def test_a_process_with_too_much_open_removes_nothing(
    folder: Path, store: DiskStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = write(store)

    def refuse(*_: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        with pytest.raises(OSError, match="Too many open files"):
            store.scan()
        with pytest.raises(OSError, match="Too many open files"):
            store.read(entry.id)
    assert [found.id for found in store.scan()] == [entry.id]


def test_too_little_memory_is_not_the_files_fault(store: DiskStore, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = write(store)

    def refuse(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(disk, "_pieces", refuse)
        with pytest.raises(OSError, match="memory"):
            store.read(entry.id)
    assert store.read(entry.id)[1].tolist() == bytes_of(1).tolist()


def test_a_file_that_the_disk_cannot_read_is_removed(
    folder: Path, store: DiskStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = write(store)

    class Broken(io.FileIO):
        def readinto(self, buffer: Any) -> int:
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(disk, "open", opening(Broken), raising=False)
    with pytest.raises(DamagedEntryError, match="input/output error"):
        store.read(entry.id)
    assert files_in(folder) == []


def written_elsewhere(folder: Path, key: str, *ages_s: float) -> list[DiskEntry]:
    """Entries of another key, last used so many seconds ago; the first one is pinned."""
    with closing(DiskStore(folder, key)) as other:
        entries = [write(other, seed) for seed in range(len(ages_s))]
        other.pin(entries[0].id, True)
        for entry, age_s in zip(entries, ages_s, strict=True):
            used_at = entry.used_at - age_s
            os.utime(place(folder, key) / f"{entry.id}.kv", (used_at, used_at))
    return entries


def left(folder: Path, key: str) -> list[bool]:
    """Another key's entries that are still there: whether each is pinned."""
    with closing(DiskStore(folder, key)) as other:
        return [entry.pinned for entry in other.scan()]


def test_other_keys_entries_go_oldest_first_and_pinned_ones_last(folder: Path, store: DiskStore) -> None:
    mine = write(store)
    assert (store.others_bytes(), store.remove_oldest_other(1)) == (0, 0)
    one = written_elsewhere(folder, "one", 500, 300, 100)
    two = written_elsewhere(folder, "two", 600, 200)
    size = mine.file_bytes
    assert {entry.file_bytes for entry in one + two} == {size}
    assert store.others_bytes() == 5 * size
    assert store.remove_oldest_other(0) == 0
    assert store.remove_oldest_other(size + 1) == 2 * size
    assert (left(folder, "one"), left(folder, "two")) == ([True, False], [True])
    assert store.remove_oldest_other(size) == size
    assert (left(folder, "one"), left(folder, "two")) == ([True], [True])
    # Only the pinned ones now, the older one first.
    assert store.remove_oldest_other(1) == size
    assert (left(folder, "one"), left(folder, "two")) == ([True], [])
    assert store.others_bytes() == size
    assert store.remove_oldest_other(10 * size) == size
    assert store.others_bytes() == 0
    assert files_in(folder) == [f"{mine.id}.kv"]


def test_other_keys_in_use_and_other_folders_are_left_alone(folder: Path, store: DiskStore) -> None:
    (folder / "letters").mkdir()
    (folder / "letters" / "mine.txt").write_text("mine")
    written_elsewhere(folder, "free", 100, 50)
    with (place(folder, "free") / ".lock").open() as lock, closing(DiskStore(folder, "in use")) as other:
        entries = [write(other, seed) for seed in range(2)]
        assert store.others_bytes() == 4 * entries[0].file_bytes
        assert store.remove_oldest_other(2**40) == 2 * entries[0].file_bytes
        assert len(other.scan()) == 2
        # With a new lock beside this one, a folder could be had twice.
        assert os.fstat(lock.fileno()).st_nlink == 1
    assert (folder / "letters" / "mine.txt").exists()


def test_what_other_keys_killed_writers_left_goes_too(folder: Path, store: DiskStore) -> None:
    written_elsewhere(folder, "one", 0)
    unfinished = place(folder, "one") / "x.tmp"
    unfinished.write_bytes(bytes(500))
    assert store.remove_oldest_other(500) == 500
    assert not unfinished.exists()
    assert left(folder, "one") == [True]


def test_a_kill_at_any_moment_leaves_whole_states(folder: Path) -> None:
    rng = random.Random(6)
    turns: dict[int, int] = {}
    unfinished = 0
    for kill in range(KILLS):
        command = [sys.executable, "-m", "tests.kv.disk_writer", str(folder), str(1000 * kill)]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            try:
                assert writer.stdout.readline() == "writing\n"
                with pytest.raises(subprocess.TimeoutExpired):
                    writer.wait(rng.uniform(0, 0.15))
            finally:
                writer.kill()
        unfinished += len(list(folder.glob("*/*.tmp")))
        # The lock of a killed process is free.
        with closing(DiskStore(folder, KEY)) as store:
            found: dict[int, int] = {}
            for entry in store.scan():
                tokens, state = store.read(entry.id)
                number, turn = int(tokens[0]), int.from_bytes(state[:8].tobytes(), "little")
                assert tokens.tobytes() == entry.tokens.tobytes() == prefix(number).tobytes()
                assert turn % PREFIXES == number
                assert state.tobytes() == state_of(number, turn).tobytes()
                found[number] = turn
            assert not list(folder.glob("*/*.tmp"))
        # No kill takes back what was written before it.
        assert all(found.get(number, -1) >= turn for number, turn in turns.items())
        turns = found
    assert len(turns) == PREFIXES
    assert unfinished > KILLS // 4
