"""Remembering prefixes: whatever is moved where, a request's cells hold its own tokens, and every request ends."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from legato.core.cache import CacheAction, CacheEntry, Recalled
from legato.core.choices import PolicyName
from legato.core.tokens import Tokens
from legato.engine.context import Context
from legato.kv import manager as keeper_module
from legato.kv.disk import DiskStore
from legato.kv.disk_threads import DiskThreads
from legato.kv.manager import Keeper, Limits
from legato.kv.placement import READ_AT_LEAST
from legato.scheduling.costs import Coefficients, CostModel
from legato.scheduling.policies import make_policy
from legato.scheduling.scheduler import Scheduler
from legato.scheduling.state import Chunk, Outcome, Plan, Sequence
from tests.runtime.fake_context import FakeContext, state_bytes_of

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
"""Reading takes so long that moving anything is always worth it, whatever this machine is doing."""
POLLS = 2000
"""More than any disk needs, of `POLL_S` each."""
POLL_S = 0.001
TENDINGS = 300
"""More bits of spare work than the few states of a test are."""


@pytest.fixture(autouse=True, scope="module")
def _short_waits() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keeper_module, "WRITING_LOOK_S", 0.0005)
        patch.setattr(keeper_module, "CLOSING_S", 1.0)
        yield


@dataclass
class Ask:
    """A request, and what the model would answer."""

    prompt: Tokens
    answer: Tokens
    client: str | None = None
    written: int = 0
    read: int = 0
    """Tokens of it that were read, some maybe twice."""


class Engine:
    """The loop around a keeper, without a model.

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
        self._policy = policy
        self.asks: dict[int, Ask] = {}
        """All requests, those that have ended too."""
        self.left: set[int] = set()
        """Those that have not ended."""
        self.recalled: list[Recalled] = []
        """What did not have to be read."""
        self.computed: dict[str, set[tuple[int, ...]]] = {}
        """All states that have been computed, by whose they are."""
        self.start()

    def start(self) -> None:
        """Begin anew with what is on disk."""
        costs = CostModel(COSTS)
        self.left.clear()
        self.context = FakeContext(
            self._sequences, CELLS, can_cut=self._limits.can_cut, can_cut_states=self._limits.can_cut_states
        )
        self.keeper = Keeper(
            cast(Context, self.context),
            costs,
            bytes_per_token=4,
            limits=self._limits,
            store=DiskStore(self._folder, KEY) if self._folder is not None else None,
            tokens_of=self.tokens_of,
            client_of=lambda i: self.asks[i].client,
            is_busy=lambda: bool(self.left),
        )
        policy = make_policy(self._policy, costs=costs, gap_target_s=0.1, chunk=CHUNK, step_tokens=4 * CHUNK)
        self.scheduler = Scheduler(policy, self.keeper.cache)

    def restart(self) -> None:
        """Stop as a server stops, and begin anew."""
        self.keeper.close()
        self.start()

    def tokens_of(self, i: int) -> Tokens:
        ask = self.asks[i]
        return np.concatenate([ask.prompt, ask.answer[: ask.written]])

    def submit(self, prompt: Tokens, answer: int = 2, client: str | None = None, *, background: bool = False) -> int:
        """Ask; the answer's tokens are like no others."""
        i = len(self.asks)
        self.asks[i] = Ask(prompt, np.arange(10_000 + 100 * i, 10_000 + 100 * i + answer, dtype=np.int32), client)
        sequence = Sequence(i, len(prompt), answer, client=client, background=background, arrived_s=time.monotonic())
        self.scheduler.add(sequence)
        self.left.add(i)
        return i

    def ask(self, prompt: Tokens, answer: int = 2, client: str | None = None) -> Ask:
        """Ask, and wait for the answer."""
        i = self.submit(prompt, answer, client)
        self.finish()
        return self.asks[i]

    def cancel(self, i: int, *, is_sound: bool = True) -> None:
        released = self.scheduler.cancel(i)
        if released is not None:
            self.keeper.released(released, is_sound=is_sound)
        self.left.discard(i)

    def finish(self) -> None:
        """Go on until all requests have ended."""
        polls = 0
        while self.left:
            if not self.step():
                polls += 1
                assert polls < POLLS, f"requests {self.left} never end"
                time.sleep(POLL_S)

    def step(self) -> bool:
        """One pass of the loop; False if there was nothing to do but to wait."""
        self._admit()
        now_s = time.monotonic()
        plan = self.scheduler.plan(now_s)
        committed: dict[int, int] = {}
        for i in plan.decodes:
            sequence = self.scheduler[i]
            assert sequence.recall is None
            self._evaluate(sequence, 1)
            committed[i] = 1
        for chunk in plan.chunks:
            sequence = self.scheduler[chunk.id]
            assert sequence.recall is None
            assert sequence.computed_tokens == chunk.start
            self._evaluate(sequence, chunk.length)
            self.asks[chunk.id].read += chunk.length
            if chunk.start + chunk.length == sequence.prompt_tokens and not sequence.new_tokens:
                committed[chunk.id] = 1
        for i in committed:
            self.asks[i].written += 1
        finished = [i for i in committed if self.asks[i].written >= self.scheduler[i].max_new_tokens]
        for released in self.scheduler.commit(plan, Outcome(committed, finished), time.monotonic()):
            self.keeper.released(released)
        self.left -= set(finished)
        for i in plan.moves:
            self._move(i)
        return bool(plan)

    def _admit(self) -> None:
        now_s = time.monotonic()
        self.keeper.border(self.scheduler.held_back, now_s)
        admission = self.scheduler.admit(now_s)
        for released in admission.preempted:
            self.keeper.preempted(released)
        for sequence, lease in admission.admitted:
            in_place = self.keeper.admitted(sequence, lease, now_s)
            assert sequence.computed_tokens == (0 if in_place is None else in_place.tokens)
            self._note(sequence, in_place)

    def _move(self, i: int) -> None:
        sequence = self.scheduler[i]
        recalled = self.keeper.move(sequence, time.monotonic())
        if recalled is None:
            assert sequence.recall is not None
            assert sequence.recall.move_s is None
            return
        self.scheduler.recalled(i, recalled.tokens)
        self._note(sequence, recalled)

    def _note(self, sequence: Sequence, recalled: Recalled | None) -> None:
        """What was put into a request's cells has to be its own beginning, and computed for whom it may be used by."""
        self._check_cells(sequence)
        if recalled is None or not recalled.tokens:
            return
        assert self._limits.is_on
        assert recalled.request == sequence.id
        beginning = tuple(self.tokens_of(sequence.id)[: recalled.tokens].tolist())
        assert len(beginning) == recalled.tokens <= sequence.prompt_tokens + max(0, sequence.new_tokens - 1) - 1
        if not sequence.new_tokens:
            assert sequence.unread_tokens >= READ_AT_LEAST
        states = self.computed.get(self._scope_of(sequence.id), set())
        if self._limits.can_cut and (recalled.took_s == 0 or self._limits.can_cut_states):
            assert any(state[: len(beginning)] == beginning for state in states)
        else:
            assert beginning in states
        self.recalled.append(recalled)

    def _evaluate(self, sequence: Sequence, count: int) -> None:
        start, tokens = sequence.computed_tokens, self.tokens_of(sequence.id)
        assert sequence.slot is not None
        assert start + count <= len(tokens)
        self.context.evaluate(sequence.slot, tokens[start : start + count], start)
        states = self.computed.setdefault(self._scope_of(sequence.id), set())
        states.add(tuple(tokens[: start + count].tolist()))

    def _scope_of(self, i: int) -> str:
        return (self.asks[i].client or "") if self._limits.by_client else ""

    def idle(self) -> None:
        """Do all that was put off, as a server does before it sleeps."""
        for _ in range(TENDINGS):
            if not self.keeper.tend_or_wait():
                return
        raise AssertionError("an idle engine never sleeps")

    # What has to be so at any time

    def check(self) -> None:
        for i in self.left:
            if i in self.scheduler:
                self._check_cells(self.scheduler[i])
        for slot in self.keeper.cache.parked:
            assert slot.tokens is not None
            assert self.context.tokens(slot.number) == slot.tokens.tolist()
        entries = self.entries()
        assert len({entry.id for entry in entries}) == len(entries)
        for entry in entries:
            assert entry.places
            assert entry.bytes == state_bytes_of(entry.tokens)
            assert entry.scope in self.computed
        for place, used, count in (
            ("memory", self.keeper.state.memory_bytes, self.keeper.state.memory_entries),
            ("disk", self.keeper.state.disk_bytes, self.keeper.state.disk_entries),
        ):
            assert used == sum(entry.bytes for entry in entries if place in entry.places)
            assert count == sum(place in entry.places for entry in entries)

    def check_budgets(self) -> None:
        """Only what is pinned, or awaited, may be more than there is room for."""
        if any(self.scheduler[i].recall is not None for i in self.left if i in self.scheduler):
            return
        for place, used, budget in (
            ("memory", self.keeper.state.memory_bytes, self._limits.memory_bytes),
            ("disk", self.keeper.state.disk_bytes, self._limits.disk_bytes),
        ):
            pinned = sum(entry.bytes for entry in self.entries() if entry.pinned and place in entry.places)
            assert used <= max(budget, pinned), f"{place} holds {used} bytes and may hold {budget}"

    def _check_cells(self, sequence: Sequence) -> None:
        assert sequence.slot is not None
        expected = self.tokens_of(sequence.id)[: sequence.computed_tokens].tolist()
        assert self.context.tokens(sequence.slot) == expected
        assert sequence.recall is None or not expected

    def entries(self) -> list[CacheEntry]:
        """What is remembered outside the cells."""
        return [entry for entry in self.keeper.listing if entry.id]

    def places(self) -> list[list[str]]:
        return sorted(entry.places for entry in self.entries())


