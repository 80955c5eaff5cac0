"""The KV sequences of a context, lent to one request each."""

from __future__ import annotations

import heapq


class KvSlots:
    """Lends KV sequences, the lowest free number first.

    Lowest first keeps those in use side by side, and the library evaluates neighbouring sequences in one pass.

    Args:
        sequences: How many the context has.
        cells_per_sequence: KV cells of each, in tokens.
    """

    def __init__(self, sequences: int, cells_per_sequence: int) -> None:
        self.sequences = sequences
        """How many the context has."""
        self.cells_per_sequence = cells_per_sequence
        """KV cells of each, in tokens."""
        self._free = list(range(sequences))

    @property
    def free(self) -> int:
        """Sequences that nobody holds."""
        return len(self._free)

    def can_ever_hold(self, prompt_tokens: int) -> bool:
        """True if a prompt of this many tokens fits into a sequence with a cell left for the answer."""
        return prompt_tokens < self.cells_per_sequence

    def acquire(self) -> int | None:
        """Lend a sequence, or None if all are lent."""
        return heapq.heappop(self._free) if self._free else None

    def release(self, sequence: int) -> None:
        """Take a sequence back.

        Raises:
            ValueError: It was not lent.
        """
        if sequence in self._free or not 0 <= sequence < self.sequences:
            raise ValueError(f"sequence {sequence} was not lent")
        heapq.heappush(self._free, sequence)
