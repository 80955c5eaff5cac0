"""Why a prompt was read again: what its client changed since the prompts that it sent before."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import msgspec

from legato.core.timings import Reread
from legato.core.tokens import Tokens, common_prefix
from legato.server.prompt_changes import find_change

logger = logging.getLogger(__name__)

MOST_TOKENS = 2_000_000
"""Tokens of recent prompts that are kept to compare with: 8 MB."""
WORTH_EXPLAINING = 64
"""Tokens that must have been read for anybody to ask why."""
MOST_WORDS = 80
"""Characters of the words that are shown."""


class Rereading:
    """Compares prompts with those that the same client sent before, as far as all clients' recent ones are kept."""

    def __init__(self, text: Callable[[Tokens], str], most_tokens: int = MOST_TOKENS) -> None:
        self._text = text
        self._most_tokens = most_tokens
        self._recent: list[tuple[str | None, Tokens]] = []
        self._turn = asyncio.Lock()

    async def explain(self, prompt: Tokens, client: str | None, cached_tokens: int) -> Reread | None:
        """What was changed, without the time that it cost; None if there is nothing to tell.

        The prompt counts as sent from now on. It is compared only with the client's own, so that the words are too.
        """
        async with self._turn:  # prompts of one conversation in their order
            try:
                return await asyncio.to_thread(self._compare, prompt, client, cached_tokens)
            except Exception:
                # An explanation is a courtesy: without it the answer ends as well.
                logger.exception("a prompt could not be compared with earlier ones")
                return None

    def _compare(self, prompt: Tokens, client: str | None, cached_tokens: int) -> Reread | None:
        earlier = [sent for owner, sent in reversed(self._recent) if owner == client]
        self._remember(client, prompt)
        if len(prompt) - cached_tokens < WORTH_EXPLAINING:
            return None
        found = find_change(prompt, earlier, self._text, already=cached_tokens)
        return found and msgspec.structs.replace(found, was=_short(found.was), now=_short(found.now))

    def _remember(self, client: str | None, prompt: Tokens) -> None:
        """Keep a prompt in the place of those that it continues, and drop the oldest if there is no room."""
        if len(prompt) > self._most_tokens:
            return
        self._recent = [one for one in self._recent if one[0] != client or common_prefix(one[1], prompt) < len(one[1])]
        self._recent.append((client, prompt))
        tokens = sum(len(sent) for _, sent in self._recent)
        while tokens > self._most_tokens:
            tokens -= len(self._recent.pop(0)[1])


def _short(words: str | None) -> str | None:
    return words if words is None or len(words) <= MOST_WORDS else words[: MOST_WORDS - 1] + "…"
