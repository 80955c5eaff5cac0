from __future__ import annotations

import os
import pickle
import struct
import tracemalloc
import zipfile
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from legato.errors import LegatoError
from legato.models import check_gguf
from legato.models.ggml_types import BLOCKS, tensor_bytes

from .gguf_files import ARRAY, STRING, U32, Gguf, Tensor, array_entry, entry, string, tiny_gguf

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.gguf"


def refusal(path: Path) -> str:
    with pytest.raises(LegatoError) as raised:
        check_gguf(path)
    assert str(path) in str(raised.value)
    return str(raised.value)


def test_the_header_of_a_whole_file(path: Path) -> None:
    path.write_bytes(tiny_gguf("Tiny model"))
    header = check_gguf(path)
    assert header.architecture == "llama"
    assert header.file_type_name == "Q4_K_M"
    assert header.context_length == 2048
    assert header.has_chat_template
    assert header.required_bytes == path.stat().st_size


def test_version_2_and_a_file_without_tensors_are_fine(path: Path) -> None:
    path.write_bytes(Gguf(version=2, entries=[entry("general.architecture", STRING, "llama")]).build())
    header = check_gguf(path)
    assert header.required_bytes == path.stat().st_size
    assert header.context_length is None
    assert not header.has_chat_template


def test_the_alignment_that_the_file_names_is_used(path: Path) -> None:
    gguf = Gguf(
        entries=[entry("general.alignment", U32, 256)], tensors=[Tensor("t", (4,), 0, b"x" * 16)], alignment=256
    )
    path.write_bytes(gguf.build())
    assert check_gguf(path).required_bytes == path.stat().st_size == 256 + 16


def test_a_tensor_of_an_unknown_type_is_not_measured(path: Path) -> None:
    path.write_bytes(Gguf(tensors=[Tensor("t", (1 << 40,), 999, b"x")]).build())
    assert check_gguf(path).required_bytes == path.stat().st_size - len(b"x")


@pytest.mark.parametrize("missing_bytes", [1, 100, 255])
def test_a_file_that_lacks_its_end_is_cut_off(path: Path, missing_bytes: int) -> None:
    whole = tiny_gguf()
    path.write_bytes(whole[:-missing_bytes])
    text = refusal(path)
    assert f"it has {len(whole) - missing_bytes} of at least {len(whole)} bytes; remove it and pull it again" in text


def test_a_cut_anywhere_in_the_header_is_noticed(path: Path) -> None:
    whole = tiny_gguf(payload_floats=1)
    for length in range(4, len(whole), 7):
        path.write_bytes(whole[:length])
        assert "cut off" in refusal(path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "an empty file"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "git-lfs pointer"),
        (b"\n<!DOCTYPE html><html>", "a web page"),
        (b"<html><body>Log in", "a web page"),
        (struct.pack("<Q", 2) + b"{}" + bytes(8), "a safetensors file"),
        (pickle.dumps({"weight": 1}, protocol=2), "a PyTorch pickle"),
        (b"lmgg" + bytes(60), "GGML file from before GGUF"),
        (b"PK\x03\x04 cut off", "a zip archive"),
        (b"ggufxxxx", "does not begin with the letters GGUF"),
        (b"GG", "does not begin with the letters GGUF"),
    ],
)
def test_what_a_wrong_file_looks_like(path: Path, content: bytes, words: str) -> None:
    path.write_bytes(content)
    text = refusal(path)
    assert "is not a GGUF file" in text
    assert words in text


@pytest.mark.parametrize(("member", "words"), [("notes.txt", "a zip archive"), ("model/data.pkl", "a PyTorch pickle")])
def test_zip_archives_are_told_apart(path: Path, member: str, words: str) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(member, b"")
    assert words in refusal(path)


@pytest.mark.parametrize(
    ("version", "words"),
    [(b"\0\0\0\3", "big-endian"), (b"\1\0\0\0", "version 1"), (b"\4\0\0\0", "version 4"), (b"\0\0\0\0", "version 0")],
)
def test_versions_that_are_not_read(path: Path, version: bytes, words: str) -> None:
    path.write_bytes(b"GGUF" + version + bytes(64))
    assert words in refusal(path)


def test_missing_folder_and_pipe(tmp_path: Path) -> None:
    assert "There is no file" in refusal(tmp_path / "none.gguf")
    assert "is a folder" in refusal(tmp_path)
    pipe = tmp_path / "pipe.gguf"
    os.mkfifo(pipe)
    assert "not a regular file" in refusal(pipe)
    loop = tmp_path / "loop.gguf"
    loop.symlink_to(loop)
    assert "cannot be read" in refusal(loop)


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser reads everything")
def test_a_file_that_must_not_be_read(path: Path) -> None:
    path.write_bytes(tiny_gguf())
    path.chmod(0)
    assert "cannot be read (permission denied)" in refusal(path)


