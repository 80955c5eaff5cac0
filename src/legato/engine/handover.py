"""Moving KV state from one context into a sequence of another, of the same model."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from legato.engine.context import Context

STREAMS_AT = 8
"""Where the library's saved state says how many sequences its context has (a 32-bit number)."""
PAGE = 4096


class Handover:
    """Moves the state of a context of one sequence into the sequences of another.

    The library writes a state for contexts with as many sequences as the one that it comes from, with a count of cells
    for each of them. The others' counts are zero, so they can be added. That is not documented, and not so for models
    with several caches: try it once before relying on it.

    Args:
        source: A context of one sequence.
        target: Where to.
    """

    def __init__(self, source: Context, target: Context) -> None:
        self._source = source
        self._target = target
        self._other_counts = 4 * (target.sequences - 1)
        self._buffer: NDArray[np.uint8] = np.empty(0, dtype=np.uint8)
        self._touched = 0

    def prepare(self) -> None:
        """Have memory ready for the state as it is now.

        The first use of memory costs several times what moving a state into it does; done bit by bit while the state
        grows, nobody waits for it.
        """
        size = self._source.state_bytes(0) + self._other_counts
        if size > len(self._buffer):
            # For as many tokens as may come: what is not touched takes no memory.
            cells, tokens = self._source.cells_per_sequence, max(1, self._source.length(0))
            self._buffer = np.empty(size * -(-cells // tokens) + PAGE, dtype=np.uint8)
            self._touched = 0
        self._buffer[self._touched : size : PAGE] = 0
        self._touched = max(self._touched, size)

    def move(self, sequence: int) -> NDArray[np.uint8]:
        """Replace a sequence of the target by the source's, which is emptied.

        Returns:
            The state that was moved, as the target saves it.

        Raises:
            EngineError: The library refuses; the sequence is empty then.
        """
        self.prepare()
        written = len(self._source.save_state(0, into=self._buffer))
        self._buffer[STREAMS_AT : STREAMS_AT + 4].view("<u4")[0] = self._target.sequences
        self._buffer[written : written + self._other_counts] = 0
        state = self._buffer[: written + self._other_counts]
        self._target.load_state(sequence, state)
        self._source.remove(0)
        self.forget()
        return state

    def forget(self) -> None:
        """Let go of the memory."""
        self._buffer = np.empty(0, dtype=np.uint8)
        self._touched = 0
