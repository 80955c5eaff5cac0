"""The policies: given who is decoding and whose prompt is being prefilled, what the next step does.

`adaptive`, the default: see `legato.scheduling.adaptive`.

`whole`: a prompt is prefilled before anything else goes on, as servers without chunked prefill do. The baseline.

`chunked`: every step decodes all running answers first and then prefills at most `chunk` prompt tokens, as
Sarathi-Serve does (Agrawal et al., OSDI 2024). The prompts take turns, so that a short question is not stuck behind a
long document: between two turns of one prompt, each other prompt has one at most.
"""

from __future__ import annotations

import math
from collections.abc import Sequence as Listing
from typing import Protocol

from legato.core.choices import PolicyName
from legato.scheduling.adaptive import Adaptive
from legato.scheduling.costs import CostModel
from legato.scheduling.plan import Chunk, Plan
from legato.scheduling.sequence import Phase, Sequence


class Policy(Protocol):
    """Plans one step from the sequences that hold KV cells, in the order in which they were admitted.

    It knows nothing of who owns the cells. Its questions change nothing; it learns from `apply` and the notes.
    """

    def plan(self, admitted: Listing[Sequence], now_s: float) -> Plan:
        """The next step, which begins now; empty only if nobody can go on."""
        ...

    def apply(self, plan: Plan) -> None:
        """One of its plans, or a part of it, is run."""
        ...

    def due_s(self, admitted: Listing[Sequence]) -> float:
        """When a chunk that is prefilled interruptibly has to be interrupted for the next decode."""
        ...

    def room_s(self, admitted: Listing[Sequence]) -> float:
        """What a step that decodes all of them has left for other work that can't be cut, such as moving KV state."""
        ...

    def note_gap(self, sequence: Sequence, gap_s: float) -> None:
        """An answer's token came so long after the one before it."""
        ...

    def note_prefill(self, sequence: Sequence, took_s: float) -> None:
        """So much time was spent on prefilling a prompt."""
        ...

    def note_node(self, share: float) -> None:
        """A call that could be interrupted could not be for this share of its time."""
        ...


class _Clockless:
    """What policies share that plan by counts alone."""

    def apply(self, plan: Plan) -> None:
        """Nothing is remembered of plans."""

    def due_s(self, admitted: Listing[Sequence]) -> float:
        """Nothing is interrupted."""
        return math.inf

    def room_s(self, admitted: Listing[Sequence]) -> float:
        """Nobody's gaps count."""
        return math.inf

    def note_gap(self, sequence: Sequence, gap_s: float) -> None:
        """Gaps change nothing."""

    def note_prefill(self, sequence: Sequence, took_s: float) -> None:
        """Nor does the time that prefill takes."""

    def note_node(self, share: float) -> None:
        """Nor do interruptions."""


class Whole(_Clockless):
    """Prefills the oldest prompt to its end before any answer goes on.

    Args:
        step_tokens: Most prompt tokens in one step. Nothing decodes between the steps of one prompt; they end only so
            that arrivals and cancellations are noticed.
    """

    def __init__(self, step_tokens: int) -> None:
        self._step_tokens = step_tokens

    def plan(self, admitted: Listing[Sequence], now_s: float) -> Plan:
        """Go on in the oldest prompt; if there is none, decode everybody."""
        for sequence in admitted:
            if sequence.phase is Phase.PREFILL:
                return Plan(chunks=(next_chunk(sequence, self._step_tokens),))
        return Plan(decodes=decoding(admitted))


class Chunked(_Clockless):
    """Decodes everybody in every step, and prefills `chunk` prompt tokens beside it, the prompts taking turns.

    Args:
        chunk: Most prompt tokens that a step prefills.
    """

    def __init__(self, chunk: int) -> None:
        self._chunk = chunk
        self._turns: tuple[int, ...] = ()
        """Whose prompts are being prefilled, by id, the next in turn first."""

    def plan(self, admitted: Listing[Sequence], now_s: float) -> Plan:
        """Decode everybody; give the step's prompt tokens to the prompt in turn, what it leaves to the next ones."""
        prefilling = {s.id: s for s in admitted if s.phase is Phase.PREFILL}
        # Newcomers join at the end: joining in front, a stream of short prompts would starve a long one.
        turns = [i for i in self._turns if i in prefilling]
        turns += [i for i in prefilling if i not in turns]
        chunks: list[Chunk] = []
        left = self._chunk
        while left and len(chunks) < len(turns):
            chunks.append(next_chunk(prefilling[turns[len(chunks)]], left))
            left -= chunks[-1].length
        turns_then = (*turns[len(chunks) :], *turns[: len(chunks)])
        return Plan(decodes=decoding(admitted), chunks=tuple(chunks), memo=turns_then)

    def apply(self, plan: Plan) -> None:
        """Those who had their turn are last."""
        if isinstance(plan.memo, tuple):
            self._turns = plan.memo


def next_chunk(sequence: Sequence, most: int) -> Chunk:
    """The next prompt tokens of a sequence, at most `most`."""
    return Chunk(
        sequence.id,
        sequence.computed_tokens,
        min(most, sequence.prefill_left),
        interruptible=sequence.in_prefill_context,
    )


def decoding(admitted: Listing[Sequence]) -> tuple[int, ...]:
    """Those that decode, by id."""
    return tuple(s.id for s in admitted if s.phase is Phase.DECODE and not s.in_prefill_context)


def make_policy(
    name: PolicyName,
    *,
    costs: CostModel,
    gap_target_s: float,
    chunk: int,
    step_tokens: int,
    interruptible: bool = False,
    joined: bool = False,
) -> Policy:
    """The policy of that name.

    Args:
        name: As in the settings.
        costs: Predicts calls, for `adaptive`.
        gap_target_s: Of answers that have no target of their own, for `adaptive`.
        chunk: Prompt tokens a step, for `chunked`.
        step_tokens: Most prompt tokens a step under any policy.
        interruptible: Whether there is a context for interruptible prefill, for `adaptive`.
        joined: Whether a step is one library call, for `adaptive`.
    """
    match name:
        case "adaptive":
            return Adaptive(
                costs, gap_target_s=gap_target_s, step_tokens=step_tokens, interruptible=interruptible, joined=joined
            )
        case "chunked":
            return Chunked(min(chunk, step_tokens))
        case "whole":
            return Whole(step_tokens)
