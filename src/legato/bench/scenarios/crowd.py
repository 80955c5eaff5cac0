"""Several people chat, each at their own pace, while background jobs may send long prompts."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from itertools import count
from typing import Annotated, ClassVar

from legato.bench.reading import Message, assistant, user
from legato.bench.results import ScenarioName
from legato.bench.scenarios.scenario import Parameter, Scenario, TargetSession

AFTER_ERROR_S = 1.0
"""Pause of whoever got an error, so that a server that refuses is not flooded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd(Scenario):
    """Several people chat, each at their own pace; jobs may send long prompts beside them.

    Conversations grow turn by turn, as each turn sends all that was said; a long one makes way for a new one.
    """

    name: ClassVar[ScenarioName] = "crowd"

    people: Annotated[int, Parameter("How many chat at once.", least=1)] = 4
    duration_s: Annotated[float, Parameter("How long they come back, seconds.", least=0.1)] = 60.0
    """Nobody sends anything new after this; answers are still read to their end."""
    think_s: Annotated[float, Parameter("Mean time between an answer and the next message, seconds.", least=0)] = 5
    """Single ones are random, exponentially distributed."""
    turn_tokens: Annotated[int, Parameter("Length of a message, tokens.", least=1)] = 60
    answer_tokens: Annotated[int, Parameter("Length of an answer, tokens.", least=1)] = 120
    conversation_tokens: Annotated[
        int, Parameter("Length at which a person begins a new conversation, tokens.", least=1)
    ] = 3000
    jobs: Annotated[int, Parameter("Background jobs that send one long prompt after another.", least=0)] = 0
    job_tokens: Annotated[int, Parameter("Length of a job's prompt, tokens.", least=1)] = 4000
    job_answer_tokens: Annotated[int, Parameter("Length of a job's answer, tokens.", least=1)] = 32

    @property
    def steps(self) -> int:
        """Seconds."""
        return max(1, int(self.duration_s))

    @property
    def context_tokens(self) -> int:
        """The longest conversation, or a job's prompt and answer."""
        conversation = self.conversation_tokens + self.turn_tokens + self.answer_tokens
        return max(conversation, self.job_tokens + self.job_answer_tokens if self.jobs else 0)

    async def run(self, session: TargetSession) -> None:
        """All at once, until the time is over."""
        until = asyncio.get_running_loop().time() + self.duration_s
        async with asyncio.TaskGroup() as group:
            for number in range(1, self.people + 1):
                group.create_task(self._person(session, number, until))
            for number in range(1, self.jobs + 1):
                group.create_task(self._job(session, number, until))
            group.create_task(self._clock(session))

    async def _person(self, session: TargetSession, number: int, until: float) -> None:
        role = f"person {number}"
        source = random.Random(f"{session.prompts.seed}/{role}")
        conversation: list[Message] = []
        for turn in count():
            # Also before the first message: people do not come all at the same instant.
            await asyncio.sleep(source.expovariate(1 / self.think_s) if self.think_s else 0)
            if not _time_left(until):
                return
            message = user(session.prompts.text(f"{role} {turn}", self.turn_tokens))
            answer = await session.client.ask([*conversation, message], self.answer_tokens, role=role, round=turn)
            if answer.measured.error:
                await asyncio.sleep(AFTER_ERROR_S)
                continue
            conversation += [message, assistant(answer.text)]
            if self._length(conversation, answer.measured.prompt_tokens) >= self.conversation_tokens:
                conversation = []

    def _length(self, conversation: list[Message], prompt_tokens: int | None) -> int:
        """Tokens of a conversation: as the server counts, or as they were planned."""
        if prompt_tokens is None:
            return len(conversation) // 2 * (self.turn_tokens + self.answer_tokens)
        return prompt_tokens + self.answer_tokens

    async def _job(self, session: TargetSession, number: int, until: float) -> None:
        role = f"job {number}"
        for turn in count():
            if not _time_left(until):
                return
            text = session.prompts.text(f"{role} {turn}", self.job_tokens)
            answer = await session.client.ask(
                text, self.job_answer_tokens, role=role, round=turn, depth=self.job_tokens
            )
            if answer.measured.error:
                await asyncio.sleep(AFTER_ERROR_S)

    async def _clock(self, session: TargetSession) -> None:
        for _ in range(self.steps):
            await asyncio.sleep(min(1.0, self.duration_s))
            session.progress.step()


def _time_left(until: float) -> bool:
    return asyncio.get_running_loop().time() < until
