"""One request at a time, at several lengths: what the server does when nobody else is there."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import product
from typing import Any, ClassVar

from legato.bench.results import ScenarioName
from legato.bench.scenarios.scenario import with_slack
from legato.bench.session import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class Solo:
    """Every prompt length with every answer length."""

    name: ClassVar[ScenarioName] = "solo"

    prompt_tokens: tuple[int, ...] = (128, 1024, 4096)
    answer_tokens: tuple[int, ...] = (128,)
    rounds: int = 3

    @property
    def options(self) -> dict[str, Any]:
        """Lengths and rounds."""
        return asdict(self)

    @property
    def steps(self) -> int:
        """Requests."""
        return self.rounds * len(self.prompt_tokens) * len(self.answer_tokens)

    @property
    def context_tokens(self) -> int:
        """The longest prompt with the longest answer."""
        return with_slack(max(self.prompt_tokens) + max(self.answer_tokens))

    async def run(self, session: Session) -> None:
        """Round by round, so that a slow change of the machine touches all lengths alike."""
        for number in range(self.rounds):
            for prompt, answer in product(self.prompt_tokens, self.answer_tokens):
                text = session.prompts.text(f"solo {number} {prompt} {answer}", prompt)
                role = f"{prompt} tokens in, {answer} out"
                await session.ask(text, answer, role=role, round=number, depth=prompt)
                session.progress.step()
