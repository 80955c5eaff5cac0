"""The engine's loop: take in messages, plan a step, run it, commit, report. Nothing else runs in it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from collections.abc import Sequence as Listing
from dataclasses import dataclass
from typing import Protocol

from legato.core.cache import Recalled
from legato.core.calls import Call
from legato.core.tokens import Tokens
from legato.engine.context import AbortedError, EngineError
from legato.kv.manager import Keeper
from legato.runtime.interruption import OpenRead
from legato.scheduling.costs import CostModel, Work
from legato.scheduling.policies import Policy, make_policy
from legato.scheduling.scheduler import NeverFitsError, Released, Scheduler
from legato.scheduling.state import Plan, Sequence
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
from legato.worker.executor import CallResult, Executor, slot_of

logger = logging.getLogger(__name__)

LEARNED_ENOUGH = 64
"""Calls after which what was learned of them is worth keeping."""
LOOK_EVERY_S = 0.002
"""How often messages are looked for while a long prompt is read."""
HELD_BACK_LOOK_S = 0.001
"""How often those are looked after who wait for a remembered prompt from disk, while there is nothing else to do."""
TEND_EVERY_S = 0.05
"""How often is looked for something to save while answers are written: looking takes time from each token."""


@dataclass(frozen=True, slots=True)
class LoopLimits:
    """What can't be changed while running."""

    step_tokens: int
    """Most prompt tokens in one step."""
    default_chunk: int
    """Prompt tokens that a step of policy `chunked` reads if nothing else was said."""
    background_wait_s: float
    """Longest time that the oldest background request waits for others."""
    interruptible: bool
    """Long prompts can be read interruptibly."""
    joined_calls: bool
    """A step is one library call, as far as it fits into one."""
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


MakeKeeper = Callable[[Callable[[int], Tokens], Callable[[int], str | None], Callable[[], bool]], Keeper]


