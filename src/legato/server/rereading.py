"""Why a prompt was read again: what its client changed since the prompts that it sent before."""

from __future__ import annotations

import asyncio
import logging

from legato.core.timings import Reread
from legato.core.tokens import Tokens
from legato.engine.vocabulary import Vocabulary
from legato.server.prompt_changes import RecentPrompts, find_change

logger = logging.getLogger(__name__)

MOST_TOKENS = 2_000_000
"""Tokens of recent prompts that are kept to compare with: 8 MB."""
WORTH_EXPLAINING = 64
"""Tokens that must have been read for anybody to ask why."""
MOST_WORDS = 80
"""Characters of the words that are shown."""


class Rereading:
    """Compares prompts with those that the same client sent before.

    Args:
        vocabulary: Of the model.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._recent = RecentPrompts(MOST_TOKENS)
        self._turn = asyncio.Lock()

    async def explain(self, prompt: Tokens, client: str | None, cached_tokens: int) -> Reread | None:
        """What was changed, or None if there is nothing to tell; the prompt counts as sent from now on.

        Args:
            prompt: What had to be read.
            client: Who sent it. Only with their own prompts it is compared, so that the words are theirs too.
            cached_tokens: Tokens of it that were remembered.

        Returns:
            Without the time that it cost.
        """
        async with self._turn:  # prompts of one conversation in their order
            earlier = self._recent.of(client)
            try:
                return await asyncio.to_thread(self._compare, prompt, client, earlier, cached_tokens)
            except Exception:
                # An explanation is a courtesy: without it the answer ends as well.
                logger.exception("a prompt could not be compared with earlier ones")
                return None

    def _compare(self, prompt: Tokens, client: str | None, earlier: list[Tokens], cached_tokens: int) -> Reread | None:
        self._recent.remember(client, prompt)
        if len(prompt) - cached_tokens < WORTH_EXPLAINING:
            return None
        change = find_change(prompt, earlier, self._vocabulary.text, already=cached_tokens)
        if change is None:
            return None
        return Reread(
            change.kind,
            change.at_token,
            change.lost_tokens,
            0.0,
            was=self._words(earlier[change.earlier][slice(*change.old)]),
            now=self._words(prompt[slice(*change.new)]),
        )

    def _words(self, tokens: Tokens) -> str:
        text = self._vocabulary.text(tokens[:MOST_WORDS])
        return text if len(text) <= MOST_WORDS else text[: MOST_WORDS - 1] + "…"
