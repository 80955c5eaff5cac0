"""KV sequences that are lent without a thought for what is in them."""

from __future__ import annotations

from legato.kv.sources import Lease


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
