"""Remembering prefixes, whatever happens: every request ends, and its cells hold its own tokens."""

from __future__ import annotations

import math
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from legato.core.cache import CacheAction
from legato.core.choices import PolicyName
from legato.kv.manager import Limits
from legato.simulate.cells import state_bytes_of
from tests.kv.remembering import CELLS, PLENTY, Remembering, files, joined, run_of, scribble

BLOCKS = [run_of(1000 * n, 16 + n) for n in range(1, 5)]
"""What prompts are made of."""
budgets = st.sampled_from([0, state_bytes_of(80), 3 * state_bytes_of(80), PLENTY, PLENTY, PLENTY])
numbers = st.integers(0, 1000)
"""Which of several things, whatever their count."""


@dataclass(frozen=True)
class Wish:
    """What somebody asks."""

    blocks: list[int]
    end: int
    """Tokens that follow them."""
    answer: int
    client: str | None
    background: bool
    goes_on: int | None
    """It continues an earlier request, this one or this one modulo how many there were."""
    kept: float
    """Share of that which is kept."""
    is_strange: bool
    """It is another client that continues it."""


wishes = st.builds(
    Wish,
    blocks=st.tuples(st.integers(0, 1), st.integers(0, 3), st.integers(0, 3)).map(list)
    | st.lists(st.integers(0, 3), min_size=1, max_size=5),
    end=st.integers(0, 20),
    answer=st.integers(1, 6),
    client=st.sampled_from([None, "ana", "ben"]),
    background=st.sampled_from([False, False, True]),
    goes_on=st.none() | numbers,
    kept=st.sampled_from([1.0, 1.0, 0.7]),
    is_strange=st.sampled_from([False, False, False, True]),
)

Harm = tuple[int, int, str]
"""Which file, at which byte, and what becomes of it."""
harms = st.tuples(numbers, st.integers(0, 10_000), st.sampled_from(["changed", "changed", "cut", "gone"]))


