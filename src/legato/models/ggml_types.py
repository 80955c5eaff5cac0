"""The storage formats of ggml's tensors: how many bytes a tensor takes in a file."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# ggml's type number -> (elements a block, bytes a block). The numbers are part of the GGUF format and never reused;
# the gaps are types that were withdrawn.
BLOCKS: Final[Mapping[int, tuple[int, int]]] = MappingProxyType(
    {
        0: (1, 4),  # F32
        1: (1, 2),  # F16
        2: (32, 18),  # Q4_0
        3: (32, 20),  # Q4_1
        6: (32, 22),  # Q5_0
        7: (32, 24),  # Q5_1
        8: (32, 34),  # Q8_0
        9: (32, 36),  # Q8_1
        10: (256, 84),  # Q2_K
        11: (256, 110),  # Q3_K
        12: (256, 144),  # Q4_K
        13: (256, 176),  # Q5_K
        14: (256, 210),  # Q6_K
        15: (256, 292),  # Q8_K
        16: (256, 66),  # IQ2_XXS
        17: (256, 74),  # IQ2_XS
        18: (256, 98),  # IQ3_XXS
        19: (256, 50),  # IQ1_S
        20: (32, 18),  # IQ4_NL
        21: (256, 110),  # IQ3_S
        22: (256, 82),  # IQ2_S
        23: (256, 136),  # IQ4_XS
        24: (1, 1),  # I8
        25: (1, 2),  # I16
        26: (1, 4),  # I32
        27: (1, 8),  # I64
        28: (1, 8),  # F64
        29: (256, 56),  # IQ1_M
        30: (1, 2),  # BF16
        34: (256, 54),  # TQ1_0
        35: (256, 66),  # TQ2_0
        39: (32, 17),  # MXFP4
        40: (64, 36),  # NVFP4
        41: (128, 18),  # Q1_0
        42: (64, 18),  # Q2_0
    }
)

# llama.cpp's file type number (`general.file_type`) -> the name people know the quantization by.
FILE_TYPES: Final[Mapping[int, str]] = MappingProxyType(
    {
        0: "F32",
        1: "F16",
        2: "Q4_0",
        3: "Q4_1",
        7: "Q8_0",
        8: "Q5_0",
        9: "Q5_1",
        10: "Q2_K",
        11: "Q3_K_S",
        12: "Q3_K_M",
        13: "Q3_K_L",
        14: "Q4_K_S",
        15: "Q4_K_M",
        16: "Q5_K_S",
        17: "Q5_K_M",
        18: "Q6_K",
        19: "IQ2_XXS",
        20: "IQ2_XS",
        21: "Q2_K_S",
        22: "IQ3_XS",
        23: "IQ3_XXS",
        24: "IQ1_S",
        25: "IQ4_NL",
        26: "IQ3_S",
        27: "IQ3_M",
        28: "IQ2_S",
        29: "IQ2_M",
        30: "IQ4_XS",
        31: "IQ1_M",
        32: "BF16",
        36: "TQ1_0",
        37: "TQ2_0",
        38: "MXFP4",
        39: "NVFP4",
        40: "Q1_0",
        41: "Q2_0",
    }
)


def tensor_bytes(type_number: int, shape: Sequence[int]) -> int | None:
    """Say how many bytes a tensor takes in a file.

    Args:
        type_number: ggml's number of the storage format.
        shape: Elements along each dimension, the contiguous one first.

    Returns:
        The size in bytes, or None for a format this table does not know.
    """
    block = BLOCKS.get(type_number)
    if block is None:
        return None
    elements_a_block, bytes_a_block = block
    row = shape[0] if shape else 1
    rows = 1
    for extent in shape[1:]:
        rows *= extent
    return rows * (row // elements_a_block) * bytes_a_block
