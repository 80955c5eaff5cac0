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
                person = self._talk(
                    session,
                    f"person {number}",
                    until,
                    think_s=self.think_s,
                    message_tokens=self.turn_tokens,
                    answer_tokens=self.answer_tokens,
                    conversation_tokens=self.conversation_tokens,
                )
                group.create_task(person)
            for number in range(1, self.jobs + 1):
                job = self._talk(
                    session,
                    f"job {number}",
                    until,
                    message_tokens=self.job_tokens,
                    answer_tokens=self.job_answer_tokens,
                    depth=self.job_tokens,
                )
                group.create_task(job)
            group.create_task(self._clock(session))

    async def _talk(
        self,
        session: TargetSession,
        role: str,
        until: float,
        *,
        think_s: float = 0,
        message_tokens: int,
        answer_tokens: int,
        conversation_tokens: int = 0,
        depth: int = 0,
    ) -> None:
        """Send message after message; a conversation ends with the answer after which it is that long, tokens."""
        source = random.Random(f"{session.prompts.seed}/{role}")
        conversation: list[Message] = []
        for turn in count():
            # Also before the first message: people do not come all at the same instant.
            await asyncio.sleep(source.expovariate(1 / think_s) if think_s else 0)
            if asyncio.get_running_loop().time() >= until:
                return
            message = user(session.prompts.text(f"{role} {turn}", message_tokens))
            answer = await session.client.ask(
                [*conversation, message], answer_tokens, role=role, round=turn, depth=depth
            )
            if answer.measured.error:
                await asyncio.sleep(AFTER_ERROR_S)
                continue
            conversation += [message, assistant(answer.text)]
            # As the server counts, or as it was planned.
            planned = len(conversation) // 2 * (message_tokens + answer_tokens) - answer_tokens
            if (answer.measured.prompt_tokens or planned) + answer_tokens >= conversation_tokens:
                conversation = []

    async def _clock(self, session: TargetSession) -> None:
        for _ in range(self.steps):
            await asyncio.sleep(min(1.0, self.duration_s))
            session.progress.step()
