"""The engine's loop: take in messages, plan a step, run it, commit, report. Nothing else runs in it."""

from __future__ import annotations

import time
from typing import Protocol

from legato.engine.context import Context
from legato.kv.slots import KvSlots
from legato.runtime.executor import Executor
from legato.runtime.messages import Cancel, FromWorker, Report, Submit, ToWorker
from legato.scheduling.policies import Policy
from legato.scheduling.scheduler import NeverFitsError, Scheduler
from legato.scheduling.state import Sequence


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
        policy: Plans the steps.
        record_calls: Report every call, not only what it brought.
    """

    def __init__(
        self, mailbox: Mailbox, context: Context, executor: Executor, policy: Policy, *, record_calls: bool
    ) -> None:
        self._mailbox = mailbox
        self._record_calls = record_calls
        self._context = context
        self._executor = executor
        self._scheduler = Scheduler(policy, KvSlots(context.sequences, context.cells_per_sequence))
        self._waiting: dict[int, Submit] = {}

    def run(self) -> None:
        """Serve until the process ends. Without work it blocks: an idle server uses no CPU."""
        while True:
            self.step()

    def step(self) -> None:
        """One pass: messages, admission, one plan and its calls."""
        idle = self._scheduler.running == 0 and self._scheduler.queued == 0
        while message := self._mailbox.receive(wait=idle):
            idle = False
            self._take(message)
        self._admit()
        plan = self._scheduler.plan()
        for result in self._executor.run(plan, self._scheduler):
            for slot in self._scheduler.commit(result.part, result.outcome):
                self._context.remove(slot)
            for request_id, reason, _ in result.ended:
                if reason == "failed":
                    self._forget(request_id)
                else:
                    self._executor.close(request_id)
            call = result.call if self._record_calls else None
            if result.tokens or result.ended or call:
                at_s = result.ended_s or time.monotonic()
                self._mailbox.send(Report(at_s, tokens=result.tokens, ended=result.ended, call=call))

    def _take(self, message: ToWorker) -> None:
        match message:
            case Submit():
                self._submit(message)
            case Cancel():
                self._forget(message.id)

    def _submit(self, request: Submit) -> None:
        try:
            self._scheduler.add(Sequence(request.id, len(request.prompt) // 4, request.max_new_tokens))
        except NeverFitsError as error:
            self._mailbox.send(Report(time.monotonic(), ended=[(request.id, "failed", str(error))]))
            return
        self._waiting[request.id] = request

    def _admit(self) -> None:
        admitted = self._scheduler.admit()
        if not admitted:
            return
        for sequence in admitted:
            self._executor.open(self._waiting.pop(sequence.id), sequence.max_new_tokens)
        # Sent before the prompts are read: if a prompt takes the worker down, the server knows whose it was.
        self._mailbox.send(Report(time.monotonic(), admitted=[sequence.id for sequence in admitted]))

    def _forget(self, request_id: int) -> None:
        self._waiting.pop(request_id, None)
        self._executor.close(request_id)
        slot = self._scheduler.cancel(request_id)
        if slot is not None:
            self._context.remove(slot)