class EngineLoop:
    """Continuous batching over one context.

    One method calls another while a call of the library is open: the library asks `at_node` between the nodes of the
    graph that reads a long prompt, and whole steps of the others run inside that question.

    Args:
        mailbox: Where requests come from and reports go to.
        executor: Runs the plans.
        costs: Predicts calls and learns from them.
        configuration: How steps are planned at first.
        limits: What can't be changed while running.
        make_keeper: Makes who remembers prompts, given the tokens of a request, who asked for it, and whether there is
            anything to do.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        executor: Executor,
        costs: CostModel,
        configuration: Configure,
        limits: LoopLimits,
        make_keeper: MakeKeeper,
    ) -> None:
        self._mailbox = mailbox
        self._executor = executor
        self._costs = costs
        self._limits = limits
        self._gap_target_s = configuration.gap_target_s
        self._requests: dict[int, Submit] = {}
        self._keeper = make_keeper(self._tokens_of, self._client_of, lambda: self.is_busy)
        self._scheduler = Scheduler(
            self._policy(configuration), self._keeper.cache, background_wait_s=limits.background_wait_s
        )
        self._calls_learned = 0
        self._open: OpenRead | None = None
        """What is being read interruptibly."""
        self._look_at_s = 0.0
        """When to see whether that has to be interrupted."""
        self._tend_at_s = 0.0
        """When to look again for what can wait, while answers are written."""
        self._failure: BaseException | None = None
        """What was raised during an interruption: it can't pass through the library."""

    def run(self) -> None:
        """Serve until the process ends. Without work it blocks: an idle server uses no CPU."""
        while True:
            self.step()

    def close(self) -> None:
        """The server is gone: put what is remembered where the next one finds it."""
        self._keeper.close()

    @property
    def is_busy(self) -> bool:
        """Whether anybody holds cells or waits for them."""
        return self._scheduler.running > 0 or self._scheduler.queued > 0

    def step(self) -> None:
        """One pass: messages, admission, one plan and its calls."""
        message = self._mailbox.receive(wait=False) if self.is_busy else self._wait()
        while message is not None:
            self._take(message)
            message = self._mailbox.receive(wait=False)
        self._admit()
        plan = self._scheduler.plan(time.monotonic())
        self._run(plan)
        if not plan.chunks and not plan.moves:
            self._use_spare_time(plan)

    def _wait(self) -> ToWorker | None:
        """The next message. Before it blocks, everything is done that can wait."""
        if self._calls_learned >= LEARNED_ENOUGH:
            self._calls_learned = 0
            self._mailbox.send(LearnedCosts(self._costs.coefficients))
        message = self._mailbox.receive(wait=False)
        while message is None and self._keeper.tend_or_wait():
            message = self._mailbox.receive(wait=False)
        self._tell_cache()
        return message or self._mailbox.receive(wait=True)

    def _use_spare_time(self, plan: Plan) -> None:
        """Nothing is being read: what can wait may take what answers leave."""
        now_s = time.monotonic()
        if plan and now_s >= self._tend_at_s:
            self._tend_at_s = now_s + TEND_EVERY_S
            self._keeper.tend(self._scheduler.room_s(now_s))
        elif not plan and self._scheduler.held_back:
            time.sleep(HELD_BACK_LOOK_S)

    def _tell_cache(self) -> None:
        if (state := self._keeper.state_if_changed()) is not None:
            self._mailbox.send(state)

    def _run(self, plan: Plan, *, interrupting: bool = False) -> None:
        """Run a plan, commit and report it call by call."""
        raised = self._scheduler.raise_targets(plan, self._gap_target_s)
        last = plan.chunks[-1] if plan.chunks else None
        if last is not None and last.interruptible:
            self._open = OpenRead(last, self._costs.chunk_s(last.start, last.length))
            self._look_at_s = 0.0
        moves, plan = plan.moves, Plan(plan.decodes, plan.chunks, plan.shortest_gap_s)
        try:
            for result in self._executor.run(plan, self._scheduler):
                self._take_in(result, raised, interrupting=interrupting)
                raised = []
        except AbortedError:
            if self._failure is not None:
                raise self._failure from None
        finally:
            if last is not None and last.interruptible:
                self._open = None
        for request_id in moves:
            self._move(request_id)

    def _move(self, request_id: int) -> None:
        """Put the remembered beginning of a prompt into its cells."""
        recalled = self._keeper.move(self._scheduler[request_id], time.monotonic())
        if recalled is not None:
            self._scheduler.recalled(request_id, recalled.tokens)
            self._report(time.monotonic(), None, recalled=[recalled])

    def _take_in(self, result: CallResult, raised: list[tuple[int, float]], *, interrupting: bool) -> None:
        """Commit and report what a call brought."""
        call = self._learn(result, interrupting=interrupting) if result.part else None
        done = self._scheduler.commit(result.part, result.outcome, result.ended_s)
        if result.tokens or result.ended or raised or call:
            self._report(result.ended_s or time.monotonic(), call, result, raised)
        for released in done:
            self._keeper.released(self._brought_home(released))
        for request_id, reason, _ in result.ended:
            if reason == "failed":
                self._forget(request_id, is_sound=False)
            else:
                self._requests.pop(request_id, None)
                self._executor.close(request_id)
        for chunk in result.part.chunks:
            if chunk.interruptible and chunk.id in self._scheduler and not self._scheduler[chunk.id].unread_tokens:
                self._hand_over(chunk.id)

    def _report(
        self,
        at_s: float,
        call: Call | None,
        result: CallResult | None = None,
        raised: Listing[tuple[int, float]] = (),
        recalled: Listing[Recalled] = (),
    ) -> None:
        tokens, ended = (result.tokens, result.ended) if result else ([], [])
        if not self._limits.record_calls:
            call = None
        self._mailbox.send(
            Report(at_s, recalled=list(recalled), tokens=tokens, ended=ended, raised=list(raised), call=call)
        )

    # Interruptible reading

    def at_node(self) -> bool:
        """Asked by the library between two nodes of the graph that reads a long prompt; True ends the call."""
        now_s = time.monotonic()
        if self._open is None or self._failure is not None:
            return self._failure is not None
        if self._open.slice_begun_s is None:
            self._open.begin_slice(now_s)
        self._open.at_node(now_s)
        if now_s < self._look_at_s:
            return False
        try:
            return self._interrupt(self._open, now_s)
        except BaseException as error:
            self._failure = error
            return True

    def _interrupt(self, reading: OpenRead, now_s: float) -> bool:
        """Run the steps of others that are due; True if the reading is to be given up."""
        message = self._mailbox.receive(wait=False)
        due_s = self._scheduler.due_s(now_s)
        if message is None and now_s < due_s:
            self._look_at_s = min(due_s, now_s + LOOK_EVERY_S)
            return False
        call = reading.slice(now_s)
        self._report(now_s, call)
        self._scheduler.note_read(reading.chunk.id, call.ended_s - call.begun_s)
        while True:
            while message is not None:
                self._take(message)
                message = self._mailbox.receive(wait=False)
            self._admit()
            if reading.chunk.id not in self._scheduler:
                return True
            plan = self._scheduler.plan(time.monotonic())
            is_its_turn = bool(plan.chunks) and plan.chunks[-1].interruptible
            if is_its_turn and plan.chunks[-1].id != reading.chunk.id:
                return True
            chunks = plan.chunks[:-1] if is_its_turn else plan.chunks
            self._run(Plan(plan.decodes, chunks, plan.shortest_gap_s, plan.moves), interrupting=True)
            if is_its_turn:
                break
            message = self._mailbox.receive(wait=False)
        now_s = time.monotonic()
        reading.begin_slice(now_s)
        self._look_at_s = min(self._scheduler.due_s(now_s), now_s + LOOK_EVERY_S)
        return False

    def _hand_over(self, request_id: int) -> None:
        """Move a prompt's KV state into its slot."""
        sequence = self._scheduler[request_id]
        try:
            self._leave_reader(sequence, slot_of(sequence))
        except EngineError as error:
            self._forget(request_id, is_sound=False)
            reason = f"The engine failed: {error}."
            self._mailbox.send(Report(time.monotonic(), ended=[(request_id, "failed", reason)]))
            return
        self._scheduler.hand_over(request_id)

    def _brought_home(self, released: Released) -> Released:
        """Move the state of a request that has ended where its prompt was read into the cells that it held.

        Its answer had one token alone; the next one may be about the same document.
        """
        sequence = released.sequence
        if not released.in_reader or not self._keeper.remembers:
            return released
        try:
            self._leave_reader(sequence, released.slot)
        except EngineError as error:
            logger.warning("a prompt that was read is not remembered: %s", error)
            return released
        return Released(sequence, released.slot, sequence.computed_tokens)

    def _leave_reader(self, sequence: Sequence, slot: int) -> None:
        """Move what was read interruptibly into a slot, right after the others had their tokens.

        Raises:
            EngineError: The library refuses.
        """
        decodes = self._scheduler.plan(time.monotonic()).decodes
        if decodes:
            self._run(Plan(decodes=decodes))
        self._keeper.keep(sequence, self._executor.hand_over(slot))

    def _learn(self, result: CallResult, *, interrupting: bool) -> Call:
        """What a call took beside what was expected."""
        depths = tuple(self._scheduler[i].computed_tokens + 1 for i in result.part.decodes)
        work = Work(depths, tuple((chunk.start, chunk.length) for chunk in result.part.chunks), interrupting)
        predicted_s = self._costs.predict(work)
        self._calls_learned += 1
        if self._open is not None and result.part.chunks == (self._open.chunk,):
            call = self._open.last_slice(result.ended_s)
            took_s = self._open.spent_s
            self._scheduler.policy.note_node(self._open.longest_node_s / max(took_s, 1e-9))
        else:
            call = result.call(predicted_s)
            took_s = result.ended_s - result.begun_s
        self._costs.observe(work, took_s)
        for chunk in call.chunks:
            self._scheduler.note_read(chunk.request, (call.ended_s - call.begun_s) / len(call.chunks))
        return call

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

    def _take(self, message: ToWorker) -> None:
        match message:
            case Submit():
                self._submit(message)
            case Cancel():
                self._forget(message.id)
            case CacheCommand():
                found = self._keeper.act(message.action, message.entry)
                reply = CacheReply(message.number, found, self._keeper.listing, self._keeper.state)
                self._mailbox.send(reply)
            case SetBudgets():
                self._keeper.set_budgets(message.memory_bytes, message.disk_bytes)
                self._tell_cache()
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
        now_s = time.monotonic()
        self._keeper.border(self._scheduler.held_back, now_s)
        admission = self._scheduler.admit(now_s)
        if not admission.admitted:
            return
        for released in admission.preempted:
            self._keeper.preempted(released)
        recalled: list[Recalled] = []
        for sequence, lease in admission.admitted:
            self._executor.open(self._requests[sequence.id], sequence.max_new_tokens)
            if in_place := self._keeper.admitted(sequence, lease, now_s):
                recalled.append(in_place)
        # Sent before the prompts are read: if a prompt takes the worker down, the server knows whose it was.
        admitted = [sequence.id for sequence, _ in admission.admitted]
        preempted = [released.sequence.id for released in admission.preempted]
        self._mailbox.send(Report(time.monotonic(), admitted=admitted, recalled=recalled, preempted=preempted))

    def _forget(self, request_id: int, *, is_sound: bool = True) -> None:
        """A request has ended before its time.

        Args:
            request_id: Whose.
            is_sound: What its cells hold is right.
        """
        released = self._scheduler.cancel(request_id)
        if released is not None:
            self._keeper.released(released, is_sound=is_sound)
        self._requests.pop(request_id, None)
        self._executor.close(request_id)

    def _tokens_of(self, request_id: int) -> Tokens:
        return self._executor.tokens_of(self._requests[request_id])

    def _client_of(self, request_id: int) -> str | None:
        return self._requests[request_id].client
