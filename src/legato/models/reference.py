"""What a person types to name a model."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final, TypeAlias

from legato.errors import LegatoError
from legato.models.catalogue import CATALOGUE, DEFAULT_MODEL

_HUB_PREFIX: Final = "hf:"
# The hub's own rule for names: these characters, a word at either end, and none of the marks below.
_REPOSITORY: Final = re.compile(r"\w([\w.-]*\w)?/\w([\w.-]{0,94}\w)?", re.ASCII)
_FORBIDDEN_IN_REPOSITORY: Final = re.compile(r"--|\.\.|\.git$")


@dataclass(frozen=True)
class PathReference:
    """A GGUF file anywhere on this computer, which need not be there."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)


@dataclass(frozen=True)
class CatalogueReference:
    """A model of the catalogue, by its short name."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class HubReference:
    """A model in a repository of the Hugging Face hub."""

    repository: str
    """`owner/repo`."""
    pick: str | None = None
    """The quantization or file that is meant, or None for the usual one."""

    def __str__(self) -> str:
        return f"{_HUB_PREFIX}{self.repository}" + (f":{self.pick}" if self.pick else "")


Reference: TypeAlias = PathReference | CatalogueReference | HubReference


def parse_reference(text: str, names: Collection[str] = CATALOGUE) -> Reference:
    """Read a model reference. Nothing is looked up but whether a plain name is a file.

    A catalogue name always means the catalogue's model, whatever lies in the current folder: a file of the same name
    can be given as `./name`.

    Args:
        text: A path to a GGUF file, a catalogue name, or `hf:owner/repo[:quant-or-file]`.
        names: The names that the catalogue has.

    Raises:
        LegatoError: The text is none of the three.
    """
    text = text.strip()
    if text.startswith(_HUB_PREFIX):
        return _hub_reference(text)
    if "://" in text:
        raise LegatoError(f"{text!r} is a web address; name a model of the Hugging Face hub as hf:owner/repo.")
    if text in names:
        return CatalogueReference(text)
    if _looks_like_path(text):
        # Not Path.expanduser, which fails at the ~ of a user who does not exist.
        return PathReference(Path(os.path.expanduser(text)))  # noqa: PTH111
    raise LegatoError(_unknown_name(text, names))


def _hub_reference(text: str) -> HubReference:
    repository, _, pick = text.removeprefix(_HUB_PREFIX).partition(":")
    if not _REPOSITORY.fullmatch(repository) or _FORBIDDEN_IN_REPOSITORY.search(repository):
        raise LegatoError(
            f"{text!r} does not name a hub repository; write hf:owner/repo, or hf:owner/repo:Q4_K_M for one "
            "quantization of it."
        )
    path = PurePosixPath(pick)
    if path.is_absolute() or ".." in path.parts or "\\" in pick:
        raise LegatoError(f"{pick!r} in {text!r} is neither a quantization nor a file name inside the repository.")
    return HubReference(repository, pick or None)


def _looks_like_path(text: str) -> bool:
    has_separator = os.sep in text or (os.altsep is not None and os.altsep in text)
    # Not Path.exists, which fails at a name that is too long for a file.
    return bool(text) and (has_separator or text.lower().endswith(".gguf") or os.path.exists(text))  # noqa: PTH110


def _unknown_name(text: str, names: Collection[str]) -> str:
    close = difflib.get_close_matches(text.lower(), names, n=1)
    # The default model stands first: it is what most people who mistype a name want.
    known = ", ".join(sorted(names, key=lambda name: (name != DEFAULT_MODEL, name)))
    guess = f" (did you mean {close[0]}?)" if close else ""
    return (
        f"There is no model called {text!r}{guess}; the known names are {known}, and a path to a GGUF file or "
        "hf:owner/repo[:quantization or file] will do as well."
    )
