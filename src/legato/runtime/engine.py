"""What the loop needs of an engine: llama.cpp's in the worker, a modelled one in a simulation."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from legato.core import calls
from legato.core.answers import EngineEnd, Logprobs
from legato.core.tokens import KvState
from legato.runtime.request import Request
from legato.scheduling.costs import Work
from legato.scheduling.plan import Outcome, Plan


@dataclass(slots=True)
class CallResult:
    """What one library call brought."""

    part: Plan
    """The part of the plan that the call ran; empty if the call failed."""
    begun_s: float = 0.0
    ended_s: float = 0.0
    """After sampling; both on the engine's clock, and written by the loop."""
    committed: dict[int, int] = field(default_factory=dict)
    """Tokens that answers gained, by request."""
    tokens: list[tuple[int, int, Logprobs | None]] = field(default_factory=list)
    """New tokens to send: request, token, log-probabilities if wanted."""
    ended: list[tuple[int, EngineEnd, str]] = field(default_factory=list)
    """Requests that have their last token: request, why, and the error's text."""

    @classmethod
    def failure(cls, part: Plan, reason: str) -> CallResult:
        """Of a call that ended every request in it.

        Args:
            part: What was to be run.
            reason: A sentence.
        """
        ids = [*part.decodes, *(chunk.id for chunk in part.chunks)]
        return cls(Plan(), ended=[(i, "failed", reason) for i in ids])

    @property
    def took_s(self) -> float:
        """From its begin to its end."""
        return self.ended_s - self.begun_s

    @property
    def outcome(self) -> Outcome:
        """The same in the scheduler's words."""
        return Outcome(self.committed, [i for i, reason, _ in self.ended if reason != "failed"])

    def as_call(self, predicted_s: float) -> calls.Call:
        """The same in the meter's words.

        Args:
            predicted_s: What it was expected to take.
        """
        chunks = [calls.PrefillChunk(chunk.id, chunk.start, chunk.length) for chunk in self.part.chunks]
        return calls.Call(self.begun_s, self.ended_s, list(self.part.decodes), chunks, predicted_s)


class Requests(Protocol):
    """Those that hold KV cells, by id."""

    def __getitem__(self, request_id: int) -> Request:
        """One of them."""
        ...


def work_of(part: Plan, requests: Requests, *, interrupting: bool = False) -> Work:
    """What is in a library call, in the cost model's words; asked before its outcome is committed.

    Args:
        part: The call.
        requests: In it.
        interrupting: It is run between two nodes of another one.
    """
    depths = tuple(requests[i].computed_tokens + 1 for i in part.decodes)
    return Work(depths, tuple((chunk.start, chunk.length) for chunk in part.chunks), interrupting)


class Engine(Protocol):
    """Evaluates tokens and chooses new ones. It owns `sampler` and `answer` of each request, and nothing else of it."""

    def open(self, request: Request) -> None:
        """A request was given KV cells, for the first time or again."""
        ...

    def close(self, request: Request) -> None:
        """A request has ended, in whatever phase it was."""
        ...

    def calls(self, plan: Plan) -> Iterable[Plan]:
        """The library calls that a plan takes, in their order; an interruptible chunk is a call of its own."""
        ...

    def run(self, part: Plan, requests: Requests) -> CallResult:
        """Make one library call, and sample.

        Args:
            part: What is in it.
            requests: Those in it.

        Raises:
            AbortedError: It was interruptible and was ended; what it prefilled counts for nothing.
            EngineError: It failed; the requests in it are lost.
        """
        ...

    def interrupt_by(self, at_node: Callable[[], bool]) -> None:
        """Have a function asked between the nodes of interruptible calls; True ends the call."""
        ...

    def leave_prefill_context(self, slot: int) -> KvState:
        """Move what was prefilled interruptibly into a slot.

        Returns:
            The state that was moved.

        Raises:
            EngineError: The library refuses.
        """
        ...
