"""One request in the engine: everything that is kept of it there, in one object that is gone with it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from legato.core.sampling import SamplingParameters
from legato.core.tokens import Tokens
from legato.kv.sources import Source
from legato.scheduling.sequence import Sequence
from legato.wire.messages import Submit


class Sampler(Protocol):
    """Chooses the tokens of one answer, with whatever state that takes."""

    def close(self) -> None:
        """Free what it holds."""
        ...


@dataclass(slots=True, kw_only=True)
class Request(Sequence):
    """A request on its way through the engine.

    Each field has one owner: those of `Sequence` belong to `legato.scheduling`, `sampler` and `answer` to the engine,
    `awaits` to `legato.kv`. The scheduler's queue and its table of those who hold cells are the only places that hold
    requests: whoever is in neither is gone.
    """

    prompt: Tokens
    sampling: SamplingParameters
    top_logprobs: int | None = None
    """How many likeliest tokens to report beside each token; None reports no log-probabilities."""
    sampler: Sampler | None = None
    """None until it first has KV cells."""
    answer: list[int] = field(default_factory=list)
    """The tokens written so far; the latest is the next decode's input."""
    awaits: Source | None = None
    """Where the beginning of its prompt comes from, while that is not in its cells."""

    @classmethod
    def of(cls, submit: Submit, arrived_s: float) -> Request:
        """A request as it was submitted.

        Args:
            submit: What is asked.
            arrived_s: When it joined the queue, on the engine's clock.
        """
        return cls(
            id=submit.id,
            prompt_tokens=len(submit.prompt) // 4,
            max_new_tokens=submit.max_new_tokens,
            client=submit.client,
            gap_target_s=submit.gap_target_s,
            background=submit.background,
            arrived_s=arrived_s,
            prompt=submit.tokens,
            sampling=submit.sampling,
            top_logprobs=submit.top_logprobs,
        )

    @property
    def tokens(self) -> Tokens:
        """What is in its cells or is to come there: its prompt, and what it has written."""
        if not self.answer:
            return self.prompt
        return np.concatenate([self.prompt, np.array(self.answer, dtype=np.int32)])
