"""KV cells without a model.

Whatever real cells would not do, or would do without a word and wrongly, is an `AssertionError` here.
"""

from __future__ import annotations

import struct
import zlib

import numpy as np

from legato.core.engine_errors import EngineError
from legato.core.tokens import KvState, Tokens

HEADER = struct.Struct("<8sII")
"""Of a saved state: what it is, how many tokens it has, and their checksum. The tokens follow, int32 each."""
MAGIC = b"MODELKV\n"


def state_bytes_of(tokens: int) -> int:
    """Bytes of a saved state of so many tokens."""
    return HEADER.size + 4 * tokens


class ModelledCells:
    """Cells of several sequences: what is in them are the tokens that were evaluated, and so is their saved state.

    Args:
        sequences: How many.
        cells_per_sequence: Tokens that each can hold.
        can_cut: A sequence can be cut at any token, and not only cleared.
        can_cut_states: So it can where its cells were loaded.
    """

    def __init__(
        self, sequences: int, cells_per_sequence: int, *, can_cut: bool = True, can_cut_states: bool = True
    ) -> None:
        self.sequences = sequences
        self.cells_per_sequence = cells_per_sequence
        self.saved = 0
        """States that were saved."""
        self.loaded = 0
        """States that were loaded."""
        self.refuses = False
        """Load no state."""
        self._can_cut = can_cut
        self._can_cut_states = can_cut_states
        self._loaded_tokens = [0] * sequences
        self._cells: list[list[int]] = [[] for _ in range(sequences)]

    def evaluate(self, sequence: int, tokens: Tokens, start: int) -> None:
        """Fill the next cells of a sequence, from position `start` on."""
        cells = self._of(sequence)
        assert start == len(cells), f"sequence {sequence} has {len(cells)} tokens, and the next comes to {start}"
        cells += tokens.tolist()
        assert len(cells) <= self.cells_per_sequence, f"sequence {sequence} has too few cells"

    def tokens(self, sequence: int) -> list[int]:
        """What a sequence's cells hold."""
        return list(self._of(sequence))

    def length(self, sequence: int) -> int:
        """How many tokens that are."""
        return len(self._of(sequence))

    def remove(self, sequence: int, start: int = 0) -> bool:
        """Free a sequence's cells from position `start` on; False if it can't be cut there."""
        cells = self._of(sequence)
        if 0 < start < len(cells) and not self._can_cut:
            return False
        if 0 < start < self._loaded_tokens[sequence] and not self._can_cut_states:
            return False
        del cells[start:]
        self._loaded_tokens[sequence] = min(start, self._loaded_tokens[sequence])
        return True

    def cut(self, sequence: int, length: int) -> bool:
        """Keep the first tokens of a sequence alone; False if it can't be cut there."""
        if self.length(sequence) <= length:
            return self.length(sequence) == length
        return self.remove(sequence, length)

    def state_bytes(self, sequence: int) -> int:
        """Bytes of a sequence's saved state."""
        return state_bytes_of(self.length(sequence))

    def save_state(self, sequence: int, into: KvState | None = None) -> KvState:
        """A sequence's state, in given memory or in new one."""
        assert self.length(sequence), f"sequence {sequence} has no state to save"
        packed = np.array(self._of(sequence), dtype="<i4").tobytes()
        content = HEADER.pack(MAGIC, self.length(sequence), zlib.crc32(packed)) + packed
        state = np.empty(len(content), dtype=np.uint8) if into is None else into
        assert len(state) >= len(content), "the memory for a state is too small"
        state[: len(content)] = np.frombuffer(content, dtype=np.uint8)
        self.saved += 1
        return state[: len(content)]

    def load_state(self, sequence: int, state: KvState) -> None:
        """Replace a sequence's state.

        Raises:
            EngineError: `refuses` says so.
        """
        self.remove(sequence)
        if self.refuses:
            raise EngineError("the state is of another kind")
        content = state.tobytes()
        assert len(content) >= HEADER.size, "this is no state"
        magic, count, checksum = HEADER.unpack_from(content)
        packed = content[HEADER.size :]
        assert magic == MAGIC, "this is no state"
        assert len(packed) == 4 * count, "a state has bytes for all its tokens and no more"
        assert zlib.crc32(packed) == checksum, "a state has changed since it was saved"
        self._cells[sequence] = np.frombuffer(packed, dtype="<i4").tolist()
        assert count <= self.cells_per_sequence, f"sequence {sequence} has too few cells"
        self._loaded_tokens[sequence] = count
        self.loaded += 1

    def _of(self, sequence: int) -> list[int]:
        assert 0 <= sequence < self.sequences, f"there is no sequence {sequence}"
        return self._cells[sequence]
