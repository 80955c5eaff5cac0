"""The input of one library call: tokens of one or more sequences, filled from arrays without a loop per token."""

from __future__ import annotations

import ctypes

import numpy as np
from llama_cpp import llama_cpp as lib

from legato.core.tokens import Tokens


class Batch:
    """Room for `capacity` tokens, filled by `add`, evaluated by `Context.evaluate`, emptied by `clear`."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        """Most tokens that fit."""
        self._tokens = np.zeros(capacity, np.int32)
        self._positions = np.zeros(capacity, np.int32)
        self._sequences = np.zeros(capacity, np.int32)
        self._wanted = np.zeros(capacity, np.int8)
        # Each token belongs to one sequence: a count of one, and a pointer to its entry among the sequences.
        self._counts = np.ones(capacity, np.int32)
        self._pointers = (self._sequences.ctypes.data + 4 * np.arange(capacity)).astype(np.uintp)
        self.native = lib.llama_batch()
        """The library's structure over the arrays above."""
        int32 = ctypes.POINTER(ctypes.c_int32)
        self.native.token = self._tokens.ctypes.data_as(int32)
        self.native.pos = self._positions.ctypes.data_as(int32)
        self.native.n_seq_id = self._counts.ctypes.data_as(int32)
        self.native.seq_id = ctypes.cast(self._pointers.ctypes.data, ctypes.POINTER(int32))
        self.native.logits = self._wanted.ctypes.data_as(ctypes.POINTER(ctypes.c_int8))
        self.native.n_tokens = 0

    def __len__(self) -> int:
        return int(self.native.n_tokens)

    def add(self, sequence: int, tokens: Tokens, position: int, *, want_logits: bool) -> int:
        """Append consecutive tokens of one sequence.

        The library wants sequences in increasing order within a batch: others start a pass of their own.

        Args:
            sequence: The KV sequence that they belong to.
            tokens: Token ids, shape [n].
            position: Position of the first of them in its sequence.
            want_logits: Compute logits for the last of them.

        Returns:
            The row of the last token, by which its logits are asked for.

        Raises:
            ValueError: There are none, or they do not fit.
        """
        if not len(tokens):
            raise ValueError("there are no tokens to add")
        start = len(self)
        end = start + len(tokens)
        if end > self.capacity:
            raise ValueError(f"a batch of {self.capacity} tokens has no room for {len(tokens)} beside {start}")
        self._tokens[start:end] = tokens
        self._positions[start:end] = np.arange(position, position + len(tokens), dtype=np.int32)
        self._sequences[start:end] = sequence
        self._wanted[start:end] = 0
        self._wanted[end - 1] = want_logits
        self.native.n_tokens = end
        return end - 1

    def add_one(self, sequence: int, token: int, position: int) -> int:
        """Append one token whose logits are wanted, the usual case of a decode; returns its row."""
        row: int = self.native.n_tokens
        if row >= self.capacity:
            raise ValueError(f"a batch of {self.capacity} tokens is full")
        self._tokens[row] = token
        self._positions[row] = position
        self._sequences[row] = sequence
        self._wanted[row] = 1
        self.native.n_tokens = row + 1
        return row

    def clear(self) -> None:
        """Empty the batch."""
        self.native.n_tokens = 0
