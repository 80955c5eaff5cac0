"""What a scenario works with: one target, text of known lengths, and a place for what a reader must know."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from legato.bench.client import Client
from legato.bench.progress import BenchProgress
from legato.bench.prompts import Prompts
from legato.bench.reading import Message, Reading, Request


@dataclass(slots=True)
class TargetSession:
    """One target in one run."""

    client: Client
    prompts: Prompts
    progress: BenchProgress
    notes: list[str] = field(default_factory=list)
    """Sentences about this target's figures."""

    async def ask(self, messages: str | list[Message], wanted_tokens: int, **about: Any) -> Reading:
        """Send a conversation, or a single message of the user, and wait for its answer of so many tokens.

        Role, round and whatever else is in `Request` are told `about` it.
        """
        conversation = [user(messages)] if isinstance(messages, str) else messages
        return await self.client.ask(Request(messages=conversation, wanted_tokens=wanted_tokens, **about))


def user(text: str) -> Message:
    """A message of the user."""
    return {"role": "user", "content": text}


def assistant(text: str) -> Message:
    """A message of the model. Some servers refuse empty ones."""
    return {"role": "assistant", "content": text or "…"}
