"""The engine's loop: take in messages, plan a step, run it, commit, report. Nothing else runs in it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol

from legato.engine.context import Context
from legato.kv.slots import KvSlots
from legato.runtime.executor import CallResult, Executor
from legato.runtime.messages import Cancel, Configure, FromWorker, LearnedCosts, Report, Submit, ToWorker
from legato.scheduling.costs import CostModel, Work
from legato.scheduling.policies import Policy, make_policy
from legato.scheduling.scheduler import NeverFitsError, Scheduler
from legato.scheduling.state import Plan, Sequence
from legato.telemetry.calls import Call

LEARNED_ENOUGH = 64
"""Calls after which what was learned of them is worth keeping."""
RAISED_BY = 1.1
"""A gap target that was raised is reported again when it is raised by this factor more."""


@dataclass(frozen=True, slots=True)
class LoopLimits:
    """What can't be changed while running."""

    step_tokens: int
    """Most prompt tokens in one step."""
    default_chunk: int
    """Prompt tokens that a step of policy `chunked` reads if nothing else was said."""
    background_wait_s: float
    """Longest time that the oldest background request waits for others."""
    record_calls: bool
    """Report every call, not only what it brought."""


class Mailbox(Protocol):
    """The worker's end of its connection to the server."""

    def receive(self, *, wait: bool) -> ToWorker | None:
        """The next message; with `wait` it blocks until there is one, else None says that there is none."""
        ...

    def send(self, message: FromWorker) -> None:
        """Send without waiting."""
        ...


class EngineLoop:
    """Continuous batching over one context.

    Args:
        mailbox: Where requests come from and reports go to.
        context: Whose cells the requests share.
        executor: Runs the plans on that context.
        costs: Predicts calls and learns from them.
        configuration: How steps are planned at first.
        limits: What can't be changed while running.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        context: Context,
        executor: Executor,
        costs: CostModel,
        configuration: Configure,
        limits: LoopLimits,
    ) -> None:
        self._mailbox = mailbox
        self._context = context
        self._executor = executor
        self._costs = costs
        self._limits = limits
        self._gap_target_s = configuration.gap_target_s
        slots = KvSlots(context.sequences, context.cells_per_sequence)
        self._scheduler = Scheduler(self._policy(configuration), slots, background_wait_s=limits.background_wait_s)
        self._requests: dict[int, Submit] = {}
        self._calls_learned = 0

    def run(self) -> None:
        """Serve until the process ends. Without work it blocks: an idle server uses no CPU."""
        while True:
            self.step()

    def step(self) -> None:
        """One pass: messages, admission, one plan and its calls."""
        idle = self._scheduler.running == 0 and self._scheduler.queued == 0
        if idle and self._calls_learned >= LEARNED_ENOUGH:
            self._calls_learned = 0
            self._mailbox.send(LearnedCosts(self._costs.coefficients))
        while message := self._mailbox.receive(wait=idle):
            idle = False
            self._take(message)
        self._admit()
        plan = self._scheduler.plan(time.monotonic())
        raised = self._raised(plan)
        for result in self._executor.run(plan, self._scheduler):
            call = self._learn(result) if result.part else None
            for slot in self._scheduler.commit(result.part, result.outcome, result.ended_s):
                self._context.remove(slot)
            for request_id, reason, _ in result.ended:
                if reason == "failed":
                    self._forget(request_id)
                else:
                    self._requests.pop(request_id, None)
                    self._executor.close(request_id)
            if not self._limits.record_calls:
                call = None
            if result.tokens or result.ended or raised or call:
                at_s = result.ended_s or time.monotonic()
                self._mailbox.send(Report(at_s, tokens=result.tokens, ended=result.ended, raised=raised, call=call))
            raised = []

    def _learn(self, result: CallResult) -> Call:
        """What a call took beside what was expected."""
        depths = tuple(self._scheduler[i].computed_tokens + 1 for i in result.part.decodes)
        work = Work(depths, tuple((chunk.start, chunk.length) for chunk in result.part.chunks))
        predicted_s = self._costs.predict(work)
        self._costs.observe(work, result.ended_s - result.begun_s)
        self._calls_learned += 1
        return result.call(predicted_s)

    def _raised(self, plan: Plan) -> list[tuple[int, float]]:
        """The answers whose targets this step can't keep, unless that was said before."""
        raised: list[tuple[int, float]] = []
        for request_id in plan.decodes:
            sequence = self._scheduler[request_id]
            target_s = self._gap_target_s if sequence.gap_target_s is None else sequence.gap_target_s
            known_s = max(target_s, RAISED_BY * sequence.raised_gap_target_s)
            if plan.shortest_gap_s > known_s:
                sequence.raised_gap_target_s = plan.shortest_gap_s
                raised.append((request_id, plan.shortest_gap_s))
        return raised

    def _policy(self, wanted: Configure) -> Policy:
        return make_policy(
            wanted.policy,
            costs=self._costs,
            gap_target_s=wanted.gap_target_s,
            chunk=wanted.chunk or self._limits.default_chunk,
            step_tokens=self._limits.step_tokens,
        )

    def _take(self, message: ToWorker) -> None:
        match message:
            case Submit():
                self._submit(message)
            case Cancel():
                self._forget(message.id)
            case Configure():
                self._gap_target_s = message.gap_target_s
                self._scheduler.policy = self._policy(message)

    def _submit(self, request: Submit) -> None:
        sequence = Sequence(
            request.id,
            len(request.prompt) // 4,
            request.max_new_tokens,
            client=request.client,
            gap_target_s=request.gap_target_s,
            background=request.background,
            arrived_s=time.monotonic(),
        )
        try:
            self._scheduler.add(sequence)
        except NeverFitsError as error:
            self._mailbox.send(Report(time.monotonic(), ended=[(request.id, "failed", str(error))]))
            return
        self._requests[request.id] = request

    def _admit(self) -> None:
        admission = self._scheduler.admit(time.monotonic())
        if not admission.admitted:
            return
        for slot in admission.freed:
            self._context.remove(slot)
        for sequence in admission.admitted:
            self._executor.open(self._requests[sequence.id], sequence.max_new_tokens)
        # Sent before the prompts are read: if a prompt takes the worker down, the server knows whose it was.
        admitted, preempted = ([s.id for s in group] for group in (admission.admitted, admission.preempted))
        self._mailbox.send(Report(time.monotonic(), admitted=admitted, preempted=preempted))

    def _forget(self, request_id: int) -> None:
        self._requests.pop(request_id, None)
        self._executor.close(request_id)
        slot = self._scheduler.cancel(request_id)
        if slot is not None:
            self._context.remove(slot)
