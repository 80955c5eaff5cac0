"""Runs of the engine's loop in a simulation, driven step by step, with all that happened written down."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from legato.core.choices import PolicyName
from legato.runtime.engine import CallResult, Requests
from legato.runtime.request import Request
from legato.scheduling.costs import Coefficients, CostModel
from legato.scheduling.plan import Chunk, Plan
from legato.scheduling.scheduler import Scheduler
from legato.scheduling.sequence import Phase
from legato.simulate import ModelledEngine, Simulation, VirtualClock

CELLS = 480
"""Of each slot: a little less than the longest prompt that the tests send."""
STEP_TOKENS = 128
CROWD = 20
"""While so many wait for a slot, others stay away, so that a stream of wishes may have no end."""
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
"""What calls take: about as on a small CPU."""


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


@dataclass
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
    is_between: bool
    """It came in between another one's calls: while a prompt was prefilled, or before a state was moved."""


class WatchedEngine(ModelledEngine):
    """Writes down what it is made to do."""

    def __init__(
        self,
        clock: VirtualClock,
        answer_tokens: Callable[[int], int],
        scheduler: Callable[[], Scheduler[Request]],
        slowness: Iterable[float],
        gains: Iterable[int],
        joined_calls: bool,
    ) -> None:
        super().__init__(
            clock,
            CostModel(COSTS),
            answer_tokens=answer_tokens,
            slowness=slowness,
            gains=gains,
            joined_calls=joined_calls,
        )
        self._scheduler = scheduler
        self._depth = 0
        self.steps: list[Step] = []
        self.admitted: list[int] = []
        """Requests in the order in which they were first given slots."""
        self.chunks: defaultdict[int, list[Chunk]] = defaultdict(list)
        """What was prefilled of each prompt since its first token was."""
        self.written: Counter[int] = Counter()
        """Tokens of each answer."""
        self.positions: defaultdict[int, list[int]] = defaultdict(list)
        """Cells that each answer's decodes filled."""
        self._to_read: dict[int, int] = {}
        self._read: Counter[int] = Counter()

    def open(self, request: Request) -> None:
        if request.id not in self._to_read:
            self.admitted.append(request.id)
        self._to_read[request.id] = request.prompt_tokens + max(0, self.written[request.id] - 1)
        self._read[request.id] = 0
        self.chunks[request.id].clear()

    def calls(self, plan: Plan) -> Iterator[Plan]:  # type: ignore[override]
        scheduler = self._scheduler()
        holding = scheduler.admitted
        for request in holding:
            if self._read[request.id] and not request.computed_tokens:  # it had to leave the context of its own
                self._read[request.id] = 0
                self.chunks[request.id].clear()
        step = Step(
            plan,
            {r.id: r.phase for r in holding},
            {r.id: r.slot for r in holding},
            {r.id: self._to_read[r.id] - self._read[r.id] for r in holding},
            scheduler.queued,
            begun_s=self._clock.now_s(),
            ended_s=self._clock.now_s(),
            is_between=self._depth > 0,
        )
        assert step.is_between or bool(plan) == bool(holding), "a step is empty only if nobody holds a slot"
        self.steps.append(step)
        self._depth += 1
        try:
            yield from super().calls(plan)
        finally:
            self._depth -= 1
            step.ended_s = self._clock.now_s()

    def run(self, part: Plan, requests: Requests) -> CallResult:
        begins = {i: requests[i].computed_tokens for i in part.decodes}
        result = super().run(part, requests)
        for i, begin in begins.items():
            self.positions[i] += range(begin, begin + result.committed[i])
        for chunk in part.chunks:
            self.chunks[chunk.id].append(chunk)
            self._read[chunk.id] += chunk.length
        self.written.update(result.committed)
        return result


