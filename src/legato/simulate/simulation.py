"""Puts a loop together with a modelled engine, and keeps account of what happened to each request."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from legato.core.choices import PolicyName
from legato.core.sampling import SamplingParameters
from legato.core.tokens import Tokens
from legato.kv.manager import KvManager, Limits
from legato.runtime.kv_store import KvStore
from legato.runtime.loop import EngineLoop, LoopLimits
from legato.scheduling.costs import Coefficients, CostModel
from legato.simulate.cells import ModelledCells
from legato.simulate.clock import VirtualClock
from legato.simulate.engine import ModelledEngine
from legato.simulate.mailbox import NobodyLeftError, SimulatedMailbox
from legato.wire.messages import Cancel, Configure, Report, Submit


@dataclass(slots=True)
class Ask:
    """One request, and what became of it. Instants are seconds of the simulation's clock."""

    prompt: Tokens
    """Token ids, shape [n]."""
    answer_tokens: int
    """After so many the model would end by itself."""
    max_new_tokens: int
    """Most tokens of the answer."""
    client: str | None = None
    gap_target_s: float | None = None
    """Longest gap that its reader should see; None for the simulation's."""
    background: bool = False
    """It gets only what others leave."""
    arrived_s: float = 0.0
    ends: list[str] = field(default_factory=list)
    """How it ended: `stop`, `length`, `failed`, or `cancelled`. A simulation is wrong where that is not one thing."""
    answer: list[int] = field(default_factory=list)
    """Tokens of its answer so far."""
    token_times_s: list[float] = field(default_factory=list)
    """When it got them."""
    prefilled_tokens: int = 0
    """Prompt tokens that were computed for it, some maybe twice."""
    prefill_s: float = 0.0
    """Time that calls spent on that."""
    restored: list[tuple[int, str]] = field(default_factory=list)
    """What did not have to be computed: tokens, and where their state was."""
    preemptions: int = 0
    """How often it gave its KV cells up."""
    raised: list[tuple[float, float]] = field(default_factory=list)
    """When its gap target was raised, and to what; 0 where it could be kept again."""