def run_of(first: int, count: int) -> Tokens:
    """Tokens from `first` on."""
    return np.arange(first, first + count, dtype=np.int32)


def joined(*parts: Tokens) -> Tokens:
    return np.concatenate(parts)


LONG = run_of(0, 100)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "states"


def files(folder: Path) -> list[Path]:
    """The states on disk."""
    return sorted(folder.glob("*/*.kv"))


def scribble(path: Path, at: int) -> None:
    """Change one byte."""
    content = bytearray(path.read_bytes())
    content[at % len(content)] ^= 0xFF
    path.write_bytes(content)


def test_ten_with_the_same_beginning_read_it_once() -> None:
    engine = Engine(sequences=10)
    asked = [engine.submit(joined(LONG, run_of(1000 * n, 10))) for n in range(1, 11)]
    engine.finish()
    assert sum(engine.asks[i].read for i in asked) == 100 + 10 * 10
    assert [r.tokens for r in engine.recalled] == [100] * 9
    assert engine.context.loaded == 9


def test_twenty_with_fewer_sequences_than_that_read_it_once_too() -> None:
    engine = Engine(sequences=4)
    asked = [engine.submit(joined(LONG, run_of(1000 * n, 10))) for n in range(1, 21)]
    engine.finish()
    assert sum(engine.asks[i].read for i in asked) == 100 + 20 * 10


