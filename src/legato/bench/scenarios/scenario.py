"""What all scenarios have in common."""

from __future__ import annotations

from typing import Any, Protocol

from legato.bench.results import ScenarioName
from legato.bench.session import Session


class Scenario(Protocol):
    """A load on one target at a time."""

    @property
    def name(self) -> ScenarioName:
        """As the command and the saved run call it."""
        ...

    @property
    def options(self) -> dict[str, Any]:
        """What it was made with, for the saved run."""
        ...

    @property
    def steps(self) -> int:
        """How often it calls `session.progress.step()`, about."""
        ...

    @property
    def context_tokens(self) -> int:
        """Longest prompt and answer together, tokens."""
        ...

    async def run(self, session: Session) -> None:
        """Put the load on the target of the session; return when all answers are there."""
        ...


def with_slack(tokens: int) -> int:
    """A context that holds so many tokens although prompts are only about as long as they were to be."""
    return (tokens * 5 // 4 // 256 + 1) * 256
