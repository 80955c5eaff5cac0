"""The engine's loop: take in messages, plan a step, run it, commit, report. Nothing else runs in it.

It is written once, over protocols: the worker gives it the machine's clock, llama.cpp and a store that remembers; a
simulation gives it a clock of its own, a modelled engine, and whatever store it asks about.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence as Listing
from dataclasses import dataclass
from typing import Protocol

from legato.core.cache import Restored
from legato.core.calls import Call
from legato.core.clock import Clock
from legato.core.engine_errors import AbortedError, EngineError
from legato.runtime.engine import CallResult, Engine, work_of
from legato.runtime.interruption import Interruption, OpenCall, Turn
from legato.runtime.kv_store import KvStore
from legato.runtime.request import Request
from legato.scheduling.costs import CostModel
from legato.scheduling.plan import Chunk, Plan
from legato.scheduling.policies import Policy, make_policy
from legato.scheduling.scheduler import NeverFitsError, Released, Scheduler
from legato.wire.messages import (
    CacheCommand,
    CacheReply,
    Cancel,
    Configure,
    FromWorker,
    LearnedCosts,
    Report,
    SetBudgets,
    Submit,
    ToWorker,
)

logger = logging.getLogger(__name__)

LEARNED_ENOUGH = 64
"""Calls after which what was learned of them is worth keeping."""
HELD_BACK_LOOK_S = 0.001
"""How often those are looked after who wait for a remembered prompt from disk, while there is nothing else to do."""
SPARE_TIME_EVERY_S = 0.05
"""How often is looked for something to save while answers are written: looking takes time from each token."""


@dataclass(frozen=True, slots=True)
class LoopLimits:
    """What can't be changed while running."""

    step_tokens: int
    """Most prompt tokens in one step."""
    default_chunk: int
    """Prompt tokens that a step of policy `chunked` prefills if nothing else was said."""
    background_wait_s: float = 600.0
    """Longest time that the oldest background request waits for others."""
    interruptible: bool = False
    """Long prompts can be prefilled interruptibly."""
    joined_calls: bool = False
    """A step is one library call, as far as it fits into one."""
    record_calls: bool = True
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
    """Continuous batching over one engine.

    Args:
        clock: Of all instants.
        mailbox: Where requests come from and reports go to.
        engine: Runs the plans.
        kv: Lends and remembers KV state.
        costs: Predicts calls and learns from them.
        configuration: How steps are planned at first.
        limits: What can't be changed while running.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        mailbox: Mailbox,
        engine: Engine,
        kv: KvStore,
        costs: CostModel,
        configuration: Configure,
        limits: LoopLimits,
    ) -> None:
        self._now_s = clock.now_s
        self._sleep = clock.sleep
        self._mailbox = mailbox
        self._engine = engine
        self._kv = kv
        self._costs = costs
        self._limits = limits
        self.scheduler: Scheduler[Request] = Scheduler(
            self._policy(configuration),
            kv.lender,
            gap_target_s=configuration.gap_target_s,
            background_wait_s=limits.background_wait_s,
        )
        """Holds the requests; whoever is not in there is gone."""
        self._interruption = Interruption(clock, self)
        engine.interrupt_by(self._interruption.at_node)
        self._mail: ToWorker | None = None
        """A message that has come and is not taken in yet."""
        self._calls_learned = 0
        self._spare_time_at_s = 0.0
        """When to look again for what can wait, while answers are written."""

    def run(self) -> None:
        """Serve until the process ends. Without work it blocks: an idle server uses no CPU."""
        while True:
            self.step()

    def close(self) -> None:
        """The server is gone: put what is remembered where the next one finds it."""
        self._kv.close()

    @property
    def is_busy(self) -> bool:
        """Whether anybody holds cells or waits for them."""
        return self.scheduler.running > 0 or self.scheduler.queued > 0

    def step(self) -> Plan:
        """One pass: messages, admission, one plan and its calls.

        Returns:
            What was done.
        """
        if not self.is_busy:
            self._wait()
        self._take_mail()
        self._admit()
        plan = self.scheduler.plan(self._now_s())
        self._run(plan)
        if not plan.chunks and not plan.restores:
            self._use_spare_time(plan)
        return plan

    # Messages

    def has_mail(self) -> bool:
        """Whether there are messages to take in."""
        if self._mail is None:
            self._mail = self._mailbox.receive(wait=False)
        return self._mail is not None

    def _wait(self) -> None:
        """Until there is a message. Before it blocks, everything is done that can wait."""
        if self._calls_learned >= LEARNED_ENOUGH:
            self._calls_learned = 0
            self._mailbox.send(LearnedCosts(self._costs.coefficients))
        while not self.has_mail() and self._kv.use_idle_time():
            pass
        self._tell_cache()
        if self._mail is None:
            self._mail = self._mailbox.receive(wait=True)

    def _take_mail(self) -> None:
        while self.has_mail():
            message, self._mail = self._mail, None
            match message:
                case Submit():
                    self._submit(message)
                case Cancel(id=request_id):
                    self._end(request_id)
                case CacheCommand(number=number, action=action, entry=entry):
                    found = self._kv.act(action, entry)
                    self._mailbox.send(CacheReply(number, found, self._kv.listing, self._kv.figures))
                case SetBudgets(memory_bytes=memory_bytes, disk_bytes=disk_bytes):
                    self._kv.set_budgets(memory_bytes, disk_bytes)
                    self._tell_cache()
                case Configure():
                    self.scheduler.gap_target_s = message.gap_target_s
                    self.scheduler.policy = self._policy(message)

    def _submit(self, message: Submit) -> None:
        try:
            self.scheduler.add(Request.of(message, self._now_s()))
        except NeverFitsError as error:
            self._mailbox.send(Report(self._now_s(), ended=[(message.id, "failed", str(error))]))

    def _policy(self, wanted: Configure) -> Policy:
        return make_policy(
            wanted.policy,
            costs=self._costs,
            gap_target_s=wanted.gap_target_s,
            chunk=wanted.chunk or self._limits.default_chunk,
            step_tokens=self._limits.step_tokens,
            interruptible=self._limits.interruptible,
            joined=self._limits.joined_calls,
        )

    def _tell_cache(self) -> None:
        if (figures := self._kv.figures_if_changed()) is not None:
            self._mailbox.send(figures)

    # Requests come and go

    def _admit(self) -> None:
        now_s = self._now_s()
        for request_id, restore in self._kv.between_steps(self.scheduler.held_back, now_s):
            self.scheduler.await_restore(request_id, restore)
        admission = self.scheduler.admit(now_s)
        if not admission.admitted:
            return
        for released in admission.preempted:
            self._kv.let_go(released.request)
        restored: list[Restored] = []
        for request, lease in admission.admitted:
            self._engine.open(request)
            begun = self._kv.begin(request, lease, now_s)
            if isinstance(begun, Restored):
                self.scheduler.restored(request.id, begun.tokens)
                restored.append(begun)
            else:
                self.scheduler.await_restore(request.id, begun)
        # Sent before the prompts are prefilled: if one takes the worker down, the server knows whose it was.
        admitted = [request.id for request, _ in admission.admitted]
        preempted = [released.request.id for released in admission.preempted]
        self._mailbox.send(Report(self._now_s(), admitted=admitted, restored=restored, preempted=preempted))

    def _end(self, request_id: int, *, is_sound: bool = True) -> None:
        """A request ends before its time, in whatever phase it is; nothing happens if there is none.

        Args:
            request_id: Whose.
            is_sound: What its cells hold is right.
        """
        if (request := self.scheduler.find(request_id)) is not None:
            self._gone(request, self.scheduler.cancel(request_id), is_sound=is_sound)

    def _gone(self, request: Request, released: Released[Request] | None, *, is_sound: bool = True) -> None:
        """A request has ended, and the scheduler holds it no more: nobody does from here on.

        Args:
            request: Which.
            released: What it held, if it held cells.
            is_sound: What its cells hold is right.
        """
        if released is not None:
            computed_tokens = released.computed_tokens if is_sound else 0
            self._kv.released(request, released.slot, computed_tokens, self._now_s())
        self._engine.close(request)

    # Steps

    def _run(self, plan: Plan, *, interrupting: bool = False) -> None:
        """Run a plan; commit and report it call by call."""
        given_up = [self.scheduler[i] for i in plan.given_up]
        raised = self.scheduler.apply(plan)
        for request in given_up:
            self._kv.let_go(request)
        for part in self._engine.calls(plan):
            result, opened = self._call(part)
            if result is None:
                return
            self._take_in(result, raised, opened, interrupting=interrupting)
            raised = []
        for request_id in plan.restores:
            self._restore(self.scheduler[request_id])

    def _call(self, part: Plan) -> tuple[CallResult | None, OpenCall | None]:
        """Make one library call; no result if it was given up. Of an interruptible one, how it went."""
        chunk, opened = part.interruptible, None
        if chunk is not None:
            opened = self._interruption.open(chunk, self._costs.chunk_s(chunk.start, chunk.length))
        begun_s = self._now_s()
        try:
            result: CallResult | None = self._engine.run(part, self.scheduler)
        except AbortedError:
            result = None
        except EngineError as error:
            result = CallResult.failure(part, f"The engine failed: {error}.")
        finally:
            if chunk is not None:
                self._interruption.close()
        if result is not None:
            result.begun_s, result.ended_s = begun_s, self._now_s()
        return result, opened

    def _take_in(
        self, result: CallResult, raised: list[tuple[int, float]], opened: OpenCall | None, *, interrupting: bool
    ) -> None:
        """Commit and report what a call brought."""
        call = self._learn(result, opened, interrupting=interrupting) if result.part else None
        released = self.scheduler.commit(result.part, result.outcome, result.ended_s)
        if result.tokens or result.ended or raised or call:
            self._report(result.ended_s, call, result, raised)
        for one in released:
            self._gone(one.request, self._brought_home(one))
        for request_id, reason, _ in result.ended:
            if reason == "failed":
                self._end(request_id, is_sound=False)
        for chunk in result.part.chunks:
            if chunk.interruptible and chunk.id in self.scheduler and not self.scheduler[chunk.id].prefill_left:
                self._leave_prefill_context(self.scheduler[chunk.id])

    def _learn(self, result: CallResult, opened: OpenCall | None, *, interrupting: bool) -> Call:
        """What a call took beside what was expected."""
        work = work_of(result.part, self.scheduler, interrupting=interrupting)
        self._calls_learned += 1
        if opened is not None:
            call = opened.last_slice(result.ended_s)
            took_s = opened.spent_s
            self.scheduler.policy.note_node(opened.node_share)
        else:
            call = result.as_call(self._costs.predict(work))
            took_s = result.took_s
        self._costs.observe(work, took_s)
        self._note_prefill(call)
        return call

    def _note_prefill(self, call: Call) -> None:
        for chunk in call.chunks:
            self.scheduler.note_prefill(chunk.request, call.took_s / len(call.chunks))

    def _report(
        self,
        at_s: float,
        call: Call | None,
        result: CallResult | None = None,
        raised: Listing[tuple[int, float]] = (),
        restored: Listing[Restored] = (),
    ) -> None:
        tokens, ended = (result.tokens, result.ended) if result else ([], [])
        if not self._limits.record_calls:
            call = None
        self._mailbox.send(
            Report(at_s, restored=list(restored), tokens=tokens, ended=ended, raised=list(raised), call=call)
        )

    # Moving KV state

    def _restore(self, request: Request) -> None:
        """Put the remembered beginning of a prompt into its cells."""
        assert request.slot is not None, "only admitted requests are planned"
        outcome = self._kv.restore(request, request.slot, self._now_s())
        if isinstance(outcome, Restored):
            self.scheduler.restored(request.id, outcome.tokens)
            self._report(self._now_s(), None, restored=[outcome])
        else:
            self.scheduler.await_restore(request.id, outcome)

    def _leave_prefill_context(self, request: Request) -> None:
        """Move a prompt's KV state into its slot."""
        assert request.slot is not None, "it was planned"
        try:
            self._move(request, request.slot)
        except EngineError as error:
            self._end(request.id, is_sound=False)
            reason = f"The engine failed: {error}."
            self._mailbox.send(Report(self._now_s(), ended=[(request.id, "failed", reason)]))
            return
        self.scheduler.left_prefill_context(request.id)

    def _brought_home(self, released: Released[Request]) -> Released[Request]:
        """Move the state of a request that has ended where its prompt was prefilled into the cells that it held.

        Its answer had one token alone; the next one may be about the same document.
        """
        if not released.in_prefill_context or not self._kv.remembers:
            return released
        try:
            self._move(released.request, released.slot)
        except EngineError as error:
            logger.warning("a prompt that was prefilled is not remembered: %s", error)
            return released
        return Released(released.request, released.slot, released.request.computed_tokens)

    def _move(self, request: Request, slot: int) -> None:
        """Move what was prefilled interruptibly into a slot, right after the others had their tokens.

        Raises:
            EngineError: The library refuses.
        """
        plan = self.scheduler.plan(self._now_s())
        if plan.decodes:
            self._run(plan.decodes_alone())
        self._kv.keep(request, self._engine.leave_prefill_context(slot))

    # While a long prompt's call is open; see `legato.runtime.interruption`

    def due_s(self, now_s: float) -> float:
        """When the next token of anybody has to be decoded."""
        return self.scheduler.due_s(now_s)

    def take_slice(self, part: Call) -> None:
        """A part of the open call was run."""
        self._report(part.ended_s, part)
        self._note_prefill(part)

    def step_between(self, chunk: Chunk) -> Turn:
        """Take messages in, and run one step of others while a chunk is open."""
        self._take_mail()
        self._admit()
        if chunk.id not in self.scheduler:
            return Turn.NEVER
        plan = self.scheduler.plan(self._now_s())
        ours = plan.interruptible
        if ours is not None and ours.id != chunk.id:
            return Turn.NEVER
        self._run(plan.beside_interruptible(), interrupting=True)
        return Turn.OTHERS if ours is None else Turn.PREFILL

    # In the time that is left

    def _use_spare_time(self, plan: Plan) -> None:
        """Nothing is being prefilled: what can wait may take what answers leave."""
        now_s = self._now_s()
        if plan and now_s >= self._spare_time_at_s:
            self._spare_time_at_s = now_s + SPARE_TIME_EVERY_S
            self._kv.use_time(self.scheduler.room_s(now_s))
        elif not plan and self.scheduler.held_back:
            self._sleep(HELD_BACK_LOOK_S)
