"""What all scenarios have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, ClassVar

from legato.bench.client import Client
from legato.bench.progress import BenchProgress
from legato.bench.prompts import Prompts
from legato.bench.results import ScenarioName


@dataclass(slots=True)
class TargetSession:
    """What a scenario works with: one target in one run, and text of known lengths."""

    client: Client
    prompts: Prompts
    progress: BenchProgress
    notes: list[str] = field(default_factory=list)
    """Sentences about this target's figures, for their reader."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """What whoever sets a scenario's field is told of it."""

    help: str
    least: float | None = None
    """The smallest value it takes; None if any, or if more than that is to be checked."""
    option: str = ""
    """What the command calls it, if not by the field's name."""


Rounds = Annotated[int, Parameter("How often everything is done.", least=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario(ABC):
    """A load on one target at a time; each field is annotated with its `Parameter`."""

    name: ClassVar[ScenarioName]
    """As the command and the saved run call it."""

    @property
    def options(self) -> dict[str, Any]:
        """What it was made with, for the saved run."""
        return asdict(self)

    @property
    @abstractmethod
    def steps(self) -> int:
        """How often it calls `session.progress.step()`, about."""

    @property
    @abstractmethod
    def context_tokens(self) -> int:
        """Longest prompt and answer together, tokens."""

    @abstractmethod
    async def run(self, session: TargetSession) -> None:
        """Put the load on the target of the session; return when all answers are there."""
