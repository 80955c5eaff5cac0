"""Somebody reads a running chat, a long prompt arrives, and a short question behind it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Annotated, ClassVar

from legato.bench.results import ScenarioName
from legato.bench.scenarios.scenario import Parameter, Rounds, Scenario, TargetSession


@dataclass(frozen=True, slots=True, kw_only=True)
class Interference(Scenario):
    """A running chat, a long prompt that arrives, and a short question behind it."""

    name: ClassVar[ScenarioName] = "interference"

    prompt_tokens: Annotated[int, Parameter("Length of the long prompt, tokens.", least=1)] = 6000
    answer_tokens: Annotated[int, Parameter("Answers to the prompt and the question, tokens.", least=1)] = 16
    chat_tokens: Annotated[int, Parameter("Longest answer of the running chat, tokens.", least=1)] = 4000
    """The chat is ended when the other two have their answers."""
    chat_alone_s: Annotated[
        float, Parameter("From the chat's first text to the long prompt, seconds.", least=0, option="alone")
    ] = 3.0
    question_after_s: Annotated[float, Parameter("From the prompt to the question, seconds.", least=0)] = 0.3
    rounds: Rounds = 3

    @property
    def steps(self) -> int:
        """Rounds."""
        return self.rounds

    @property
    def context_tokens(self) -> int:
        """The document with its answer, or the chat, whichever is longer."""
        return max(self.prompt_tokens + self.answer_tokens, self.chat_tokens + 100)

    async def run(self, session: TargetSession) -> None:
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

    async def _round(self, session: TargetSession, number: int) -> bool:
        """One round; whether the chat outlasted the others."""
        story = session.prompts.words(f"chat {number}", 12) + " Write a very long story about this."
        document = session.prompts.text(f"document {number}", self.prompt_tokens)
        question = session.prompts.question(f"question {number}")
        started, ask = asyncio.Event(), session.client.ask
        chat = asyncio.create_task(ask(story, self.chat_tokens, role="chat", round=number, started=started))
        try:
            await started.wait()
            await asyncio.sleep(self.chat_alone_s)
            async with asyncio.TaskGroup() as others:
                others.create_task(
                    ask(document, self.answer_tokens, role="document", round=number, depth=self.prompt_tokens)
                )
                await asyncio.sleep(self.question_after_s)
                others.create_task(ask(question, self.answer_tokens, role="question", round=number))
            outlasted = not chat.done()
        finally:
            chat.cancel()
            await asyncio.gather(chat, return_exceptions=True)
        return outlasted
