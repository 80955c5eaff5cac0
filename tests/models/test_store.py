from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from legato.errors import LegatoError
from legato.models import ModelStore, default_store
from legato.models.disk import disk_failures, readable_bytes, require_space

from .gguf_files import tiny_gguf


def test_the_environment_names_the_default_store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LEGATO_MODELS_DIR", str(tmp_path / "models"))
    assert default_store().root == tmp_path / "models"
    monkeypatch.setenv("LEGATO_MODELS_DIR", "")
    assert default_store().root.parts[-2:] == ("legato", "models")


def test_an_empty_store_lists_nothing_and_makes_nothing(store: ModelStore) -> None:
    assert store.list() == []
    assert store.find("smollm2") is None
    assert store.find("hf:ada/tiny") is None
    assert not store.root.exists()


def test_a_path_is_used_where_it_lies(store: ModelStore, tmp_path: Path) -> None:
    path = tmp_path / "my model.gguf"
    path.write_bytes(tiny_gguf())
    model = store.resolve(str(path))
    assert (model.name, model.path, model.reference, model.source) == ("my model", path, str(path), "file")
    assert model.size_bytes == len(tiny_gguf())
    assert store.pull(str(path)) == store.find(str(path)) == model
    assert store.list() == []


def test_a_path_to_nothing(store: ModelStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert store.find("./none.gguf") is None
    with pytest.raises(LegatoError, match=r"There is no file none\.gguf; check the path"):
        store.resolve("./none.gguf")
    with pytest.raises(LegatoError, match="is named hf:ada/tiny"):
        store.resolve("ada/tiny")


def test_a_path_to_the_wrong_kind_of_file(store: ModelStore, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(tiny_gguf()[:-1])
    with pytest.raises(LegatoError, match="is cut off"):
        store.resolve(str(path))
    with pytest.raises(LegatoError, match="is a folder"):
        store.resolve(f"{tmp_path}/")
    with pytest.raises(LegatoError, match="is a folder"):
        store.resolve("/")


def test_a_path_that_cannot_be_looked_at(store: ModelStore) -> None:
    for use in (store.find, store.resolve, store.pull):
        with pytest.raises(LegatoError, match=r"cannot be read \(file name too long\)"):
            use("x" * 5000 + ".gguf")


def test_a_split_file_in_a_folder(store: ModelStore, tmp_path: Path) -> None:
    parts = [tmp_path / f"big-0000{number}-of-00002.gguf" for number in (1, 2)]
    parts[0].write_bytes(tiny_gguf("1"))
    with pytest.raises(LegatoError, match=r"big-00002-of-00002\.gguf is not beside it"):
        store.resolve(str(parts[0]))
    parts[1].write_bytes(tiny_gguf("2")[:-1])
    with pytest.raises(LegatoError, match=r"big-00002-of-00002\.gguf is cut off"):
        store.resolve(str(parts[0]))
    parts[1].write_bytes(tiny_gguf("2"))
    model = store.resolve(str(parts[0]))
    assert (model.name, model.size_bytes) == ("big", len(tiny_gguf("1")) + len(tiny_gguf("2")))
    with pytest.raises(LegatoError, match=r"give the first part, big-00001-of-00002\.gguf"):
        store.resolve(str(parts[1]))


def test_remove_leaves_other_peoples_files_alone(store: ModelStore, tmp_path: Path) -> None:
    path = tmp_path / "mine.gguf"
    path.write_bytes(tiny_gguf())
    with pytest.raises(LegatoError, match="legato rm removes only what legato pull brought"):
        store.remove(str(path))
    assert path.exists()


@pytest.mark.parametrize("reference", ["smollm2", "hf:ada/tiny"])
def test_a_store_that_cannot_be_made(tmp_path: Path, reference: str) -> None:
    (tmp_path / "file").touch()
    store = ModelStore(tmp_path / "file" / "store")
    with pytest.raises(LegatoError, match=r"store .* cannot be used \(not a directory\).*LEGATO_MODELS_DIR"):
        store.resolve(reference)


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser writes everywhere")
def test_a_store_that_must_not_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(LegatoError, match=r"cannot be changed \(permission denied\).*LEGATO_MODELS_DIR"):
        ModelStore(tmp_path / "store").resolve("smollm2")


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "is full; make room there"),
        (errno.EDQUOT, "is full; make room there"),
        (errno.EROFS, "cannot be changed (read-only file system)"),
        (errno.EIO, "cannot be used (input/output error)"),
    ],
)
def test_the_disks_errors_are_sentences(number: int, words: str) -> None:
    with pytest.raises(LegatoError) as raised, disk_failures(Path("/models")):
        raise OSError(number, os.strerror(number))
    assert "store /models" in str(raised.value)
    assert words in str(raised.value)


def test_room_is_asked_for_before_a_download(tmp_path: Path) -> None:
    require_space(tmp_path, 1)
    with pytest.raises(LegatoError, match=r"1000\.0 TB are needed"):
        require_space(tmp_path, 10**15)


def test_readable_bytes() -> None:
    assert [readable_bytes(count) for count in (0, 999, 98_362_432, 5 * 10**9)] == [
        "0 bytes",
        "999 bytes",
        "98.4 MB",
        "5.0 GB",
    ]
