"""One request at a time, at several lengths: what the server does when nobody else is there."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Annotated, ClassVar

from legato.bench.results import ScenarioName
from legato.bench.scenarios.scenario import Parameter, Rounds, Scenario, TargetSession

Lengths = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Solo(Scenario):
    """One request at a time: reading and writing at several lengths."""

    name: ClassVar[ScenarioName] = "solo"

    prompt_tokens: Annotated[Lengths, Parameter("Prompt lengths, tokens, with commas between.")] = (128, 1024, 4096)
    answer_tokens: Annotated[Lengths, Parameter("Answer lengths, tokens, with commas between.")] = (128,)
    rounds: Rounds = 3

    @property
    def steps(self) -> int:
        """Requests."""
        return self.rounds * len(self.prompt_tokens) * len(self.answer_tokens)

    @property
    def context_tokens(self) -> int:
        """The longest prompt with the longest answer."""
        return max(self.prompt_tokens) + max(self.answer_tokens)

    async def run(self, session: TargetSession) -> None:
        """Round by round, so that a slow change of the machine touches all lengths alike."""
        for number in range(self.rounds):
            for prompt, answer in product(self.prompt_tokens, self.answer_tokens):
                text = session.prompts.text(f"solo {number} {prompt} {answer}", prompt)
                role = f"{prompt} tokens in, {answer} out"
                await session.client.ask(text, answer, role=role, round=number, depth=prompt)
                session.progress.step()