def test_a_conversation_is_read_once() -> None:
    engine = Engine(sequences=1)
    prompt = LONG
    for turn in range(1, 5):
        ask = engine.ask(prompt, answer=5)
        # The last token of an answer was never read, and every answer was written, not read.
        assert ask.read == (100 if turn == 1 else 1 + 10)
        prompt = joined(ask.prompt, ask.answer, run_of(1000 * turn, 10))
    assert engine.context.loaded == 0


def test_the_same_prompt_again_leaves_a_little_to_read() -> None:
    engine = Engine()
    assert engine.ask(LONG).read == 100
    assert engine.ask(LONG).read == READ_AT_LEAST


def test_when_the_one_that_is_followed_goes_away_another_reads() -> None:
    engine = Engine(sequences=3)
    asked = [engine.submit(joined(LONG, run_of(1000 * n, 10))) for n in range(1, 4)]
    engine.step()
    engine.step()
    assert [engine.asks[i].read for i in asked] == [2 * CHUNK, 0, 0]
    assert len(engine.scheduler.held_back) == 2
    engine.cancel(asked[0])
    engine.finish()
    # What it has read until then was parked, and is gone on from.
    assert sum(engine.asks[i].read for i in asked) == 100 + 2 * 10


def test_when_the_one_that_is_followed_fails_another_reads() -> None:
    engine = Engine(sequences=3)
    asked = [engine.submit(joined(LONG, run_of(1000 * n, 10))) for n in range(1, 4)]
    engine.step()
    engine.cancel(asked[0], is_sound=False)
    engine.finish()
    assert sum(engine.asks[i].read for i in asked) == CHUNK + 100 + 2 * 10