class Run:
    """Runs wishes to their end. Requests are numbered in order of arrival.

    Args:
        policy: Name of the policy.
        chunk: Most prompt tokens of a step under `chunked`.
        slots: How many.
        wishes: Of the clients, in order of arrival.
        gains: Tokens that decodes commit, over and over.
        by_parts: One call for the decodes and one for each chunk, instead of one for all.
        gap_target_s: Of answers that have none of their own, for `adaptive`.
        believed: What the cost model knows beforehand.
        slowness: What each call takes over `COSTS`, over and over.
        background_wait_s: As the scheduler's.
        interruptible: Prefill long prompts interruptibly, under `adaptive`.
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
        self.gap_target_s = gap_target_s
        self.simulation = Simulation(
            policy=policy,
            costs=COSTS,
            believed=believed,
            sequences=slots,
            cells_per_sequence=CELLS,
            step_tokens=STEP_TOKENS,
            chunk=chunk,
            gap_target_s=gap_target_s,
            background_wait_s=background_wait_s,
            interruptible=interruptible,
            joined_calls=not by_parts,
            make_engine=lambda clock, answer_tokens: WatchedEngine(
                clock, answer_tokens, lambda: self.scheduler, slowness, gains, not by_parts
            ),
        )
        self.pool = self.simulation.kv.lender
        assert isinstance(self.simulation.engine, WatchedEngine)
        self.engine = self.simulation.engine
        self.scheduler: Scheduler[Request] = self.simulation.loop.scheduler
        self._wishes = enumerate(wishes)
        self.arrived: dict[int, Wish] = {}

    def run(self, until_ended: int | None = None, most_steps: int = MOST_STEPS) -> Run:
        """Go on until nobody is left, or until that request has ended; fail if that takes more steps."""
        coming = next(self._wishes, None)
        simulation = self.simulation
        for now in range(most_steps):
            while coming is not None and coming[1].arrives <= now and self._waiting < CROWD:
                self._arrive(*coming)
                coming = next(self._wishes, None)
            for i in simulation.left:
                patience = self.arrived[i].patience
                if patience is not None and now >= self.arrived[i].arrives + patience:
                    simulation.cancel(i)
            simulation.step()
            if (until_ended is not None and self.ends.get(until_ended)) or (coming is None and not simulation.left):
                simulation.step()  # whoever has gone away is let go of
                return self
        raise AssertionError(f"somebody is left after {most_steps} steps")

    @property
    def _waiting(self) -> int:
        return self.scheduler.queued + self.simulation.mailbox.coming

    def _arrive(self, i: int, wish: Wish) -> None:
        self.arrived[i] = wish
        self.simulation.ask(
            prompt_tokens=wish.prompt_tokens,
            answer_tokens=wish.answer_tokens,
            max_new_tokens=wish.max_new_tokens,
            client=wish.client,
            gap_target_s=wish.gap_target_s,
            background=wish.background,
        )

    # What happened, by request

    @property
    def now_s(self) -> float:
        return self.simulation.clock.now_s()

    @property
    def steps(self) -> list[Step]:
        return self.engine.steps

    @property
    def admitted(self) -> list[int]:
        return self.engine.admitted

    @property
    def chunks(self) -> dict[int, list[Chunk]]:
        return self.engine.chunks

    @property
    def written(self) -> Counter[int]:
        return self.engine.written

    @property
    def positions(self) -> dict[int, list[int]]:
        return self.engine.positions

    @property
    def ends(self) -> dict[int, list[str]]:
        """How each request ended: stop, length, cancelled, failed."""
        return {i: ask.ends for i, ask in self.simulation.asks.items()}

    def finished(self, i: int) -> bool:
        """Whether a request has ended once, with its whole answer."""
        return self.ends[i] in (["stop"], ["length"])

    @property
    def arrived_s(self) -> dict[int, float]:
        return {i: ask.arrived_s for i, ask in self.simulation.asks.items()}

    @property
    def token_times_s(self) -> dict[int, list[float]]:
        return {i: ask.token_times_s for i, ask in self.simulation.asks.items()}

    @property
    def prefill_s(self) -> dict[int, float]:
        return {i: ask.prefill_s for i, ask in self.simulation.asks.items()}

    @property
    def preempted(self) -> dict[int, int]:
        """How often each request gave its slot up, of those that did."""
        return {i: ask.preemptions for i, ask in self.simulation.asks.items() if ask.preemptions}

    @property
    def raised(self) -> dict[int, list[tuple[float, float]]]:
        """When each answer's gap target was raised, and to what."""
        return {i: ask.raised for i, ask in self.simulation.asks.items()}