class Simulation:
    """The engine's loop, run as fast as it can.

    ```python
    simulation = Simulation(policy="adaptive", costs=costs_of_a_machine, sequences=4)
    chat = simulation.ask(prompt_tokens=30, answer_tokens=200)
    book = simulation.ask(prompt_tokens=6000, answer_tokens=50, at_s=1.0)
    simulation.run()
    print(max(map(operator.sub, chat.token_times_s[1:], chat.token_times_s)))
    ```

    Args:
        policy: How prompts are prefilled beside running answers.
        costs: What calls take.
        believed: What the loop believes they take, until it has learned better; the same, if left out.
        sequences: Requests that can hold KV cells at once.
        cells_per_sequence: KV cells of each, in tokens.
        step_tokens: Most prompt tokens in one step.
        chunk: Prompt tokens a step under `chunked`.
        gap_target_s: Of answers that have none of their own.
        background_wait_s: Longest time that the oldest background request waits for others.
        interruptible: Long prompts are prefilled interruptibly, under `adaptive`.
        joined_calls: A step is one call.
        slowness: What each call takes over `costs`, over and over.
        gains: Tokens that decodes commit, over and over.
        make_kv: Makes the store of KV state, given the clock and the loop's cost model; one that remembers nothing, if
            left out.
        make_engine: Makes another engine than the plain modelled one, given the clock and how long each answer is.
        on_report: Told of each report, as a server would be.
    """

    def __init__(
        self,
        *,
        policy: PolicyName,
        costs: Coefficients,
        believed: Coefficients | None = None,
        sequences: int = 4,
        cells_per_sequence: int = 8192,
        step_tokens: int = 512,
        chunk: int = 64,
        gap_target_s: float = 0.1,
        background_wait_s: float = 600.0,
        interruptible: bool = False,
        joined_calls: bool = False,
        slowness: Iterable[float] = (1.0,),
        gains: Iterable[int] = (1,),
        make_kv: Callable[[VirtualClock, CostModel], KvStore] | None = None,
        make_engine: Callable[[VirtualClock, Callable[[int], int]], ModelledEngine] | None = None,
        on_report: Callable[[Report], None] = lambda _report: None,
    ) -> None:
        self._on_report = on_report
        self.clock = VirtualClock()
        self.mailbox = SimulatedMailbox(self.clock)
        self.asks: dict[int, Ask] = {}
        """All requests, by number."""
        self._left: set[int] = set()
        believes = CostModel(costs if believed is None else believed)
        if make_engine is None:
            self.engine = ModelledEngine(
                self.clock,
                CostModel(costs),
                answer_tokens=self._answer_tokens,
                slowness=slowness,
                gains=gains,
                joined_calls=joined_calls,
            )
        else:
            self.engine = make_engine(self.clock, self._answer_tokens)
        if make_kv is None:
            cells, nothing = ModelledCells(sequences, cells_per_sequence), Limits(0, 0, scope="off")
            self.kv: KvStore = KvManager(cells, self.clock, believes, bytes_per_token=0.0, limits=nothing, store=None)
        else:
            self.kv = make_kv(self.clock, believes)
        self.loop = EngineLoop(
            clock=self.clock,
            mailbox=self.mailbox,
            engine=self.engine,
            kv=self.kv,
            costs=believes,
            configuration=Configure(policy, chunk, gap_target_s),
            limits=LoopLimits(
                step_tokens=step_tokens,
                default_chunk=chunk,
                background_wait_s=background_wait_s,
                interruptible=interruptible,
                joined_calls=joined_calls,
            ),
        )

    def _answer_tokens(self, number: int) -> int:
        return self.asks[number].answer_tokens

    @property
    def left(self) -> set[int]:
        """Requests that have not ended, by number."""
        return set(self._left)

    def ask(
        self,
        prompt: Tokens | None = None,
        *,
        prompt_tokens: int = 1,
        answer_tokens: int,
        max_new_tokens: int | None = None,
        client: str | None = None,
        gap_target_s: float | None = None,
        background: bool = False,
        at_s: float | None = None,
    ) -> Ask:
        """Send a request; its number is how many were sent before.

        Args:
            prompt: Token ids, shape [n]; of `prompt_tokens` tokens like no others, if left out.
            prompt_tokens: How many.
            answer_tokens: After so many the model ends by itself.
            max_new_tokens: Most tokens of the answer; as many, if left out.
            client: Who asks.
            gap_target_s: Longest gap that its reader should see.
            background: It gets only what others leave.
            at_s: When, on the simulation's clock; now, if left out.
        """
        number = len(self.asks)
        if prompt is None:
            prompt = np.arange(number << 16, (number << 16) + prompt_tokens, dtype=np.int32)
        most = answer_tokens if max_new_tokens is None else max_new_tokens
        at_s = self.clock.now_s() if at_s is None else at_s
        ask = self.asks[number] = Ask(prompt, answer_tokens, most, client, gap_target_s, background, arrived_s=at_s)
        self._left.add(number)
        packed = prompt.astype("<i4", copy=False).tobytes()
        submit = Submit(number, packed, most, SamplingParameters(), None, client, gap_target_s, background)
        self.mailbox.post(submit, at_s)
        return ask

    def cancel(self, number: int) -> None:
        """A client goes away, now."""
        if number in self._left:
            self._left.discard(number)
            self.asks[number].ends.append("cancelled")
            self.mailbox.post(Cancel(number))

    def step(self) -> bool:
        """One pass of the loop, and account of it; False if it did nothing, or there is nothing left to do."""
        try:
            plan = self.loop.step()
        except NobodyLeftError:
            return False
        finally:
            self._take_account()
        return bool(plan)

    def run(self, until_ended: int | None = None, most_steps: int = 1_000_000) -> Simulation:
        """Go on until all requests have ended, or until that one has.

        Raises:
            RuntimeError: That takes more steps.
        """
        for _ in range(most_steps):
            if until_ended not in self._left if until_ended is not None else not self._left:
                return self
            self.step()
        raise RuntimeError(f"requests {sorted(self._left)[:10]} have not ended after {most_steps} steps")

    def _take_account(self) -> None:
        for message in self.mailbox.sent:
            if isinstance(message, Report):
                self._take_report(message)
                self._on_report(message)
        self.mailbox.sent.clear()

    def _take_report(self, report: Report) -> None:
        for number in report.preempted:
            self.asks[number].preemptions += 1
        for restored in report.restored:
            self.asks[restored.request].restored.append((restored.tokens, restored.tier))
        for number, possible_s in report.raised:
            self.asks[number].raised.append((report.at_s, possible_s))
        if report.call is not None:
            for chunk in report.call.chunks:
                self.asks[chunk.request].prefilled_tokens += chunk.tokens
                self.asks[chunk.request].prefill_s += report.call.took_s / len(report.call.chunks)
        for number, token, _ in report.tokens:
            self.asks[number].answer.append(token)
            self.asks[number].token_times_s.append(report.at_s)
        for number, reason, _ in report.ended:
            if number in self._left:  # whoever has gone away ended by itself
                self._left.discard(number)
                self.asks[number].ends.append(reason)