def test_what_is_overwritten_comes_back_from_memory() -> None:
    engine = Engine(sequences=1)
    engine.ask(LONG)
    engine.idle()
    assert engine.places() == [["memory"]]
    engine.ask(run_of(500, 100))
    assert engine.ask(joined(LONG, run_of(900, 10))).read == 10
    assert [(r.tokens, r.tier) for r in engine.recalled] == [(100, "memory")]


def test_what_was_not_saved_is_gone_when_it_is_overwritten() -> None:
    engine = Engine(sequences=1)
    engine.ask(LONG)
    engine.ask(run_of(500, 100))
    assert engine.ask(joined(LONG, run_of(900, 10))).read == 110


def test_nothing_is_remembered_where_nothing_may_be() -> None:
    engine = Engine(sequences=2, limits=Limits(0, 0, is_on=False))
    for _ in range(2):
        assert engine.ask(LONG).read == 100
        engine.idle()
    assert engine.keeper.listing == []
    assert engine.recalled == []


def test_each_client_has_its_own() -> None:
    engine = Engine(sequences=4, limits=Limits(PLENTY, 0, by_client=True))
    for client in ("ana", "ben", None):
        assert engine.ask(LONG, client=client).read == 100
        engine.idle()
    assert sorted(entry.scope for entry in engine.entries()) == ["", "ana", "ben"]
    for client in ("ana", "ben", None):
        assert engine.ask(joined(LONG, run_of(900, 10)), client=client).read == 10


def test_without_time_nothing_is_saved() -> None:
    engine = Engine()
    engine.ask(LONG)
    for _ in range(10):
        engine.keeper.tend(0.0)
    assert engine.context.saved == 0
    engine.idle()
    assert engine.context.saved == 1


def test_what_is_used_while_it_is_being_saved_is_not_saved() -> None:
    engine = Engine(sequences=1)
    engine.ask(LONG)
    assert engine.keeper.tend(math.inf)
    engine.submit(joined(run_of(500, 100)))
    engine.step()
    engine.keeper.tend(math.inf)
    engine.finish()
    engine.idle()
    assert [entry.tokens for entry in engine.entries()] == [101]
    engine.ask(LONG)
    assert engine.ask(run_of(500, 100)).read == READ_AT_LEAST


def test_a_longer_state_takes_the_place_of_what_it_continues() -> None:
    engine = Engine(sequences=1)
    first = engine.ask(LONG)
    engine.idle()
    engine.ask(joined(first.prompt, first.answer, run_of(900, 10)))
    engine.idle()
    assert [entry.tokens for entry in engine.entries()] == [100 + 2 + 10 + 1]


