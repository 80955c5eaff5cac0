"""A long text that is sent again: at once, in turns with somebody else, and after a pause."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar

from legato.bench.reading import Message, assistant, user
from legato.bench.results import ScenarioName
from legato.bench.scenarios.scenario import Parameter, Rounds, Scenario, TargetSession

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
        return max(self.prompt_tokens, self.other_tokens) + turns

    async def run(self, session: TargetSession) -> None:
        """Round by round, each with texts of its own."""
        for number in range(self.rounds):
            mine = _Conversation(session, self.answer_tokens, number, "mine", self.prompt_tokens)
            afresh = replace(mine, messages=[])
            other = _Conversation(session, self.answer_tokens, number, "other", self.other_tokens)
            await mine.turn(COLD)
            await afresh.turn(AGAIN)
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
    messages: list[Message] = field(default_factory=list)

    async def turn(self, role: str) -> None:
        """Ask the next question, the first one with the text before it."""
        prompts, key = self.session.prompts, f"{self.who} {self.round}"
        question = prompts.question(f"{key} {role} {len(self.messages)}")
        if not self.messages:
            question = f"{prompts.text(key, self.text_tokens)}\n\n{question}"
        self.messages.append(user(question))
        answer = await self.session.client.ask(
            self.messages, self.answer_tokens, role=role, round=self.round, depth=self.text_tokens
        )
        self.messages.append(assistant(answer.text))
        self.session.progress.step()
