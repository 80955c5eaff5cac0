"""A long text that is sent again: at once, in turns with somebody else, and after a pause."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from legato.bench.reading import Message
from legato.bench.results import ScenarioName
from legato.bench.scenarios.scenario import with_slack
from legato.bench.session import Session, assistant, user

COLD, AGAIN, IN_TURNS, OTHER, AFTER_PAUSE = "cold", "again", "in turns", "other", "after pause"
"""Roles: the text's first time; another question to it at once; further turns of its conversation, each behind one of
somebody else's, whose requests are `OTHER`; and a last turn after a pause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """What a server still knows of a text that it has read."""

    name: ClassVar[ScenarioName] = "cache"

    prompt_tokens: int = 3000
    """Of the text."""
    other_tokens: int = 1000
    """Of the other person's text."""
    answer_tokens: int = 32
    turns: int = 3
    """Of each of the two people, in turns."""
    pause_s: float = 30.0
    """Silence before the last turn."""
    rounds: int = 2

    @property
    def options(self) -> dict[str, Any]:
        """Lengths, turns, pause and rounds."""
        return asdict(self)

    @property
    def steps(self) -> int:
        """Requests."""
        return self.rounds * (3 + 2 * self.turns)

    @property
    def context_tokens(self) -> int:
        """The longer text with all its turns."""
        turns = (self.turns + 3) * (self.answer_tokens + 40)
        return with_slack(max(self.prompt_tokens, self.other_tokens) + turns)

    async def run(self, session: Session) -> None:
        """Round by round, each with texts of its own."""
        for number in range(self.rounds):
            await self._round(session, number)

    async def _round(self, session: Session, number: int) -> None:
        mine = _Conversation(session, self, number, "mine", self.prompt_tokens)
        other = _Conversation(session, self, number, "other", self.other_tokens)
        await mine.turn(COLD)
        await mine.ask_afresh(AGAIN)
        for _ in range(self.turns):
            await other.turn(OTHER)
            await mine.turn(IN_TURNS)
        await asyncio.sleep(self.pause_s)
        await mine.turn(AFTER_PAUSE)


class _Conversation:
    """A text, and questions to it."""

    def __init__(self, session: Session, scenario: Cache, number: int, who: str, tokens: int) -> None:
        self._session = session
        self._scenario = scenario
        self._round = number
        self._who = f"{who} {number}"
        self._depth = tokens
        self._asked = 0
        self._text = session.prompts.text(self._who, tokens)
        self._messages: list[Message] = []

    async def turn(self, role: str) -> None:
        """Go on."""
        question = self._question()
        message = user(question if self._messages else f"{self._text}\n\n{question}")
        self._messages = await self._ask(role, [*self._messages, message])

    async def ask_afresh(self, role: str) -> None:
        """Another conversation about the same text."""
        await self._ask(role, [user(f"{self._text}\n\n{self._question()}")])

    async def _ask(self, role: str, messages: list[Message]) -> list[Message]:
        tokens = self._scenario.answer_tokens
        answer = await self._session.ask(messages, tokens, role=role, round=self._round, depth=self._depth)
        self._session.progress.step()
        return [*messages, assistant(answer.text)]

    def _question(self) -> str:
        self._asked += 1
        return self._session.prompts.question(f"{self._who} {self._asked}")
