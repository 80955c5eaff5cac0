"""Somebody reads a running chat, a long prompt arrives, and a short question behind it."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from legato.bench.results import ScenarioName
from legato.bench.scenarios.scenario import with_slack
from legato.bench.session import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class Interference:
    """What the long prompt does to the chat's gaps, and how long the question waits behind it."""

    name: ClassVar[ScenarioName] = "interference"

    prompt_tokens: int = 6000
    """Of the document."""
    answer_tokens: int = 16
    """To the document, and to the question."""
    chat_tokens: int = 4000
    """Of the chat's answer, at most: it is ended when the other two have theirs."""
    chat_alone_s: float = 3.0
    """From the chat's first text to the document."""
    question_after_s: float = 0.3
    """From the document to the question."""
    rounds: int = 3

    @property
    def options(self) -> dict[str, Any]:
        """Lengths, waits and rounds."""
        return asdict(self)

    @property
    def steps(self) -> int:
        """Rounds."""
        return self.rounds

    @property
    def context_tokens(self) -> int:
        """The document with its answer, or the chat, whichever is longer."""
        return with_slack(max(self.prompt_tokens + self.answer_tokens, self.chat_tokens + 100))

    async def run(self, session: Session) -> None:
        """Round by round."""
        short_chats = 0
        for number in range(self.rounds):
            short_chats += not await self._round(session, number)
            session.progress.step()
        if short_chats:
            session.notes.append(
                f"In {short_chats} of {self.rounds} rounds the chat ended before the document and the question had "
                "their answers, so that its gaps don't show all of the interference."
            )

    async def _round(self, session: Session, number: int) -> bool:
        """One round; whether the chat outlasted the others."""
        story = session.prompts.words(f"chat {number}", 12) + " Write a very long story about this."
        document = session.prompts.text(f"document {number}", self.prompt_tokens)
        question = session.prompts.question(f"question {number}")
        started = asyncio.Event()
        chat = asyncio.create_task(session.ask(story, self.chat_tokens, role="chat", round=number, started=started))
        try:
            await _either(chat, started)
            await asyncio.sleep(self.chat_alone_s)
            async with asyncio.TaskGroup() as others:
                others.create_task(
                    session.ask(document, self.answer_tokens, role="document", round=number, depth=self.prompt_tokens)
                )
                await asyncio.sleep(self.question_after_s)
                others.create_task(session.ask(question, self.answer_tokens, role="question", round=number))
            outlasted = not chat.done()
        finally:
            chat.cancel()
            await asyncio.gather(chat, return_exceptions=True)
        return outlasted


async def _either(task: asyncio.Task[Any], event: asyncio.Event) -> None:
    """Wait for the event; a task that ends without it ends the wait too."""
    waiting = asyncio.create_task(event.wait())
    try:
        await asyncio.wait((task, waiting), return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