def test_a_restart_finds_what_was_written(folder: Path) -> None:
    engine = Engine(folder)
    engine.ask(LONG)
    engine.idle()
    assert engine.places() == [["disk", "memory"]]
    engine.restart()
    assert engine.places() == [["disk"]]
    assert engine.ask(joined(LONG, run_of(900, 10))).read == 10
    assert [(r.tokens, r.tier) for r in engine.recalled] == [(100, "disk")]
    engine.keeper.close()


def test_stopping_writes_what_is_only_in_cells(folder: Path) -> None:
    engine = Engine(folder)
    engine.ask(LONG)
    engine.restart()
    assert len(files(folder)) == 1
    assert engine.ask(joined(LONG, run_of(900, 10))).read == 10
    engine.keeper.close()


def test_many_wait_for_one_state_on_disk(folder: Path) -> None:
    engine = Engine(folder, sequences=6)
    engine.ask(LONG)
    engine.restart()
    asked = [engine.submit(joined(LONG, run_of(1000 * n, 10))) for n in range(1, 7)]
    engine.finish()
    assert [engine.asks[i].read for i in asked] == [10] * 6
    assert {r.tokens for r in engine.recalled} == {100}
    engine.keeper.close()


@pytest.mark.parametrize("at", [0, 40, 120, 300, -1])
def test_a_damaged_file_is_read_anew_and_nobody_fails(folder: Path, at: int) -> None:
    engine = Engine(folder, sequences=3)
    engine.ask(LONG)
    engine.restart()
    scribble(files(folder)[0], at)
    asked = [engine.submit(joined(LONG, run_of(1000 * n, 10))) for n in range(1, 4)]
    engine.finish()
    assert sum(engine.asks[i].read for i in asked) == 100 + 3 * 10
    engine.restart()
    assert engine.ask(joined(LONG, run_of(9000, 10))).read == 10, "it was written again"
    engine.keeper.close()


def test_a_file_that_is_gone_is_read_anew(folder: Path) -> None:
    engine = Engine(folder)
    engine.ask(LONG)
    engine.restart()
    files(folder)[0].unlink()
    assert engine.ask(LONG).read == 100
    engine.keeper.close()


def test_a_file_that_is_damaged_while_nothing_runs_is_no_entry(folder: Path) -> None:
    engine = Engine(folder)
    engine.ask(LONG)
    engine.keeper.close()
    scribble(files(folder)[0], 40)
    engine.start()
    assert engine.entries() == []
    assert files(folder) == []
    engine.keeper.close()


def test_a_state_that_the_library_refuses_is_forgotten(folder: Path) -> None:
    engine = Engine(folder, sequences=2)
    engine.ask(LONG)
    engine.idle()
    engine.ask(run_of(500, 100))
    engine.ask(run_of(700, 100))
    engine.context.refuses = True
    assert engine.ask(joined(LONG, run_of(900, 10))).read == 110
    assert engine.context.loaded == 0
    assert all(entry.tokens != 101 for entry in engine.entries()), "it is not offered again"
    engine.keeper.close()


def test_the_disk_of_another_model_is_not_touched(folder: Path) -> None:
    engine = Engine(folder)
    engine.ask(LONG)
    engine.keeper.close()
    other = DiskStore(folder, "another model")
    assert other.scan() == []
    other.close()
    assert len(files(folder)) == 1


def test_a_state_that_cannot_be_cut_is_used_as_a_whole() -> None:
    engine = Engine(sequences=1, limits=Limits(PLENTY, 0, can_cut=False, can_cut_states=False))
    first = engine.ask(LONG, answer=3)
    edited = joined(LONG[:50], run_of(900, 50))
    engine.idle()
    assert engine.ask(edited).read == 100
    going_on = joined(first.prompt, first.answer, run_of(700, 10))
    assert engine.ask(going_on).read == 1 + 10
    assert [(r.tokens, r.tier) for r in engine.recalled] == [(102, "memory")]
    assert engine.ask(going_on).read == 1 + 10, "its own end is after what it begins with"


