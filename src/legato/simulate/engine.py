"""An engine without a model: its calls take the time that a cost model says, and its answers are as long as given."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

import numpy as np

from legato.core.engine_errors import AbortedError, EngineError
from legato.core.tokens import KvState
from legato.runtime.engine import CallResult, Requests, work_of
from legato.runtime.request import Request
from legato.scheduling.costs import CostModel
from legato.scheduling.plan import Plan
from legato.simulate.cells import ModelledCells
from legato.simulate.clock import VirtualClock

NODE_S = 0.002
"""What an interruptible call can't be interrupted for."""
TOKENS_OF_ANSWERS = 1_000_000
"""Tokens of answers are like no tokens of prompts: this, and their request's number and place beyond it."""


class ModelledEngine:
    """Evaluates nothing, and takes its time for it.

    Args:
        clock: Moved on by each call.
        truth: What calls take. What the loop believes is another cost model.
        answer_tokens: After how many tokens the model would end a request's answer by itself, by its number.
        slowness: What each call takes over that, over and over.
        gains: Tokens that decodes commit, over and over: more than one as speculative decoding does.
        joined_calls: One call a step instead of one for the decodes and one for each chunk.
        cells: Filled with what is evaluated; None if nobody looks.
    """

    def __init__(
        self,
        clock: VirtualClock,
        truth: CostModel,
        *,
        answer_tokens: Callable[[int], int],
        slowness: Iterable[float] = (1.0,),
        gains: Iterable[int] = (1,),
        joined_calls: bool = False,
        cells: ModelledCells | None = None,
    ) -> None:
        self._clock = clock
        self._truth = truth
        self._answer_tokens = answer_tokens
        self._slowness = itertools.cycle(slowness)
        self._gains = itertools.cycle(gains)
        self._joined_calls = joined_calls
        self._cells = cells
        self._at_node: Callable[[], bool] = lambda: False
        self.failing: set[int] = set()
        """Requests whose next call fails, and with it all in that call."""

    def interrupt_by(self, at_node: Callable[[], bool]) -> None:
        """Have a function asked between the nodes of interruptible calls; True ends the call."""
        self._at_node = at_node

    def open(self, request: Request) -> None:
        """Nothing is needed for it."""

    def close(self, request: Request) -> None:
        """Nothing is left of it."""

    def calls(self, plan: Plan) -> list[Plan]:
        """One call for the decodes and one for each chunk, or one for all."""
        if self._joined_calls and plan.interruptible is None:
            return [Plan(plan.decodes, plan.chunks)] if plan.decodes or plan.chunks else []
        decodes = [Plan(decodes=plan.decodes)] if plan.decodes else []
        return decodes + [Plan(chunks=(chunk,)) for chunk in plan.chunks]

    def run(self, part: Plan, requests: Requests) -> CallResult:
        """Let the time of a call pass.

        Raises:
            AbortedError: It was interruptible and was ended.
            EngineError: `failing` says so.
        """
        if failed := self.failing & {*part.decodes, *(chunk.id for chunk in part.chunks)}:
            self.failing -= failed
            raise EngineError("the call failed")
        took_s = self._truth.predict(work_of(part, requests)) * next(self._slowness)
        if part.interruptible is not None:
            self._pass_interruptibly(took_s)
        else:
            self._clock.sleep(took_s)
        result = CallResult(part)
        for request_id in part.decodes:
            self._evaluate(requests[request_id], requests[request_id].computed_tokens, 1)
            self._write(requests[request_id], result, next(self._gains))
        for chunk in part.chunks:
            request = requests[chunk.id]
            assert chunk.start == request.computed_tokens, "chunks follow each other"
            self._evaluate(request, chunk.start, chunk.length)
            if chunk.start + chunk.length == request.prompt_tokens and not request.new_tokens:
                self._write(request, result, 1)
        return result

    def leave_prefill_context(self, slot: int) -> KvState:
        """Nothing has to be moved; returns an empty state."""
        return np.empty(0, dtype=np.uint8)

    def _pass_interruptibly(self, took_s: float) -> None:
        left_s = took_s
        while left_s > 0:  # the library asks before each node, the first one too
            if self._at_node():
                raise AbortedError("the call was aborted")
            node_s = min(left_s, NODE_S)
            self._clock.sleep(node_s)
            left_s -= node_s

    def _evaluate(self, request: Request, start: int, count: int) -> None:
        if self._cells is not None:
            assert request.slot is not None, "only admitted requests are planned"
            assert request.restore is None, "nobody goes on before its beginning is there"
            tokens = request.tokens[start : start + count]
            assert len(tokens) == count, "only what is there is evaluated"
            self._cells.evaluate(request.slot, tokens, start)

    def _write(self, request: Request, result: CallResult, most: int) -> None:
        """An answer's next tokens, and its end after the last of them."""
        length = min(self._answer_tokens(request.id), request.max_new_tokens)
        count = min(most, length - request.new_tokens)
        result.committed[request.id] = count
        for place in range(request.new_tokens, request.new_tokens + count):
            token = TOKENS_OF_ANSWERS + 1000 * request.id + place
            request.answer.append(token)
            result.tokens.append((request.id, token, None))
        if request.new_tokens + count >= length:
            result.ended.append((request.id, "length" if length == request.max_new_tokens else "stop", ""))
