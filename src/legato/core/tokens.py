"""Tokens and their KV state as they are passed on; what two token sequences share."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Tokens = NDArray[np.int32]
"""Token ids, shape [n]."""
KvState = NDArray[np.uint8]
"""The KV state of a sequence as bytes, shape [n]: the library's own format."""


def common_prefix(a: Tokens, b: Tokens) -> int:
    """How many tokens two sequences begin with alike."""
    length = min(len(a), len(b))
    apart = a[:length] != b[:length]
    first = int(apart.argmax()) if length else 0
    return first if length and apart[first] else length
