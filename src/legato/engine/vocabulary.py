"""Text to tokens and back. Thread-safe, so a vocabulary may be used beside a running context."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np
from llama_cpp import llama_cpp as lib
from numpy.typing import NDArray

from legato.core.tokens import Tokens


class Vocabulary:
    """The vocabulary of one model.

    Args:
        handle: The library's pointer; it belongs to the model, which must outlive this object.
    """

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        self.size: int = lib.llama_vocab_n_tokens(handle)
        """Number of tokens."""
        self.adds_bos: bool = lib.llama_vocab_get_add_bos(handle)
        """True if the model wants its beginning-of-sequence token before every prompt."""
        self.bos: int = lib.llama_vocab_bos(handle)
        """The beginning-of-sequence token, -1 if there is none."""
        self.eos: int = lib.llama_vocab_eos(handle)
        """The end-of-sequence token, -1 if there is none."""
        count = ctypes.c_int32(0)
        suppressed = lib.llama_vocab_get_suppress_tokens(handle, ctypes.byref(count))
        self.suppressed: tuple[int, ...] = tuple(suppressed[i] for i in range(count.value))
        """Tokens that the model's file says must never be sampled."""
        self._pieces: dict[tuple[int, bool], bytes] = {}

    @functools.cached_property
    def end_tokens(self) -> frozenset[int]:
        """Every token that ends an answer: end of sequence, end of turn, and their kin."""
        return frozenset(token for token in range(self.size) if self.is_end(token))

    def is_end(self, token: int) -> bool:
        """True if this token ends an answer."""
        return bool(lib.llama_vocab_is_eog(self.handle, token))

    def tokenize(self, text: str, *, add_bos: bool, parse_special: bool) -> Tokens:
        """Turn text into tokens.

        Args:
            text: Any text without lone surrogates.
            add_bos: Put the beginning-of-sequence token first, if the model wants one.
            parse_special: Read the names of control tokens (such as `<|im_start|>`) as those tokens, not as text.

        Returns:
            Token ids, shape [n].
        """
        data = text.encode("utf-8")
        # One token a byte is the most that any vocabulary makes; the few more are for beginning and end.
        tokens: NDArray[np.int32] = np.empty(len(data) + 8, dtype=np.int32)
        pointer = tokens.ctypes.data_as(ctypes.POINTER(ctypes.c_int32))
        n: int = lib.llama_tokenize(self.handle, data, len(data), pointer, len(tokens), add_bos, parse_special)
        if n < 0:
            raise ValueError(f"the library could not tokenize {len(data)} bytes of text (it answered {n})")
        return tokens[:n].copy()

    def piece(self, token: int, *, special: bool = False) -> bytes:
        """The bytes that a token stands for, which may be a part of a UTF-8 character.

        A control token is empty unless `special` is set, which spells its name.
        """
        key = (token, special)
        piece = self._pieces.get(key)
        if piece is None:
            piece = self._pieces[key] = self._spell(token, special)
        return piece

    def text(self, tokens: Tokens) -> str:
        """The text of tokens, control tokens spelled out; what is no whole character is replaced."""
        pieces = (self.piece(token, special=True) for token in tokens.tolist())
        return b"".join(pieces).decode("utf-8", "replace")

    def _spell(self, token: int, special: bool) -> bytes:
        buffer = ctypes.create_string_buffer(64)
        n: int = lib.llama_token_to_piece(self.handle, token, buffer, len(buffer), 0, special)
        if n < 0:
            buffer = ctypes.create_string_buffer(-n)
            n = lib.llama_token_to_piece(self.handle, token, buffer, len(buffer), 0, special)
        return buffer.raw[:n]
