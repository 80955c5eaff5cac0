"""What a bench run measured: every raw time, as it is written to JSON and read back. Measures derive from these."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import msgspec

from legato.errors import LegatoError

Api = Literal["openai", "ollama"]
ScenarioName = Literal["solo", "interference", "crowd", "trace", "cache"]


class MeasuredRequest(msgspec.Struct, kw_only=True):
    """One request as its client saw it. Times are seconds; offsets count from `sent_s`."""

    role: str
    """Its part in the scenario: "chat", "document", "question", "person 3" …"""
    round: int = 0
    """Which repetition of the scenario it belongs to."""
    sent_s: float
    """When it was sent, from the beginning of this target's run."""
    prompt_tokens: int | None = None
    """As the server counted; None if it did not say."""
    cached_tokens: int | None = None
    """Prompt tokens that the server says it did not read again."""
    answer_tokens: int | None = None
    """As the server counted; None if it did not say."""
    wanted_tokens: int
    """How many the answer was to have."""
    event_s: list[float] = []
    """Arrival of each event with text."""
    ended_s: float | None = None
    """End of the stream; None if it never came."""
    error: str = ""
    """What went wrong, a sentence: refused, hung, cut off; empty if nothing did."""
    streamed: bool = True
    """False if the target answered in one piece although a stream was asked for."""
    timings: dict[str, Any] | None = None
    """What the server says itself, where it says anything."""
    hung_up: bool = False
    """True if the bench itself ended it, since it had served its purpose or the run was interrupted."""
    depth: int = 0
    """Prompt length that the scenario aimed at, tokens; 0 where it does not matter."""

    @property
    def ttft_s(self) -> float | None:
        """From sending to the first event with text."""
        return self.event_s[0] if self.event_s else None

    @property
    def gaps_s(self) -> list[float]:
        """Times between neighbouring events, as a reader sees them."""
        return [b - a for a, b in pairwise(self.event_s)]

    @property
    def tokens_per_event(self) -> float | None:
        """Above 1 where a server merges tokens into one event: its gaps are then gaps between events."""
        return self.answer_tokens / len(self.event_s) if self.answer_tokens and self.event_s else None

    @property
    def output_rate(self) -> float | None:
        """Tokens after the first a second, from the first event to the last; None if these came at the same time."""
        if not self.event_s or self.event_s[-1] <= self.event_s[0]:
            return None
        tokens = self.answer_tokens or len(self.event_s)
        return (tokens - 1) / (self.event_s[-1] - self.event_s[0])

    @property
    def stopped_early(self) -> bool:
        """True if the server ended the answer with fewer tokens than were asked for."""
        tokens = self.answer_tokens if self.answer_tokens is not None else len(self.event_s)
        return not self.error and not self.hung_up and tokens < self.wanted_tokens


class TargetRun(msgspec.Struct, kw_only=True):
    """All requests of one target in one run."""

    target: str
    """Its name in this run."""
    url: str
    api: Api
    model: str
    requests: list[MeasuredRequest] = []
    notes: list[str] = []
    """What a reader of the figures must know: no streaming, merged events, stopped early …"""


class BenchRun(msgspec.Struct, kw_only=True):
    """One run of one scenario over all targets."""

    scenario: ScenarioName
    options: dict[str, Any] = {}
    """Of the scenario: lengths, seeds, counts."""
    started_at: float
    """Unix time, s."""
    machine: str
    """CPU, cores, memory, system."""
    complete: bool = True
    """False if it was interrupted: what is here was measured before."""
    runs: list[TargetRun] = []
    format: int = 1
    """Of this file."""

    def save(self, path: Path) -> None:
        """Write as JSON.

        Raises:
            LegatoError: The file can't be written.
        """
        try:
            path.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1))
        except OSError as error:
            raise LegatoError(f"{path} can't be written: {error.strerror}.") from error


def load(path: Path) -> BenchRun:
    """Read a saved run.

    Raises:
        LegatoError: There is no such file, or it is not one of a bench run.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=BenchRun)
    except OSError as error:
        raise LegatoError(f"{path} can't be read: {error.strerror}.") from error
    except msgspec.DecodeError as error:
        raise LegatoError(f"{path} is not the result of a `legato bench` run: {error}.") from error