class AnythingHappens(RuleBasedStateMachine):
    """Requests come and go, memory and disk are short, files break, servers stop: nobody gets another's tokens."""

    @initialize(
        sequences=st.integers(1, 4),
        memory=budgets,
        disk=budgets | st.sampled_from([PLENTY, PLENTY, None]),
        by_client=st.booleans(),
        can_cut=st.sampled_from([(True, True), (True, True), (True, False), (False, False)]),
        policy=st.sampled_from(["chunked", "adaptive"]),
    )
    def start(
        self,
        sequences: int,
        memory: int,
        disk: int | None,
        by_client: bool,
        can_cut: tuple[bool, bool],
        policy: PolicyName,
    ) -> None:
        self.place = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.folder = Path(self.place.name)
        self.engine = Remembering(
            None if disk is None else self.folder,
            sequences=sequences,
            limits=Limits(
                memory, disk or 0, scope="key" if by_client else "server", can_cut=can_cut[0], can_cut_states=can_cut[1]
            ),
            policy=policy,
        )

    @rule(wishes=st.lists(wishes, min_size=1, max_size=5))
    def arrive(self, wishes: list[Wish]) -> None:
        for wish in wishes:
            self._submit(wish)

    @rule(wishes=st.lists(wishes, min_size=1, max_size=5))
    def arrive_and_be_answered(self, wishes: list[Wish]) -> None:
        for wish in wishes:
            self._submit(wish)
        self.engine.finish()
        self.engine.idle()

    @rule(wishes=st.lists(wishes, min_size=1, max_size=5), steps=st.integers(0, 5))
    def arrive_one_by_one(self, wishes: list[Wish], steps: int) -> None:
        for wish in wishes:
            self._submit(wish)
            self._work(steps)

    def _submit(self, wish: Wish) -> None:
        text, client = joined(*(BLOCKS[n] for n in wish.blocks)), wish.client
        if wish.goes_on is not None and self.engine.asks:
            # A conversation, or an edited one; mostly one's own.
            ask = self.engine.asks[wish.goes_on % len(self.engine.asks)]
            before = joined(ask.prompt, ask.answer)
            text = joined(before[: max(1, int(wish.kept * len(before)))], text)
            if not wish.is_strange:
                client = ask.client
        prompt = joined(text[: CELLS - 30], run_of(100 * wish.end, wish.end))
        self.engine.submit(prompt, wish.answer, client, background=wish.background)

    @rule(steps=st.integers(1, 12))
    def work(self, steps: int) -> None:
        self._work(steps)

    def _work(self, steps: int) -> None:
        for _ in range(steps):
            self.engine.step()

    @rule()
    def finish(self) -> None:
        self.engine.finish()
        assert self.engine.scheduler.running == 0

    @rule(which=numbers, fails=st.sampled_from([False, False, True]))
    def cancel(self, which: int, fails: bool) -> None:
        if left := sorted(self.engine.left):
            self._cancel(left[which % len(left)], fails=fails)

    def _cancel(self, number: int, *, fails: bool) -> None:
        """Somebody goes away, or the engine fails with what it does for them next."""
        if fails:
            self.engine.engine.failing.add(number)
        else:
            self.engine.simulation.cancel(number)

    @rule(room_s=st.sampled_from([0.0, 0.01, 0.05, math.inf, math.inf]), times=st.integers(1, 8))
    def use_spare_time(self, room_s: float, times: int) -> None:
        for _ in range(times):
            self.engine.kv.use_time(room_s)

    @rule()
    def idle(self) -> None:
        if not self.engine.left:
            self.engine.idle()

    @rule(action=st.sampled_from(["remove", "pin", "unpin", "list"]), which=numbers | st.none())
    def act(self, action: CacheAction, which: int | None) -> None:
        entries = self.engine.entries()
        if which is None:
            assert self.engine.kv.act(action, None)
            assert action != "remove" or self.engine.kv.listing == []
        elif entries:
            assert self.engine.kv.act(action, entries[which % len(entries)].id)

    @rule(text=st.lists(st.integers(0, 3), min_size=2, max_size=5), count=st.integers(2, 5), fails=st.booleans())
    def arrive_as_a_crowd(self, text: list[int], count: int, fails: bool) -> None:
        """Many ask the same at once, and one of them goes away."""
        asked = [self.engine.submit(joined(*(BLOCKS[n] for n in text), run_of(100 * n, n))) for n in range(count)]
        self._work(2)
        self._cancel(asked[0], fails=fails)

    @rule()
    def restart(self) -> None:
        self.engine.restart()

    @rule(wishes=st.lists(wishes, min_size=1, max_size=3), harm=st.none() | harms)
    def come_back_after_a_restart(self, wishes: list[Wish], harm: Harm | None) -> None:
        self.engine.finish()
        self.engine.idle()
        self.engine.restart()
        if harm is not None:
            self._damage(harm)
        for wish in wishes:
            self._submit(wish)
        self.engine.finish()

    @rule(harm=harms)
    def damage(self, harm: Harm) -> None:
        self._damage(harm)

    def _damage(self, harm: Harm) -> None:
        """What else may happen to a file, while it is written or read too."""
        which, at, how = harm
        if not (found := files(self.folder)):
            return
        path = found[which % len(found)]
        with suppress(FileNotFoundError):
            if how == "changed":
                scribble(path, at)
            elif how == "cut":
                path.write_bytes(path.read_bytes()[: at % 200])
            else:
                path.unlink()

    @invariant()
    def all_is_well(self) -> None:
        if hasattr(self, "engine"):
            self.engine.check()
            self.engine.check_budgets()

    def teardown(self) -> None:
        if hasattr(self, "engine"):
            try:
                self.engine.finish()
                self.all_is_well()
            finally:
                self.engine.close()
                self.place.cleanup()


AnythingHappens.TestCase.settings = settings(
    max_examples=100,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestAnythingHappens = AnythingHappens.TestCase
