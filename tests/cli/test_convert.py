"""`legato convert`, with the real model in a store of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command import refused, run_legato


@pytest.fixture
def store(tmp_path: Path, model_path: Path) -> dict[str, str]:
    """A store with the demonstration model in it, as the catalogue put it there."""
    folder = tmp_path / "catalogue" / "smollm2"
    folder.mkdir(parents=True)
    (folder / model_path.name).symlink_to(model_path)
    return {"LEGATO_MODELS_DIR": str(tmp_path)}


def test_a_converted_model_is_listed_found_and_removed(store: dict[str, str], tmp_path: Path) -> None:
    done = run_legato("convert", "smollm2", "q8_0", environment=store)
    assert done.returncode == 0, done.stderr
    assert "smollm2-Q8_0 is at" in done.stdout
    assert "144.8 MB, where smollm2 has 98.4 MB" in done.stdout
    assert "legato serve smollm2-Q8_0" in done.stdout
    made = tmp_path / "converted" / "smollm2-Q8_0.gguf"
    assert any(line.startswith("smollm2-Q8_0 ") for line in run_legato("list", environment=store).stdout.splitlines())

    before = made.stat().st_mtime_ns
    again = run_legato("convert", "smollm2", "Q8_0", environment=store)
    assert again.returncode == 0
    assert "is there already" in again.stdout
    assert made.stat().st_mtime_ns == before

    assert "Q8_0" in run_legato("doctor", "smollm2-Q8_0", environment=store).stdout
    assert run_legato("rm", "smollm2-Q8_0", environment=store).returncode == 0
    assert "smollm2-Q8_0" not in run_legato("list", environment=store).stdout


def test_an_unknown_type_is_refused_with_the_known_ones(store: dict[str, str]) -> None:
    sentence = refused("convert", "smollm2", "Q9_9", environment=store)
    assert "Q4_K_M" in sentence
    assert "Q8_0" in sentence


def test_the_type_that_it_has_already(store: dict[str, str], tmp_path: Path) -> None:
    done = run_legato("convert", "smollm2", "Q4_1", environment=store)
    assert done.returncode == 0
    assert "has Q4_1 weights already" in done.stdout
    assert not (tmp_path / "converted").exists()


def test_what_a_killed_conversion_left_is_no_model(store: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "converted"
    folder.mkdir()
    (folder / "smollm2-Q4_0.gguf.part").write_bytes(b"GGUF, and then nothing")
    assert "Q4_0" not in run_legato("list", environment=store).stdout
    assert refused("rm", "smollm2-Q4_0", environment=store)
    assert run_legato("convert", "smollm2", "Q4_0", environment=store).returncode == 0
    assert [path.name for path in folder.iterdir()] == ["smollm2-Q4_0.gguf"]


def test_a_model_that_is_not_there_is_refused(store: dict[str, str]) -> None:
    assert "none.gguf" in refused("convert", "./none.gguf", "Q8_0", environment=store)
