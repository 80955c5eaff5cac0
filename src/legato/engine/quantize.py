"""A model file again with another weight type."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from llama_cpp import llama_cpp as lib

from legato.core.engine_errors import EngineError
from legato.engine.library import start_library
from legato.errors import LegatoError

PARTIAL_ENDING: Final = ".part"
"""Ending of a file that is still being written."""


WEIGHT_TYPES: Final[Mapping[str, float]] = {
    "F32": 32, "F16": 16, "BF16": 16, "Q8_0": 8.5, "Q6_K": 6.6,
    "Q5_K_M": 5.7, "Q5_K_S": 5.5, "Q5_1": 6, "Q5_0": 5.5,
    "Q4_K_M": 4.9, "Q4_K_S": 4.6, "Q4_1": 5, "Q4_0": 4.6, "IQ4_NL": 4.6, "IQ4_XS": 4.4,
    "Q3_K_L": 4.3, "Q3_K_M": 3.9, "Q3_K_S": 3.5, "Q2_K": 3.2,
}  # fmt: skip
"""The weight types that a model can be converted to without further data, finest first.

With each, the bits that a weight takes, about: some tensors are kept finer.
"""


def weight_type(name: str) -> str:
    """The known spelling of a weight type.

    Raises:
        LegatoError: There is no such type; the sentence lists those that there are.
    """
    spelled = name.strip().upper().replace("-", "_")
    if spelled not in WEIGHT_TYPES:
        raise LegatoError(f"{name!r} is no weight type to convert to; choose one of {', '.join(WEIGHT_TYPES)}.")
    return spelled


def converted_bytes(size_bytes: int, source_type: str | None, type_name: str) -> int:
    """Bytes that a converted file takes, estimated high.

    Args:
        size_bytes: Of the file as it is.
        source_type: Its weight type; one that is not known is taken for a fine one of four bits.
        type_name: A key of `WEIGHT_TYPES`.
    """
    bits = WEIGHT_TYPES.get(source_type or "", 4.0)
    return int(size_bytes * WEIGHT_TYPES[type_name] / bits * 1.25) + 2**24


def convert(source: Path, target: Path, type_name: str) -> None:
    """Write a model file with another weight type. It is there only when it is whole.

    Weights that were quantized before are quantized again: nothing that was lost comes back.

    Args:
        source: A GGUF file; of a split model, its first part.
        target: What to write; a file of this name is replaced.
        type_name: A key of `WEIGHT_TYPES`.

    Raises:
        EngineError: The library would not do it.
        LegatoError: There is no such type.
    """
    log = start_library()
    log.errors.clear()
    params = lib.llama_model_quantize_default_params()
    known = weight_type(type_name)
    params.ftype = getattr(lib, f"LLAMA_FTYPE_{'ALL' if known == 'F32' else 'MOSTLY'}_{known}")
    params.allow_requantize = True
    partial = target.with_name(target.name + PARTIAL_ENDING)
    try:
        status: int = lib.llama_model_quantize(str(source).encode(), str(partial).encode(), params)
        if status != 0:
            raise EngineError(
                f"The library could not convert {source.name} to {type_name}: "
                f"{_reason(log.explain('it gave no reason'), target)}."
            )
        partial.replace(target)
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


def _reason(text: str, target: Path) -> str:
    if "iostream error" in text:
        return f"{target.parent} is full, or must not be written"
    return text.rstrip(".")
