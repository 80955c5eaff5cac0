"""An engine without a model: it runs a scheduler's plans to the end and writes down what happened."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from legato.core.choices import PolicyName
from legato.scheduling.costs import Coefficients, CostModel, Work
from legato.scheduling.policies import make_policy
from legato.scheduling.scheduler import NeverFitsError, Scheduler
from legato.scheduling.state import Chunk, Outcome, Phase, Plan
from legato.scheduling.state import Sequence as Request
from tests.support.lender import FirstFree

CELLS = 480
"""Of each slot: a little less than the longest prompt that the tests send."""
STEP_TOKENS = 128
CROWD = 20
"""While so many wait for a slot, others stay away, so that a stream of wishes may have no end."""
NODE_S = 0.002
"""What an interruptible call can't be interrupted for."""
MOST_STEPS = 10_000
"""More than any run needs in which each step does something for somebody."""
COSTS = Coefficients(
    decode_call_s=0.010,
    decode_sequence_s=0.002,
    decode_depth_s=2e-6,
    prefill_call_s=0.001,
    prefill_token_s=0.001,
    prefill_pair_s=1e-6,
)
"""What the fake engine's calls take: about as on a small CPU."""


@dataclass(frozen=True)
class Wish:
    """What one client does."""

    arrives: int
    """The step before which it comes."""
    prompt_tokens: int
    answer_tokens: int
    """After so many the model would end by itself."""
    max_new_tokens: int
    patience: int | None = None
    """Steps after which it goes away."""
    client: str | None = None
    gap_target_s: float | None = None
    background: bool = False


@dataclass(frozen=True)
class Step:
    """One plan, and what was so when it was made. Dictionaries are by id, in order of admission."""

    plan: Plan
    phases: dict[int, Phase]
    """Of the requests that hold a slot."""
    slots: dict[int, int | None]
    unread: dict[int, int]
    """Prompt tokens, as counted here, not by the scheduler."""
    queued: int
    """Requests that wait for a slot."""
    begun_s: float
    ended_s: float
    interrupts: bool = False
    """It came in between while a prompt was read."""