def test_what_cannot_be_cut_keeps_the_end_of_every_turn() -> None:
    engine = Engine(sequences=1, limits=Limits(PLENTY, 0, can_cut=False, can_cut_states=False))
    first = engine.ask(LONG)
    engine.idle()
    second = engine.ask(joined(first.prompt, first.answer, run_of(700, 10)))
    engine.idle()
    assert sorted(entry.tokens for entry in engine.entries()) == [101, 113]
    assert engine.ask(joined(first.prompt, first.answer, run_of(800, 10))).read == 1 + 10
    assert engine.ask(joined(second.prompt, second.answer, run_of(900, 10))).read == 1 + 10


def test_where_only_states_cannot_be_cut_cells_still_are() -> None:
    engine = Engine(sequences=2, limits=Limits(PLENTY, 0, can_cut_states=False))
    engine.ask(LONG)
    assert engine.ask(joined(LONG[:50], run_of(900, 10))).read == 10
    assert engine.context.loaded == 0
    engine.ask(run_of(500, 100))
    engine.idle()
    engine.ask(run_of(700, 100))
    engine.ask(run_of(800, 100))
    assert engine.ask(joined(run_of(500, 50), run_of(900, 10))).read == 60


def test_people_can_forget_all() -> None:
    engine = Engine(sequences=2)
    engine.ask(LONG)
    engine.idle()
    engine.ask(run_of(500, 100))
    assert engine.keeper.act("remove", None)
    assert engine.keeper.listing == []
    assert engine.ask(LONG).read == 100


def test_people_name_entries_by_the_beginning_of_their_ids(folder: Path) -> None:
    engine = Engine(folder, sequences=2)
    engine.ask(LONG)
    engine.ask(run_of(500, 100))
    engine.idle()
    name = engine.entries()[0].id
    assert not engine.keeper.act("pin", "")
    assert not engine.keeper.act("pin", "no such entry")
    assert engine.keeper.act("pin", name[:30])
    assert [entry.id for entry in engine.entries() if entry.pinned] == [name]
    assert engine.keeper.act("unpin", name)
    assert not any(entry.pinned for entry in engine.entries())
    assert engine.keeper.act("remove", name)
    assert name not in [entry.id for entry in engine.entries()]
    engine.keeper.close()


def test_what_is_forgotten_while_it_is_awaited_is_read(folder: Path) -> None:
    engine = Engine(folder)
    engine.ask(LONG)
    engine.restart()
    i = engine.submit(joined(LONG, run_of(900, 10)))
    engine._admit()
    assert len(engine.scheduler.held_back) == 1
    assert engine.keeper.act("remove", None)
    engine.finish()
    assert engine.asks[i].read == 110
    engine.keeper.close()


def test_a_pin_survives_a_restart(folder: Path) -> None:
    engine = Engine(folder)
    engine.ask(LONG)
    engine.idle()
    assert engine.places() == [["disk", "memory"]]
    assert engine.keeper.act("pin", None)
    engine.restart()
    assert [entry.pinned for entry in engine.entries()] == [True]
    engine.keeper.close()


def test_a_pin_survives_a_restart_if_it_came_before_the_entry_was_on_disk(folder: Path) -> None:
    engine = Engine(folder)
    engine.ask(LONG)
    while not engine.entries():
        engine.keeper.tend(math.inf)
    assert engine.places() == [["memory"]]
    assert engine.keeper.act("pin", None)
    engine.restart()
    assert [entry.pinned for entry in engine.entries()] == [True]
    engine.keeper.close()


def test_spare_work_ends_where_memory_is_short() -> None:
    engine = Engine(sequences=3, limits=Limits(state_bytes_of(110), 0))
    for n in range(3):
        engine.ask(run_of(1000 * n, 100))
        engine.idle()
    engine.check_budgets()
    assert len(engine.entries()) == 1