def nested(depth: int) -> bytes:
    return string("a") + struct.pack("<I", ARRAY) + struct.pack("<IQ", ARRAY, 1) * depth + struct.pack("<IQ", U32, 0)


@pytest.mark.parametrize(
    ("gguf", "words"),
    [
        (Gguf(entries=[nested(1000)]), "unknown type 9"),
        (Gguf(entries=[string("a") + struct.pack("<I", 77)]), "unknown type 77"),
        (Gguf(entries=[entry("general.alignment", U32, 0)]), "alignment 0"),
        (Gguf(entries=[entry("general.alignment", U32, 24)]), "alignment 24"),
        (Gguf(tensors=[Tensor("t", (1,) * 5, 0, b"")]), "5 dimensions"),
        (Gguf(entries=[entry("k" * 70_000, U32, 1)]), "a name of 70000 bytes"),
    ],
)
def test_what_breaks_the_format_is_named(path: Path, gguf: Gguf, words: str) -> None:
    path.write_bytes(gguf.build() + bytes(64))
    assert words in refusal(path)


def test_offsets_beyond_all_files_are_only_numbers(path: Path) -> None:
    path.write_bytes(Gguf(tensors=[Tensor("t", (2**64 - 1,) * 4, 0, b"")]).build())
    assert "is cut off" in refusal(path)


@pytest.mark.parametrize(
    "head",
    [
        # Counts, lengths and repetitions that the file is big enough for, and no honest header has.
        struct.pack("<QQ", 2**30, 0),
        struct.pack("<QQ", 0, 2**30),
        struct.pack("<QQ", 0, 1) + string("a") + struct.pack("<IIQ", ARRAY, STRING, 2**30),
        struct.pack("<QQ", 0, 1) + struct.pack("<Q", 2**33),
        struct.pack("<QQ", 0, 1) + string("general.architecture") + struct.pack("<IQ", STRING, 2**33),
    ],
    ids=["tensors", "entries", "strings", "key", "text"],
)
def test_a_hostile_header_in_a_huge_file_costs_neither_time_nor_memory(path: Path, head: bytes) -> None:
    with path.open("wb") as file:
        file.write(b"GGUF" + struct.pack("<I", 3) + head)
        file.truncate(1 << 36)
    tracemalloc.start()
    try:
        assert "not a sound GGUF file" in refusal(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * MIB


def test_big_arrays_are_passed_over_and_not_built(path: Path) -> None:
    numbers = array_entry("tokenizer.ggml.token_type", U32, [1] * 500_000)
    lengths = array_entry("llama.context_length", U32, [7] * 500_000)
    path.write_bytes(Gguf(entries=[entry("general.architecture", STRING, "llama"), numbers, lengths]).build())
    tracemalloc.start()
    try:
        assert check_gguf(path).context_length is None
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * MIB


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rest=st.binary(max_size=400))
def test_random_bytes_behind_the_magic_raise_nothing_but_legato_errors(path: Path, rest: bytes) -> None:
    path.write_bytes(b"GGUF" + rest)
    with pytest.raises(LegatoError):
        check_gguf(path)


COUNTS = st.integers(0, 3) | st.integers(0, 2**64 - 1)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tensors=COUNTS, entries=COUNTS, rest=st.binary(max_size=400))
def test_random_tables_raise_nothing_but_legato_errors(path: Path, tensors: int, entries: int, rest: bytes) -> None:
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, tensors, entries) + rest)
    outcome(path)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(position=st.integers(4, 7000), garbage=st.binary(min_size=1, max_size=16))
def test_a_damaged_file_raises_nothing_but_legato_errors(path: Path, position: int, garbage: bytes) -> None:
    data = bytearray(tiny_gguf())
    data[position : position + len(garbage)] = garbage
    path.write_bytes(data)
    outcome(path)


def outcome(path: Path) -> None:
    """Read the file; what is not an error must make sense."""
    try:
        header = check_gguf(path)
    except LegatoError:
        return
    assert header.required_bytes <= path.stat().st_size


def test_tensor_sizes() -> None:
    assert tensor_bytes(0, ()) == 4
    assert tensor_bytes(2, (64, 3)) == 2 * 18 * 3
    assert tensor_bytes(12, (256, 2, 2)) == 144 * 4
    assert tensor_bytes(4, (32,)) == 0


def test_the_table_of_types_agrees_with_the_library() -> None:
    ggml = pytest.importorskip("llama_cpp._ggml").libggml
    for number, (elements, size) in BLOCKS.items():
        assert ggml.ggml_blck_size(number) == elements
        assert ggml.ggml_type_size(number) == size
