"""What a vocabulary does for those who need not know whose library reads it."""

from __future__ import annotations

from typing import Protocol

from legato.core.tokens import Tokens


class Vocabulary(Protocol):
    """Text to tokens and back."""

    @property
    def size(self) -> int:
        """Number of tokens."""

    @property
    def adds_bos(self) -> bool:
        """True if the model wants its beginning-of-sequence token before every prompt."""

    def tokenize(self, text: str, *, add_bos: bool, parse_special: bool) -> Tokens:
        """Token ids of a text without lone surrogates, shape [n].

        `add_bos` puts the beginning-of-sequence token first, if the model wants one; `parse_special` reads the names
        of control tokens (such as `<|im_start|>`) as those tokens, not as text.
        """

    def piece(self, token: int, *, special: bool = False) -> bytes:
        """The bytes that a token stands for, which may be a part of a UTF-8 character.

        A control token is empty unless `special` is set, which spells its name.
        """

    def text(self, tokens: Tokens) -> str:
        """The text of tokens, control tokens spelled out; what is no whole character is replaced."""