def test_spare_work_ends_where_the_disk_is_short(folder: Path) -> None:
    engine = Engine(folder, sequences=3, limits=Limits(PLENTY, state_bytes_of(110)))
    for n in range(3):
        engine.ask(run_of(1000 * n, 100))
        engine.idle()
    engine.check_budgets()
    engine.keeper.close()
    assert len(files(folder)) == 1


def test_spare_work_ends_where_the_disk_is_full_of_what_is_pinned(folder: Path) -> None:
    engine = Engine(folder, sequences=3, limits=Limits(PLENTY, state_bytes_of(110)))
    engine.ask(LONG)
    engine.idle()
    assert engine.keeper.act("pin", None)
    engine.ask(run_of(500, 100))
    engine.idle()
    assert engine.places() == [["disk", "memory"], ["memory"]]
    engine.keeper.close()


@pytest.mark.parametrize("how", ["it is cancelled", "its patience ends"])
def test_budgets_are_kept_when_somebody_waits_no_longer(folder: Path, how: str) -> None:
    engine = Engine(folder)
    engine.ask(LONG)
    engine.keeper.close()
    engine = Engine(folder, limits=Limits(0, PLENTY))
    i = engine.submit(joined(LONG, run_of(900, 10)))
    _await_state(engine)
    assert engine.keeper.state.memory_bytes == state_bytes_of(101)
    if how == "it is cancelled":
        engine.cancel(i)
    else:
        engine.scheduler[i].recall = None
        engine.step()
    engine.check_budgets()
    engine.keeper.close()


def test_no_disk_is_waited_for_longer_than_reading_takes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(folder)
    first = engine.ask(LONG)
    engine.restart()
    monkeypatch.setattr(DiskThreads, "fetch", lambda *_anything: None)  # the disk hangs
    i = engine.submit(joined(first.prompt, first.answer, run_of(900, 10)))
    engine.step()
    sequence = engine.scheduler[i]
    assert sequence.recall is not None
    monkeypatch.setattr(sequence.recall, "since_s", sequence.recall.since_s - sequence.recall.reading_s - 1)
    engine.finish()
    assert i not in [recalled.request for recalled in engine.recalled]
    engine.keeper.close()


def test_smaller_budgets_hold_at_once_and_larger_ones_give_room_again(folder: Path) -> None:
    engine = Engine(folder)
    engine.ask(LONG)
    engine.idle()
    assert engine.places() == [["disk", "memory"]]
    engine.keeper.set_budgets(0, None)
    assert engine.places() == [["disk"]]
    engine.keeper.set_budgets(None, 0)
    assert engine.places() == []
    engine.keeper.set_budgets(PLENTY, PLENTY)
    engine.idle()
    assert engine.places() == [["disk", "memory"]]
    engine.keeper.close()


def test_a_state_is_fetched_again_though_somebody_has_waited_for_it_in_vain(folder: Path) -> None:
    engine = Engine(folder, sequences=4)
    first = engine.ask(LONG)
    text = joined(first.prompt, first.answer)
    engine.restart()
    impatient = engine.submit(joined(text, run_of(900, 90)))
    _await_state(engine)
    engine.scheduler[impatient].recall = None
    longer = engine.submit(joined(text, run_of(2000, 10)))
    while longer in engine.left:
        engine.step()
    while not (saved := [entry for entry in engine.entries() if entry.tokens > 101]):
        engine.keeper.tend(math.inf)
    assert engine.places() == [["disk"], ["memory"]]
    assert engine.keeper.act("remove", saved[0].id)
    asked = engine.submit(joined(text, run_of(3000, 10)))
    engine._admit()
    assert [sequence.id for sequence in engine.scheduler.held_back] == [asked]
    engine.cancel(impatient)
    engine.finish()
    engine.keeper.close()


def _await_state(engine: Engine) -> None:
    """Wait until a state is there that is read from disk."""
    for _ in range(POLLS):
        engine._admit()
        if not engine.scheduler.held_back:
            return
        time.sleep(POLL_S)
    raise AssertionError("the disk never answers")


