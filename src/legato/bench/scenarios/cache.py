"""A long text that is sent again: at once, in turns with somebody else, and after a pause."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from legato.bench.reading import Message, assistant, user
from legato.bench.results import ScenarioName
from legato.bench.scenarios.scenario import Parameter, Rounds, Scenario, TargetSession, with_slack

COLD, AGAIN, IN_TURNS, OTHER, AFTER_PAUSE = "cold", "again", "in turns", "other", "after pause"
"""Roles: the text's first time; another question to it at once; further turns of its conversation, each behind one of
somebody else's, whose requests are `OTHER`; and a last turn after a pause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache(Scenario):
    """A long text again: at once, in turns with somebody else's, and after a pause."""

    name: ClassVar[ScenarioName] = "cache"

    prompt_tokens: Annotated[int, Parameter("Length of the text that is sent again, tokens.", least=1)] = 3000
    other_tokens: Annotated[int, Parameter("Length of the other person's text, tokens.", least=1)] = 1000
    answer_tokens: Annotated[int, Parameter("Length of an answer, tokens.", least=1)] = 32
    turns: Annotated[int, Parameter("Turns of each of the two people.", least=0)] = 3
    pause_s: Annotated[float, Parameter("Silence before the last turn, seconds.", least=0)] = 30.0
    rounds: Rounds = 2

    @property
    def steps(self) -> int:
        """Requests."""
        return self.rounds * (3 + 2 * self.turns)

    @property
    def context_tokens(self) -> int:
        """The longer text with all its turns."""
        turns = (self.turns + 3) * (self.answer_tokens + 40)
        return with_slack(max(self.prompt_tokens, self.other_tokens) + turns)

    async def run(self, session: TargetSession) -> None:
        """Round by round, each with texts of its own."""
        for number in range(self.rounds):
            await self._round(session, number)

    async def _round(self, session: TargetSession, number: int) -> None:
        mine = _Conversation(session, self.answer_tokens, number, "mine", self.prompt_tokens)
        other = _Conversation(session, self.answer_tokens, number, "other", self.other_tokens)
        await mine.turn(COLD)
        await mine.ask_afresh(AGAIN)
        for _ in range(self.turns):
            await other.turn(OTHER)
            await mine.turn(IN_TURNS)
        await asyncio.sleep(self.pause_s)
        await mine.turn(AFTER_PAUSE)


@dataclass(slots=True)
class _Conversation:
    """A text, and questions to it."""

    session: TargetSession
    answer_tokens: int
    round: int
    who: str
    text_tokens: int
    asked: int = 0
    messages: list[Message] = field(default_factory=list)

    async def turn(self, role: str) -> None:
        """Go on."""
        self.messages = await self._ask(role, [*self.messages, self._question(with_text=not self.messages)])

    async def ask_afresh(self, role: str) -> None:
        """Another conversation about the same text."""
        await self._ask(role, [self._question(with_text=True)])

    async def _ask(self, role: str, messages: list[Message]) -> list[Message]:
        answer = await self.session.client.ask(
            messages, self.answer_tokens, role=role, round=self.round, depth=self.text_tokens
        )
        self.session.progress.step()
        return [*messages, assistant(answer.text)]

    def _question(self, *, with_text: bool) -> Message:
        self.asked += 1
        key = f"{self.who} {self.round}"
        question = self.session.prompts.question(f"{key} {self.asked}")
        return user(f"{self.session.prompts.text(key, self.text_tokens)}\n\n{question}" if with_text else question)
