"""KV cells without a model, and a store of KV state that remembers nothing.

Whatever real cells would not do, or would do without a word and wrongly, is an `AssertionError` here.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable

import numpy as np

from legato.core.cache import CacheAction, CacheEntry, CacheFigures, Restored
from legato.core.engine_errors import EngineError
from legato.core.tokens import KvState, Tokens
from legato.kv.sources import Lease, Restore
from legato.runtime.request import Request

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


class FirstFree:
    """Lends KV sequences without a thought for what is in them: the lowest free number.

    Args:
        sequences: How many there are.
        cells_per_sequence: KV cells of each, in tokens.
    """

    def __init__(self, sequences: int, cells_per_sequence: int) -> None:
        self.sequences = sequences
        self.cells_per_sequence = cells_per_sequence
        self._free = set(range(sequences))

    @property
    def free(self) -> int:
        """Sequences that nobody holds."""
        return len(self._free)

    def acquire(self, holder: object, now_s: float) -> Lease | None:
        """Lend a sequence, or None if all are lent."""
        if not self._free:
            return None
        slot = min(self._free)
        self._free.remove(slot)
        return Lease(slot)

    def release(self, slot: int) -> None:
        """Take a sequence back."""
        assert slot not in self._free, f"sequence {slot} was not lent"
        self._free.add(slot)


class NothingRemembered:
    """A store of KV state (`legato.runtime.kv_store.KvStore`) where every prompt is prefilled from its first token on.

    Args:
        sequences: How many there are.
        cells_per_sequence: KV cells of each, in tokens.
    """

    remembers = False

    def __init__(self, sequences: int, cells_per_sequence: int) -> None:
        self.lender = FirstFree(sequences, cells_per_sequence)

    def begin(self, request: Request, lease: Lease, now_s: float) -> Restored | Restore | None:
        """From its first token on."""
        return None

    def between_steps(self, held_back: Iterable[Request], now_s: float) -> list[tuple[int, Restore | None]]:
        """Nobody waits for anything."""
        return []

    def restore(self, request: Request, slot: int, now_s: float) -> Restored | Restore:
        """Nothing comes from anywhere."""
        return Restored(request.id, 0, "memory", 0.0, 0.0)

    def let_go(self, request: Request) -> None:
        """It waits for nothing."""

    def released(self, request: Request, slot: int, computed_tokens: int, now_s: float) -> None:
        """What is in its cells is forgotten."""

    def keep(self, request: Request, state: KvState) -> None:
        """So is what was there."""

    def use_time(self, room_s: float) -> bool:
        """There is nothing to do."""
        return False

    def use_idle_time(self) -> bool:
        """Nor is there anything to wait for."""
        return False

    def act(self, action: CacheAction, entry_name: str | None) -> bool:
        """There are no entries."""
        return entry_name is None

    def set_budgets(self, memory_bytes: int | None, disk_bytes: int | None) -> None:
        """Nothing takes no room."""

    @property
    def listing(self) -> list[CacheEntry]:
        """Nothing is remembered."""
        return []

    @property
    def figures(self) -> CacheFigures:
        """Zeros."""
        return CacheFigures(0, 0, 0, 0, 0, 0, 0)

    def figures_if_changed(self) -> CacheFigures | None:
        """They never change."""
        return None

    def close(self) -> None:
        """There is nothing to keep."""
