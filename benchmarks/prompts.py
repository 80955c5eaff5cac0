"""Prompts of wanted lengths, different for every seed, so that no cache helps."""

from __future__ import annotations

import random
from pathlib import Path

from legato.engine.model import Model

_WORDS = ("the", "river", "a", "small", "house", "where", "people", "came", "to", "talk", "about", "weather", "music")


class Prompts:
    """Makes text of English words with a wanted number of tokens."""

    def __init__(self, model: Path) -> None:
        self._model = Model(model, vocabulary_only=True)

    def tokens(self, seed: int, length: int) -> list[int]:
        """Exactly that many tokens."""
        words = random.Random(seed).choices(_WORDS, k=length)
        text = f"{seed}. " + " ".join(words)
        tokens = self._model.vocabulary.tokenize(text, add_bos=False, parse_special=False)
        return [int(token) for token in tokens[:length]]

    def text(self, seed: int, length: int) -> str:
        """Text of about that many tokens."""
        pieces = (self._model.vocabulary.piece(token) for token in self.tokens(seed, length))
        return b"".join(pieces).decode("utf-8", "replace")
