"""The engine's loop with a store that remembers, in a simulation; and what has to be so whatever happens."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from legato.core.cache import CacheEntry, Restored
from legato.core.choices import PolicyName
from legato.core.tokens import Tokens
from legato.kv.disk import DiskStore
from legato.kv.manager import KvManager, Limits
from legato.kv.placement import PREFILL_AT_LEAST
from legato.kv.slots import Holder
from legato.kv.sources import Lease, Restore
from legato.runtime.request import Request
from legato.scheduling.costs import Coefficients, CostModel
from legato.scheduling.plan import Plan
from legato.scheduling.scheduler import Scheduler
from legato.simulate import Ask, ModelledCells, ModelledDisk, ModelledEngine, Simulation, VirtualClock
from legato.simulate.cells import state_bytes_of

CELLS = 200
CHUNK = 16
PLENTY = 10**6
KEY = "a model"
COSTS = Coefficients(
    decode_call_s=0.01,
    decode_sequence_s=0.001,
    decode_depth_s=0.0,
    prefill_call_s=0.0,
    prefill_token_s=0.1,
    prefill_pair_s=0.0,
)
"""Prefill takes so long that moving anything is always worth it."""
MOST_STEPS = 20_000
"""More than anybody needs, those who wait for a disk that never answers included."""
TIMES = 300
"""More bits of spare work than the few states of a test are."""


def run_of(first: int, count: int) -> Tokens:
    """Tokens from `first` on."""
    return np.arange(first, first + count, dtype=np.int32)


def joined(*parts: Tokens | list[int]) -> Tokens:
    return np.concatenate([np.array(part, dtype=np.int32) for part in parts])


LONG = run_of(0, 100)


def files(folder: Path) -> list[Path]:
    """The states on disk."""
    return sorted(folder.glob("*/*.kv"))


def scribble(path: Path, at: int) -> None:
    """Change one byte."""
    content = bytearray(path.read_bytes())
    content[at % len(content)] ^= 0xFF
    path.write_bytes(content)


class WatchedEngine(ModelledEngine):
    """Tells of each state that it computes."""

    on_state: Callable[[Request, Tokens], None]

    def _evaluate(self, request: Request, start: int, count: int) -> None:
        super()._evaluate(request, start, count)
        self.on_state(request, request.tokens[: start + count])


class CheckedManager(KvManager):
    """Tells of all that it puts into cells."""

    on_restored: Callable[[Holder, Restored], None]

    def begin(self, request: Holder, lease: Lease, now_s: float) -> Restored | Restore | None:
        begun = super().begin(request, lease, now_s)
        if isinstance(begun, Restored):
            self.on_restored(request, begun)
        return begun

    def restore(self, request: Holder, slot: int, now_s: float) -> Restored | Restore:
        outcome = super().restore(request, slot, now_s)
        if isinstance(outcome, Restored):
            self.on_restored(request, outcome)
        return outcome


class Remembering:
    """Requests to an engine that remembers.

    Args:
        folder: Where states are kept that are to survive; None for nowhere.
        sequences: How many requests run at a time.
        limits: What may be remembered.
        policy: Name of the policy.
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        sequences: int = 2,
        limits: Limits | None = None,
        policy: PolicyName = "chunked",
    ) -> None:
        self._folder = folder
        self._sequences = sequences
        self._limits = limits or Limits(PLENTY, PLENTY)
        self._policy: PolicyName = policy
        self.earlier: list[Ask] = []
        """Requests to engines that have stopped."""
        self.restored: list[Restored] = []
        """What did not have to be prefilled."""
        self.computed: dict[str, set[tuple[int, ...]]] = {}
        """All states that have been computed, by whose they are."""
        self.start()

    def start(self) -> None:
        """Begin anew with what is on disk."""
        self.cells = ModelledCells(
            self._sequences, CELLS, can_cut=self._limits.can_cut, can_cut_states=self._limits.can_cut_states
        )
        self.simulation = Simulation(
            policy=self._policy,
            costs=COSTS,
            step_tokens=4 * CHUNK,
            chunk=CHUNK,
            make_kv=self._make_kv,
            make_engine=self._make_engine,
        )
        assert isinstance(self.simulation.kv, CheckedManager)
        self.kv = self.simulation.kv
        self.kv.on_restored = self._check_restored
        self.engine = self.simulation.engine
        self.scheduler: Scheduler[Request] = self.simulation.loop.scheduler

    def _make_engine(self, clock: VirtualClock, answer_tokens: Callable[[int], int]) -> WatchedEngine:
        engine = WatchedEngine(clock, CostModel(COSTS), answer_tokens=answer_tokens, cells=self.cells)
        engine.on_state = lambda request, tokens: self._states_of(request).add(tuple(tokens.tolist()))
        return engine

    def _make_kv(self, clock: VirtualClock, costs: CostModel) -> CheckedManager:
        self.disk: ModelledDisk | None = None
        return CheckedManager(
            self.cells,
            clock,
            costs,
            bytes_per_token=4,
            limits=self._limits,
            store=DiskStore(self._folder, KEY) if self._folder is not None else None,
            make_disk=partial(self._make_disk, clock),
        )

    def _make_disk(self, clock: VirtualClock, store: DiskStore, _is_busy: Callable[[], bool]) -> ModelledDisk:
        self.disk = ModelledDisk(store, clock)
        return self.disk

    def restart(self) -> None:
        """Stop as a server stops, and begin anew."""
        self.close()
        self.start()

    def close(self) -> None:
        """Stop as a server stops."""
        self.earlier += self.simulation.asks.values()
        self.simulation.loop.close()

    # Requests

    @property
    def asks(self) -> list[Ask]:
        """All requests, those to earlier engines too."""
        return [*self.earlier, *self.simulation.asks.values()]

    @property
    def left(self) -> set[int]:
        """Requests that have not ended, by number."""
        return self.simulation.left

    def submit(self, prompt: Tokens, answer: int = 2, client: str | None = None, *, background: bool = False) -> int:
        """Ask; the answer's tokens are like no others."""
        number = len(self.simulation.asks)
        self.simulation.ask(prompt, answer_tokens=answer, client=client, background=background)
        return number

    def ask(self, prompt: Tokens, answer: int = 2, client: str | None = None) -> Ask:
        """Ask, and wait for the answer."""
        number = self.submit(prompt, answer, client)
        self.finish()
        return self.simulation.asks[number]

    def read(self, number: int) -> int:
        """Tokens of a request that were prefilled, some maybe twice."""
        return self.simulation.asks[number].prefilled_tokens

    def finish(self) -> None:
        """Go on until all requests have ended."""
        self.simulation.run(most_steps=MOST_STEPS)

    def step(self) -> None:
        """One pass of the loop."""
        self.simulation.step()

    def admit(self) -> None:
        """The first half of a pass: requests are taken in, and have cells."""
        self.simulation.loop._take_mail()
        self.simulation.loop._admit()

    def run_plan(self, plan: Plan) -> None:
        """The second half, with a plan of one's own."""
        self.simulation.loop._run(plan)

    def await_state(self) -> None:
        """Wait until a state is there that is read from disk."""
        self.admit()
        while self.scheduler.held_back:
            self.simulation.clock.sleep(0.001)
            self.admit()

    def idle(self) -> None:
        """Do all that was put off, as a server does before it sleeps."""
        for _ in range(TIMES):
            if not self.kv.use_idle_time():
                return
        raise AssertionError("an idle engine never sleeps")

    # What is remembered

    def entries(self) -> list[CacheEntry]:
        """What is remembered outside the cells."""
        return [entry for entry in self.kv.listing if entry.id]

    def places(self) -> list[list[str]]:
        return sorted(entry.places for entry in self.entries())

    # What has to be so at any time

    def _states_of(self, request: Holder) -> set[tuple[int, ...]]:
        scope = (request.client or "") if self._limits.scope == "key" else ""
        return self.computed.setdefault(scope, set())

    def _check_restored(self, request: Holder, restored: Restored) -> None:
        """What was put into a request's cells has to be its own beginning, and computed for whom it may be used by."""
        beginning = tuple(request.tokens[: restored.tokens].tolist())
        held = self.scheduler[request.id]
        assert held.slot is not None
        assert tuple(self.cells.tokens(held.slot)) == beginning
        if not restored.tokens:
            return
        assert self._limits.scope != "off"
        assert restored.request == request.id
        assert len(beginning) <= held.prompt_tokens + max(0, held.new_tokens - 1) - 1
        if not held.new_tokens:
            assert held.prompt_tokens - restored.tokens >= PREFILL_AT_LEAST
        states = self._states_of(request)
        if self._limits.can_cut and (restored.took_s == 0 or self._limits.can_cut_states):
            assert any(state[: len(beginning)] == beginning for state in states)
        else:
            assert beginning in states
        self.restored.append(restored)

    def check(self) -> None:
        for request in self.scheduler.admitted:
            expected = request.tokens[: request.computed_tokens].tolist()
            assert request.slot is not None
            assert self.cells.tokens(request.slot) == expected
            assert request.restore is None or not expected
            assert (request.restore is None) == (request.awaits is None)
        for slot in self.kv.lender.parked:
            assert slot.tokens is not None
            assert self.cells.tokens(slot.number) == slot.tokens.tolist()
        entries, figures = self.entries(), self.kv.figures
        assert len({entry.id for entry in entries}) == len(entries)
        for entry in entries:
            assert entry.places
            assert entry.bytes == state_bytes_of(entry.tokens)
            assert entry.scope in self.computed
        for place, used, count in (
            ("memory", figures.memory_bytes, figures.memory_entries),
            ("disk", figures.disk_bytes, figures.disk_entries),
        ):
            assert used == sum(entry.bytes for entry in entries if place in entry.places)
            assert count == sum(place in entry.places for entry in entries)
        for ask in self.asks:
            assert len(ask.ends) <= 1

    def check_budgets(self) -> None:
        """Only what is pinned, or awaited, may be more than there is room for."""
        if any(request.awaits is not None for request in self.scheduler.admitted):
            return
        figures = self.kv.figures
        for place, used, budget in (
            ("memory", figures.memory_bytes, self._limits.memory_bytes),
            ("disk", figures.disk_bytes, self._limits.disk_bytes),
        ):
            pinned = sum(entry.bytes for entry in self.entries() if entry.pinned and place in entry.places)
            assert used <= max(budget, pinned), f"{place} holds {used} bytes and may hold {budget}"
