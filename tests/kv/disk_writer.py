"""A process that writes known states until it is killed."""

from __future__ import annotations

import sys
import time
from itertools import count
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from legato.core.tokens import Tokens
from legato.kv.disk import DiskStore

KEY = "killed"
PREFIXES = 4
STATE_BYTES = 3 * 2**20 + 17
PAUSE_S = 0.002
"""Between pieces, so that most kills come in the middle of a write."""


def prefix(number: int) -> Tokens:
    """Tokens that say which of the prefixes they are."""
    return np.full(100 + number, number, np.int32)


def state_of(number: int, turn: int) -> NDArray[np.uint8]:
    """A state that says at its beginning in which turn it was written, so that two of a prefix differ everywhere."""
    state = np.random.default_rng([number, turn]).integers(0, 256, STATE_BYTES, dtype=np.uint8)
    state[:8] = np.frombuffer(turn.to_bytes(8, "little"), np.uint8)
    return state


def main(folder: Path, first_turn: int) -> None:
    store = DiskStore(folder, KEY)
    for turn in count(first_turn):
        number = turn % PREFIXES
        state = state_of(number, turn)
        if turn == first_turn:
            print("writing", flush=True)
        store.write("", prefix(number), state, prefill_s=1.0, pause=lambda: time.sleep(PAUSE_S))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