class Run:
    """Runs wishes to their end. Requests are numbered in order of arrival.

    Args:
        policy: Name of the policy.
        chunk: Most prompt tokens of a step under `chunked`.
        slots: How many.
        wishes: Of the clients, in order of arrival.
        gains: Tokens that decodes commit, over and over.
        by_parts: Commit a plan call by call, as with one library call for the decodes and one for each chunk.
        gap_target_s: Of answers that have none of their own, for `adaptive`.
        believed: What the cost model knows beforehand.
        slowness: What each call takes over `COSTS`, over and over.
        background_wait_s: As the scheduler's.
        interruptible: Read long prompts interruptibly, under `adaptive`.
    """

    def __init__(
        self,
        policy: PolicyName,
        chunk: int,
        slots: int,
        wishes: Iterable[Wish],
        gains: Sequence[int] = (1,),
        by_parts: bool = True,
        gap_target_s: float = 0.1,
        believed: Coefficients = COSTS,
        slowness: Iterable[float] = (1.0,),
        background_wait_s: float = 600.0,
        interruptible: bool = False,
    ) -> None:
        self.chunk = chunk
        self.pool = FirstFree(slots, CELLS)
        self.costs = CostModel(believed)
        self.scheduler = Scheduler(
            make_policy(
                policy,
                costs=self.costs,
                gap_target_s=gap_target_s,
                chunk=chunk,
                step_tokens=STEP_TOKENS,
                interruptible=interruptible,
                joined=not by_parts,
            ),
            self.pool,
            background_wait_s=background_wait_s,
        )
        self.now_s = 0.0
        self._gap_target_s = gap_target_s
        self._truth = CostModel(COSTS)
        self._slowness = itertools.cycle(slowness)
        self._wishes = enumerate(wishes)
        self._gains = itertools.cycle(gains)
        self._by_parts = by_parts

        self.steps: list[Step] = []
        self.arrived: dict[int, Wish] = {}
        self.admitted: list[int] = []
        self.ends: dict[int, list[str]] = {}
        """How each request ended: finished, cancelled, refused."""
        self.chunks: defaultdict[int, list[Chunk]] = defaultdict(list)
        """What was read of each prompt."""
        self.written: Counter[int] = Counter()
        """Tokens of each answer."""
        self.positions: defaultdict[int, list[int]] = defaultdict(list)
        """Cells that each answer's decodes filled."""
        self.arrived_s: dict[int, float] = {}
        self.token_times_s: defaultdict[int, list[float]] = defaultdict(list)
        self.read_s: defaultdict[int, float] = defaultdict(float)
        """Time that was spent on each prompt."""
        self.preempted: Counter[int] = Counter()
        """How often each request gave its slot up."""
        self.raised: defaultdict[int, list[tuple[int, float]]] = defaultdict(list)
        """What each answer's gap target was raised to, and in which step."""
        self._requests: dict[int, Request] = {}
        """Those that have not ended, in order of arrival."""
        self._to_read: dict[int, int] = {}
        self._read: Counter[int] = Counter()

    def run(self, until_ended: int | None = None, most_steps: int = MOST_STEPS) -> Run:
        """Go on until nobody is left, or until that request has ended; fail if that takes more steps."""
        coming = next(self._wishes, None)
        for now in range(most_steps):
            while coming is not None and coming[1].arrives <= now and self.scheduler.queued < CROWD:
                self._arrive(*coming)
                coming = next(self._wishes, None)
            for i in list(self._requests):
                patience = self.arrived[i].patience
                if patience is not None and now >= self.arrived[i].arrives + patience:
                    self._cancel(i)
            self._step()
            if (until_ended is not None and self.ends.get(until_ended)) or (coming is None and not self._requests):
                return self
        raise AssertionError(f"somebody is left after {most_steps} steps")

    def _arrive(self, i: int, wish: Wish) -> None:
        self.arrived[i] = wish
        self._requests[i] = Request(
            i,
            wish.prompt_tokens,
            wish.max_new_tokens,
            client=wish.client,
            gap_target_s=wish.gap_target_s,
            background=wish.background,
            arrived_s=self.now_s,
        )
        self.arrived_s[i] = self.now_s
        self._to_read[i] = wish.prompt_tokens
        self.ends[i] = []
        try:
            self.scheduler.add(self._requests[i])
        except NeverFitsError:
            self._end(i, "refused")

    def _cancel(self, i: int) -> None:
        held = self._requests[i].slot
        released = self.scheduler.cancel(i)
        assert (released.slot if released is not None else None) == held
        self._end(i, "cancelled")

    def _end(self, i: int, how: str) -> None:
        self.ends[i].append(how)
        self._requests.pop(i, None)

    def _step(self) -> None:
        self._admit()
        plan = self._plan()
        holding = [r for r in self._requests.values() if r.slot is not None]
        assert bool(plan) == bool(holding), "a step is empty only if nobody holds a slot"
        self._run_plan(plan)

    def _plan(self) -> Plan:
        plan = self.scheduler.plan(self.now_s)
        for request in self._requests.values():
            if self._read[request.id] and not request.computed_tokens:  # it had to leave the reader
                self._read[request.id] = 0
                self.chunks[request.id].clear()
        return plan

    def _run_plan(self, plan: Plan, *, interrupts: bool = False) -> None:
        holding = [r for r in self._requests.values() if r.slot is not None]
        begun_s, queued = self.now_s, self.scheduler.queued
        phases = {r.id: r.phase for r in holding}
        slots = {r.id: r.slot for r in holding}
        unread = {r.id: self._to_read[r.id] - self._read[r.id] for r in holding}
        for i, possible_s in self.scheduler.raise_targets(plan, self._gap_target_s):
            self.raised[i].append((len(self.steps), possible_s))
        for part in self._parts(plan):
            if part:
                self._evaluate(part)
        self.steps.append(Step(plan, phases, slots, unread, queued, begun_s, self.now_s, interrupts))

    def _admit(self) -> None:
        admission = self.scheduler.admit(self.now_s)
        self.admitted += [request.id for request, _ in admission.admitted]
        for request in (released.sequence for released in admission.preempted):
            self.preempted[request.id] += 1
            self._to_read[request.id] = request.prompt_tokens + max(0, self.written[request.id] - 1)
            self._read[request.id] = 0
            self.chunks[request.id].clear()

    def _parts(self, plan: Plan) -> list[Plan]:
        if not self._by_parts and not any(chunk.interruptible for chunk in plan.chunks):
            return [plan]
        return [Plan(decodes=plan.decodes), *(Plan(chunks=(chunk,)) for chunk in plan.chunks)]

    def _evaluate(self, part: Plan) -> None:
        depths = tuple(self._requests[i].computed_tokens + 1 for i in part.decodes)
        work = Work(depths, tuple((chunk.start, chunk.length) for chunk in part.chunks))
        took_s = self._truth.predict(work) * next(self._slowness)
        self.costs.observe(work, took_s)
        if part.chunks and part.chunks[0].interruptible:
            self._read_interruptibly(part.chunks[0], took_s)
        else:
            self.now_s += took_s
        committed: dict[int, int] = {}
        for i in part.decodes:
            committed[i] = min(next(self._gains), self._answer_length(i) - self.written[i])
            begin = self._requests[i].computed_tokens
            self.positions[i] += range(begin, begin + committed[i])
        for chunk in part.chunks:
            self.chunks[chunk.id].append(chunk)
            self._read[chunk.id] += chunk.length
            self.read_s[chunk.id] += took_s / len(part.chunks)
            self.scheduler.note_read(chunk.id, took_s / len(part.chunks))
            if self._read[chunk.id] >= self._to_read[chunk.id] and not self.written[chunk.id]:
                committed[chunk.id] = 1
        self.written.update(committed)
        for i in committed:
            self.token_times_s[i].append(self.now_s)
        finished = [i for i in committed if self.written[i] >= self._answer_length(i)]
        held = [self._requests[i].slot for i in finished]
        released = self.scheduler.commit(part, Outcome(committed, finished), self.now_s)
        assert [one.slot for one in released] == held
        for i in finished:
            self._end(i, "finished")
        for chunk in part.chunks:
            if chunk.interruptible and chunk.id in self.scheduler and not self.scheduler[chunk.id].unread_tokens:
                self.scheduler.hand_over(chunk.id)

    def _read_interruptibly(self, chunk: Chunk, took_s: float) -> None:
        """Let the time of a chunk pass, with the steps of others in between."""
        left_s = took_s
        while True:
            slice_s = min(left_s, max(NODE_S, self.scheduler.due_s(self.now_s) - self.now_s))
            self.now_s += slice_s
            left_s -= slice_s
            if left_s <= 0:
                return
            plan = self._plan()
            assert plan.chunks, "what is being read is unread"
            if plan.chunks[-1].id == chunk.id:
                self._run_plan(Plan(plan.decodes, (), plan.shortest_gap_s), interrupts=True)
            else:
                self._run_plan(plan, interrupts=True)

    def _answer_length(self, i: int) -> int:
        return min(self.arrived[i].answer_tokens, self._requests[i].max_new_tokens)
