"""Text of wanted lengths that no server has seen before."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass

from legato.bench.words import WORDS

TOKENS_PER_WORD = 1.3
"""Of English text in common vocabularies; the warm-up finds out the target's own."""

SENTENCEWORDS = 12

_CONSONANTS = "bdfgklmnprstvz"
_VOWELS = "aeiou"

_QUESTIONS = (
    "which city is the capital of France in Europe",
    "how many legs does a common house spider have",
    "what color is the sky on a clear day",
    "which month of the year comes right after June",
    "why does the moon look different on each night",
)
"""Nine words each; the unique one before them is the tenth."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """What a target makes of words."""

    tokens_per_word: float = TOKENS_PER_WORD
    overhead_tokens: float = 0.0
    """What the chat template adds."""


def calibrate(few_words: int, few_tokens: int, many_words: int, many_tokens: int) -> Calibration:
    """From the token counts of two prompts of different lengths.

    Counts that no vocabulary gives, such as those of a server that leaves out cached tokens, are not believed.
    """
    per_word = (many_tokens - few_tokens) / (many_words - few_words)
    if not 0.5 <= per_word <= 8:
        return Calibration()
    return Calibration(per_word, max(0.0, few_tokens - few_words * per_word))


@dataclass(frozen=True, slots=True)
class Prompts:
    """Makes text by key: the same key gives the same text again, another key another text from its first word on.

    The same seed gives the same words. The stamp of this run changes first words only, so that a server that remembers
    an earlier run can't answer this one from its cache.
    """

    seed: int
    stamp: str
    calibration: Calibration = Calibration()
    """Of the target that the text is for."""

    def text(self, key: str, tokens: int) -> str:
        """Text that is about a prompt of that many tokens, chat template and all."""
        words = (tokens - self.calibration.overhead_tokens) / self.calibration.tokens_per_word
        return self.words(key, max(1, round(words)))

    def words(self, key: str, count: int) -> str:
        """Text of exactly that many words, the first of which no other text begins with."""
        source = random.Random(f"{self.seed}/{key}")
        words = [self._first_word(key), *source.choices(WORDS, k=count - 1)]
        return " ".join(
            word + ("." if position % SENTENCEWORDS == 0 or position == count else "")
            for position, word in enumerate(words, start=1)
        )

    def question(self, key: str) -> str:
        """A question of ten words."""
        question = random.Random(f"{self.seed}/{key}").choice(_QUESTIONS)
        return f"{self._first_word(key)} {question}?"

    def _first_word(self, key: str) -> str:
        digest = hashlib.sha256(f"{self.stamp}/{self.seed}/{key}".encode()).digest()
        syllables = (
            _CONSONANTS[a % len(_CONSONANTS)] + _VOWELS[b % len(_VOWELS)]
            for a, b in zip(digest[:10:2], digest[1:10:2], strict=True)
        )
        return "".join(syllables).capitalize()
