"""Which GGUF file of several is meant: quantization names, split files, and what is no model at all."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from legato.errors import LegatoError

# What a reference without a suffix takes, best first: the usual balance of size and quality, then the two formats
# that llama.cpp reads prompts with fastest.
PREFERRED_QUANTS: Final = ("Q4_K_M", "Q8_0", "Q4_0")

_SPLIT_NAME: Final = re.compile(r"(?P<base>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.IGNORECASE)
# A repository is made by strangers; nobody splits a model into more parts than this.
_MOST_PARTS: Final = 9999


@dataclass(frozen=True)
class GgufChoice:
    """One model that a repository or a folder offers."""

    files: tuple[str, ...]
    """Names of its files, relative to the repository, in order: one, or all parts of a split file."""
    missing: tuple[str, ...] = ()
    """Parts that a split file should have and the repository lacks."""

    @property
    def first(self) -> str:
        """The file to load: llama.cpp finds the other parts of a split file by itself."""
        return self.files[0] if self.files else self.missing[0]

    @property
    def stem(self) -> str:
        """The name without folder, part number and ending."""
        return file_stem(self.first)


def file_stem(name: str) -> str:
    """Strip the folder, a split file's part number and the ending from a file name."""
    base_name = PurePosixPath(name).name
    split = _SPLIT_NAME.fullmatch(base_name)
    return split["base"] if split else base_name.removesuffix(".gguf").removesuffix(".GGUF")


def split_parts(name: str) -> tuple[str, ...]:
    """Name all the parts of the split file that a file belongs to, in order; only `name` where it belongs to none."""
    split = _SPLIT_NAME.fullmatch(name)
    if split is None or not 1 <= int(split["count"]) <= _MOST_PARTS:
        return (name,)
    ending = name[-len(".gguf") :]
    return tuple(
        f"{split['base']}-{number:05d}-of-{split['count']}{ending}" for number in range(1, int(split["count"]) + 1)
    )


def gguf_choices(names: Iterable[str]) -> list[GgufChoice]:
    """Group the model files among a repository's file names into models, in the order of their names.

    Projectors for images (mmproj) and importance matrices are GGUF files too, but no models. A name that would
    leave its folder is no honest file name and is left out.
    """
    present = {name for name in names if _is_model_name(name)}
    wholes = {split_parts(name) for name in present}
    return [
        GgufChoice(
            files=tuple(part for part in parts if part in present),
            missing=tuple(part for part in parts if part not in present),
        )
        for parts in sorted(wholes)
    ]


def choose(choices: Sequence[GgufChoice], pick: str | None, repository: str) -> GgufChoice:
    """Choose the model that a reference means.

    Args:
        choices: What there is to choose from.
        pick: A quantization name or a file name (case does not matter), or None for the usual one.
        repository: What the error names.

    Raises:
        LegatoError: Nothing fits, or more than one does; the text lists what there is.
    """
    if not choices:
        raise LegatoError(f"{repository} has no GGUF model in it; look for a repository of the model's GGUF files.")
    fitting = _usual(choices) if pick is None else _fitting(choices, pick)
    if len(fitting) == 1:
        return fitting[0]
    listed = ", ".join(choice.first for choice in (fitting or choices))
    if fitting or pick is None:
        wanted = f"{pick!r} fits" if pick is not None else "it has"
        raise LegatoError(
            f"{repository}: {wanted} more than one model; name one of them, as in hf:{repository}:FILE: {listed}."
        )
    raise LegatoError(f"{repository} has nothing that {pick!r} names; it has: {listed}.")


def _is_model_name(name: str) -> bool:
    path = PurePosixPath(name)
    is_honest = path.as_posix() == name and not path.is_absolute() and ".." not in path.parts and "\\" not in name
    if path.suffix.lower() != ".gguf" or not is_honest:
        return False
    base_name = path.name.lower()
    return "mmproj" not in base_name and not base_name.startswith("imatrix")


def _usual(choices: Sequence[GgufChoice]) -> Sequence[GgufChoice]:
    if len(choices) == 1:
        return choices
    return next(filter(None, (_with_quant(choices, quant) for quant in PREFERRED_QUANTS)), ())


def _fitting(choices: Sequence[GgufChoice], pick: str) -> Sequence[GgufChoice]:
    return [choice for choice in choices if pick.lower() in _spellings(choice)] or _with_quant(choices, pick)


def _spellings(choice: GgufChoice) -> set[str]:
    name = choice.first.lower()
    return {name, name.removesuffix(".gguf"), PurePosixPath(name).name, choice.stem.lower()}


def _with_quant(choices: Sequence[GgufChoice], quant: str) -> Sequence[GgufChoice]:
    """Find a quantization name as a word of its own: Q4_K is not in Q4_K_M, nor Q4_XS in IQ4_XS."""
    word = re.compile(rf"(?<![A-Za-z0-9]){re.escape(quant)}(?![A-Za-z0-9_])", re.IGNORECASE)
    by_name = [choice for choice in choices if word.search(PurePosixPath(choice.first).name)]
    # Some repositories name the quantization only in the folder of a split file's parts.
    return by_name or [choice for choice in choices if word.search(choice.first)]
