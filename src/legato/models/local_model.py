"""A model that is on this computer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, TypeAlias

Source: TypeAlias = Literal["catalogue", "hub", "file"]


@dataclass(frozen=True)
class LocalModel:
    """A model that is on this computer."""

    name: str
    """What API clients call it."""
    path: Path
    """The file to load; of a split file, the first part."""
    size_bytes: int
    """Size of the file, or of all parts of a split one."""
    reference: str
    """What to type to mean exactly this model."""
    source: Source
    """Where it came from: the catalogue, the hub, or a file that somebody put there."""
    modified: datetime
    """When its file came into place or was last changed, in UTC."""


def local_model(name: str, files: Sequence[Path], reference: str, source: Source) -> LocalModel:
    """Describe a model by the files that it consists of, the one to load first.

    Raises:
        OSError: A file is not there after all.
    """
    states = [file.stat() for file in files]
    size_bytes = sum(state.st_size for state in states)
    return LocalModel(name, files[0], size_bytes, reference, source, datetime.fromtimestamp(states[0].st_mtime, UTC))
