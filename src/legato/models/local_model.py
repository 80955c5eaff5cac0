"""A model that is on this computer."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

Source: TypeAlias = Literal["catalogue", "hub", "file"]


@dataclass(frozen=True)
class LocalModel:
    """A model that is on this computer.

    Attributes:
        name: What API clients call it.
        path: The file to load; of a split file, the first part.
        size_bytes: Size of the file, or of all parts of a split one.
        reference: What to type to mean exactly this model.
        source: Where it came from: the catalogue, the hub, or a file that somebody put there.
        modified: When its file came into place or was last changed, in UTC.
    """

    name: str
    path: Path
    size_bytes: int
    reference: str
    source: Source
    modified: datetime


def local_model(name: str, files: Sequence[Path], reference: str, source: Source) -> LocalModel:
    """Describe a model by the files that it consists of.

    Args:
        name: What API clients call it.
        files: Its files, the one to load first; they exist.
        reference: What to type to mean it.
        source: Where it came from.

    Raises:
        OSError: A file is not there after all.
    """
    states = [file.stat() for file in files]
    return LocalModel(
        name=name,
        path=files[0],
        size_bytes=sum(state.st_size for state in states),
        reference=reference,
        source=source,
        modified=datetime.fromtimestamp(states[0].st_mtime, UTC),
    )
