"""A place without settings: an empty folder to be in, an empty one for the user's own, and no variables."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs
import pytest


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for variable in list(os.environ):
        if variable.upper().startswith("LEGATO_"):
            monkeypatch.delenv(variable)
    here, home = tmp_path / "here", tmp_path / "home"
    here.mkdir()
    home.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
    monkeypatch.setenv("HOME", str(home))
    return here


@pytest.fixture
def user_file(folder: Path) -> Path:
    """Where the user's own settings file would be."""
    path = platformdirs.user_config_path("legato") / "legato.toml"
    assert path.is_relative_to(folder.parent)
    path.parent.mkdir(parents=True)
    return path