@pytest.mark.parametrize("steps", [0, 3, 8])
def test_what_is_overwritten_before_it_was_copied_is_not_copied(steps: int) -> None:
    """Another sequence holds the same beginning: that one is copied."""
    engine = Engine(sequences=3, limits=Limits(0, 0))
    for number, rest in enumerate((60, 80), 1):
        engine.submit(joined(LONG, run_of(1000 * number, rest)), answer=1)
        engine.step()
    engine.finish()
    before = len(engine.recalled)
    copying = engine.submit(joined(LONG, run_of(3000, 10)))
    engine._admit()
    sequence = engine.scheduler[copying]
    assert sequence.recall is not None
    ((_, source),) = engine.keeper._waiting.values()
    other = engine.submit(run_of(5000, 150))
    engine._admit()
    assert engine.scheduler[other].slot == source.slot, "it was worth least"
    # As if the move had no room: the other one is read meanwhile.
    waiting, sequence.recall.move_s = sequence.recall.move_s, None
    for _ in range(steps):
        _read(engine, other)
    sequence.recall.move_s = waiting
    engine._move(copying)
    assert [r.tokens for r in engine.recalled[before:]] == [100]
    engine.finish()
    assert engine.asks[copying].read == 10


def _read(engine: Engine, i: int) -> None:
    """Read a chunk of one request alone."""
    sequence = engine.scheduler[i]
    chunk = Chunk(i, sequence.computed_tokens, CHUNK)
    engine._evaluate(sequence, CHUNK)
    engine.scheduler.commit(Plan(chunks=(chunk,)), Outcome(), time.monotonic())


# The machine

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


class Remembering(RuleBasedStateMachine):
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
        self.engine = Engine(
            None if disk is None else self.folder,
            sequences=sequences,
            limits=Limits(memory, disk or 0, by_client=by_client, can_cut=can_cut[0], can_cut_states=can_cut[1]),
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
            i = wish.goes_on % len(self.engine.asks)
            before = self.engine.tokens_of(i)
            text = joined(before[: max(1, int(wish.kept * len(before)))], text)
            if not wish.is_strange:
                client = self.engine.asks[i].client
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

    @rule(which=numbers, is_sound=st.sampled_from([True, True, False]))
    def cancel(self, which: int, is_sound: bool) -> None:
        if left := sorted(self.engine.left):
            self.engine.cancel(left[which % len(left)], is_sound=is_sound)

    @rule(room_s=st.sampled_from([0.0, 0.01, 0.05, math.inf, math.inf]), times=st.integers(1, 8))
    def use_spare_time(self, room_s: float, times: int) -> None:
        for _ in range(times):
            self.engine.keeper.tend(room_s)

    @rule()
    def idle(self) -> None:
        if not self.engine.left:
            self.engine.idle()

    @rule(action=st.sampled_from(["remove", "pin", "unpin", "list"]), which=numbers | st.none())
    def act(self, action: CacheAction, which: int | None) -> None:
        entries = self.engine.entries()
        if which is None:
            assert self.engine.keeper.act(action, None)
            assert action != "remove" or self.engine.keeper.listing == []
        elif entries:
            assert self.engine.keeper.act(action, entries[which % len(entries)].id)

    @rule(text=st.lists(st.integers(0, 3), min_size=2, max_size=5), count=st.integers(2, 5), is_sound=st.booleans())
    def arrive_as_a_crowd(self, text: list[int], count: int, is_sound: bool) -> None:
        """Many ask the same at once, and one of them goes away."""
        asked = [self.engine.submit(joined(*(BLOCKS[n] for n in text), run_of(100 * n, n))) for n in range(count)]
        self._work(2)
        self.engine.cancel(asked[0], is_sound=is_sound)

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
                self.engine.keeper.close()
                self.place.cleanup()


Remembering.TestCase.settings = settings(
    max_examples=100,
    stateful_step_count=25,
    deadline=None,
    # Making a failing run shorter would take minutes, and threads are in it.
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)
TestRemembering = Remembering.TestCase
