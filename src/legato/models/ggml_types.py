"""The storage formats of ggml's tensors: how many bytes a tensor takes in a file."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

# ggml's type number -> (elements a block, bytes a block), a line for each family. The numbers are part of the GGUF
# format and never reused; the gaps are types that were withdrawn.
BLOCKS: Final[Mapping[int, tuple[int, int]]] = {
    # F32, F16, F64, BF16
    0: (1, 4), 1: (1, 2), 28: (1, 8), 30: (1, 2),
    # I8, I16, I32, I64
    24: (1, 1), 25: (1, 2), 26: (1, 4), 27: (1, 8),
    # Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q8_1
    2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 9: (32, 36),
    # Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, Q8_K
    10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 15: (256, 292),
    # IQ1_S, IQ1_M, IQ2_XXS, IQ2_XS, IQ2_S
    19: (256, 50), 29: (256, 56), 16: (256, 66), 17: (256, 74), 22: (256, 82),
    # IQ3_XXS, IQ3_S, IQ4_NL, IQ4_XS
    18: (256, 98), 21: (256, 110), 20: (32, 18), 23: (256, 136),
    # TQ1_0, TQ2_0, MXFP4, NVFP4, Q1_0, Q2_0
    34: (256, 54), 35: (256, 66), 39: (32, 17), 40: (64, 36), 41: (128, 18), 42: (64, 18),
}  # fmt: skip

# llama.cpp's file type number (`general.file_type`) -> the name people know the quantization by.
FILE_TYPES: Final[Mapping[int, str]] = {
    0: "F32", 1: "F16", 32: "BF16",
    2: "Q4_0", 3: "Q4_1", 8: "Q5_0", 9: "Q5_1", 7: "Q8_0",
    10: "Q2_K", 21: "Q2_K_S", 11: "Q3_K_S", 12: "Q3_K_M", 13: "Q3_K_L",
    14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K",
    24: "IQ1_S", 31: "IQ1_M", 19: "IQ2_XXS", 20: "IQ2_XS", 28: "IQ2_S", 29: "IQ2_M",
    23: "IQ3_XXS", 22: "IQ3_XS", 26: "IQ3_S", 27: "IQ3_M", 25: "IQ4_NL", 30: "IQ4_XS",
    36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4", 39: "NVFP4", 40: "Q1_0", 41: "Q2_0",
}  # fmt: skip


def tensor_bytes(type_number: int, shape: Sequence[int]) -> int:
    """Say how many bytes a tensor takes in a file; 0 for a format that the table does not know.

    Args:
        type_number: ggml's number of the storage format.
        shape: Elements along each dimension, the contiguous one first.
    """
    elements_a_block, bytes_a_block = BLOCKS.get(type_number, (1, 0))
    row = shape[0] if shape else 1
    return math.prod(shape[1:]) * (row // elements_a_block) * bytes_a_block
