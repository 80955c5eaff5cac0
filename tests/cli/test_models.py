"""`legato list`, `legato rm` and `legato pull` where nothing needs to be downloaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command import refused, run_legato


def empty_store(folder: Path) -> dict[str, str]:
    return {"LEGATO_MODELS_DIR": str(folder)}


def test_models_are_listed_with_their_sizes_and_files(model_path: Path) -> None:
    done = run_legato("list")
    assert done.returncode == 0
    line = next(line for line in done.stdout.splitlines() if line.startswith("smollm2"))
    assert "98.4 MB" in line
    assert str(model_path) in line


def test_an_empty_store_says_what_to_do(tmp_path: Path) -> None:
    done = run_legato("list", environment=empty_store(tmp_path / "new"))
    assert done.returncode == 0
    assert "legato pull smollm2" in done.stdout.replace("\n", " ")


def test_a_store_that_is_no_folder_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("not a folder")
    assert str(path) in refused("list", environment=empty_store(path))


@pytest.mark.parametrize("command", ["pull", "rm"])
@pytest.mark.parametrize("name", ["smolm2", "", "hf:", "../../etc/passwd"])
def test_a_name_that_is_no_model_is_refused(tmp_path: Path, command: str, name: str) -> None:
    assert refused(command, name, environment=empty_store(tmp_path))


def test_a_model_that_is_not_there_cannot_be_removed(tmp_path: Path) -> None:
    assert "smollm2" in refused("rm", "smollm2", environment=empty_store(tmp_path))


def test_a_model_that_is_there_is_not_pulled_again(model_path: Path) -> None:
    before = model_path.stat().st_mtime_ns
    done = run_legato("pull", "smollm2")
    assert done.returncode == 0
    assert str(model_path) in done.stdout
    assert model_path.stat().st_mtime_ns == before
