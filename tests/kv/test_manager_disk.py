"""Remembering prefixes on disk: restarts, damaged files, disks that are slow or full."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from legato.kv.disk import DiskStore
from legato.kv.manager import Limits
from legato.scheduling.costs import CostModel
from legato.scheduling.plan import Plan
from legato.simulate.cells import state_bytes_of
from tests.kv.remembering import COSTS, LONG, PLENTY, Remembering, files, joined, run_of, scribble


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "states"


def test_a_restart_finds_what_was_written(folder: Path) -> None:
    engine = Remembering(folder)
    engine.ask(LONG)
    engine.idle()
    assert engine.places() == [["disk", "memory"]]
    engine.restart()
    assert engine.places() == [["disk"]]
    assert engine.ask(joined(LONG, run_of(900, 10))).prefilled_tokens == 10
    assert [(r.tokens, r.tier) for r in engine.restored] == [(100, "disk")]
    engine.close()


def test_stopping_writes_what_is_only_in_cells(folder: Path) -> None:
    engine = Remembering(folder)
    engine.ask(LONG)
    engine.restart()
    assert len(files(folder)) == 1
    assert engine.ask(joined(LONG, run_of(900, 10))).prefilled_tokens == 10
    engine.close()


def test_many_wait_for_one_state_on_disk(folder: Path) -> None:
    engine = Remembering(folder, sequences=6)
    engine.ask(LONG)
    engine.restart()
    asked = [engine.submit(joined(LONG, run_of(1000 * n, 10))) for n in range(1, 7)]
    engine.finish()
    assert [engine.read(i) for i in asked] == [10] * 6
    assert {r.tokens for r in engine.restored} == {100}
    engine.close()


@pytest.mark.parametrize("at", [0, 40, 120, 300, -1])
def test_a_damaged_file_is_read_anew_and_nobody_fails(folder: Path, at: int) -> None:
    engine = Remembering(folder, sequences=3)
    engine.ask(LONG)
    engine.restart()
    scribble(files(folder)[0], at)
    asked = [engine.submit(joined(LONG, run_of(1000 * n, 10))) for n in range(1, 4)]
    engine.finish()
    assert sum(engine.read(i) for i in asked) == 100 + 3 * 10
    engine.restart()
    assert engine.ask(joined(LONG, run_of(9000, 10))).prefilled_tokens == 10, "it was written again"
    engine.close()


def test_a_file_that_is_gone_is_read_anew(folder: Path) -> None:
    engine = Remembering(folder)
    engine.ask(LONG)
    engine.restart()
    files(folder)[0].unlink()
    assert engine.ask(LONG).prefilled_tokens == 100
    engine.close()


def test_a_file_that_is_damaged_while_nothing_runs_is_no_entry(folder: Path) -> None:
    engine = Remembering(folder)
    engine.ask(LONG)
    engine.close()
    scribble(files(folder)[0], 40)
    engine.start()
    assert engine.entries() == []
    assert files(folder) == []
    engine.close()


def test_a_state_that_the_library_refuses_is_forgotten(folder: Path) -> None:
    engine = Remembering(folder, sequences=2)
    engine.ask(LONG)
    engine.idle()
    (saved,) = engine.entries()
    engine.ask(run_of(500, 100))
    engine.ask(run_of(700, 100))
    engine.cells.refuses = True
    assert engine.ask(joined(LONG, run_of(900, 10))).prefilled_tokens == 110
    assert engine.cells.loaded == 0
    assert saved.id not in [entry.id for entry in engine.entries()], "it is not offered again"
    engine.close()


def test_the_disk_of_another_model_is_not_touched(folder: Path) -> None:
    engine = Remembering(folder)
    engine.ask(LONG)
    engine.close()
    other = DiskStore(folder, "another model")
    assert other.scan() == []
    other.close()
    assert len(files(folder)) == 1


def test_people_name_entries_by_the_beginning_of_their_ids(folder: Path) -> None:
    engine = Remembering(folder, sequences=2)
    engine.ask(LONG)
    engine.ask(run_of(500, 100))
    engine.idle()
    name = engine.entries()[0].id
    assert not engine.kv.act("pin", "")
    assert not engine.kv.act("pin", "no such entry")
    assert engine.kv.act("pin", name[:30])
    assert [entry.id for entry in engine.entries() if entry.pinned] == [name]
    assert engine.kv.act("unpin", name)
    assert not any(entry.pinned for entry in engine.entries())
    assert engine.kv.act("remove", name)
    assert name not in [entry.id for entry in engine.entries()]
    engine.close()


def test_what_is_forgotten_while_it_is_awaited_is_read(folder: Path) -> None:
    engine = Remembering(folder)
    engine.ask(LONG)
    engine.restart()
    i = engine.submit(joined(LONG, run_of(900, 10)))
    engine.admit()
    assert len(engine.scheduler.held_back) == 1
    assert engine.kv.act("remove", None)
    engine.finish()
    assert engine.read(i) == 110
    engine.close()


def test_a_pin_survives_a_restart(folder: Path) -> None:
    engine = Remembering(folder)
    engine.ask(LONG)
    engine.idle()
    assert engine.places() == [["disk", "memory"]]
    assert engine.kv.act("pin", None)
    engine.restart()
    assert [entry.pinned for entry in engine.entries()] == [True]
    engine.close()


def test_a_pin_survives_a_restart_if_it_came_before_the_entry_was_on_disk(folder: Path) -> None:
    engine = Remembering(folder)
    engine.ask(LONG)
    while not engine.entries():
        engine.kv.use_time(math.inf)
    assert engine.places() == [["memory"]]
    assert engine.kv.act("pin", None)
    engine.restart()
    assert [entry.pinned for entry in engine.entries()] == [True]
    engine.close()


def test_spare_work_ends_where_the_disk_is_short(folder: Path) -> None:
    engine = Remembering(folder, sequences=3, limits=Limits(PLENTY, state_bytes_of(110)))
    for n in range(3):
        engine.ask(run_of(1000 * n, 100))
        engine.idle()
    engine.check_budgets()
    engine.close()
    assert len(files(folder)) == 1


def test_spare_work_ends_where_the_disk_is_full_of_what_is_pinned(folder: Path) -> None:
    engine = Remembering(folder, sequences=3, limits=Limits(PLENTY, state_bytes_of(110)))
    engine.ask(LONG)
    engine.idle()
    assert engine.kv.act("pin", None)
    engine.ask(run_of(500, 100))
    engine.idle()
    assert engine.places() == [["disk", "memory"], ["memory"]]
    engine.close()


def test_after_a_write_that_failed_others_are_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Remembering(folder)
    engine.ask(LONG)
    with monkeypatch.context() as patch:
        patch.setattr(DiskStore, "write", fail)
        engine.idle()
    assert engine.places() == [["memory"]]
    engine.ask(run_of(500, 100))
    engine.idle()
    assert engine.places() == [["disk", "memory"], ["memory"]]
    engine.close()


def fail(*_: object, **__: object) -> None:
    raise OSError("disk full")


@pytest.mark.parametrize("how", ["it is cancelled", "its patience ends"])
def test_budgets_are_kept_when_somebody_waits_no_longer(folder: Path, how: str) -> None:
    engine = Remembering(folder)
    engine.ask(LONG)
    engine.close()
    engine = Remembering(folder, limits=Limits(0, PLENTY))
    i = engine.submit(joined(LONG, run_of(900, 10)))
    engine.await_state()
    assert engine.kv.figures.memory_bytes == state_bytes_of(101)
    if how == "it is cancelled":
        engine.simulation.cancel(i)
        engine.admit()
    else:
        engine.run_plan(Plan(given_up=(i,)))
    engine.check_budgets()
    engine.close()


def test_no_disk_is_waited_for_longer_than_reading_takes(folder: Path) -> None:
    engine = Remembering(folder)
    first = engine.ask(LONG)
    engine.restart()
    assert engine.disk is not None
    engine.disk.takes_s = math.inf
    i = engine.submit(joined(first.prompt, first.answer, run_of(900, 10)))
    engine.admit()
    restore = engine.scheduler[i].restore
    assert restore is not None
    engine.finish()
    assert i not in [restored.request for restored in engine.restored]
    waited_s = engine.simulation.asks[i].token_times_s[0] - CostModel(COSTS).chunk_s(0, 112)
    assert waited_s == pytest.approx(restore.prefill_s, rel=0.02)
    engine.close()


def test_smaller_budgets_hold_at_once_and_larger_ones_give_room_again(folder: Path) -> None:
    engine = Remembering(folder)
    engine.ask(LONG)
    engine.idle()
    assert engine.places() == [["disk", "memory"]]
    engine.kv.set_budgets(0, None)
    assert engine.places() == [["disk"]]
    engine.kv.set_budgets(None, 0)
    assert engine.places() == []
    engine.kv.set_budgets(PLENTY, PLENTY)
    engine.idle()
    assert engine.places() == [["disk", "memory"]]
    engine.close()


def test_a_state_is_fetched_again_though_somebody_has_waited_for_it_in_vain(folder: Path) -> None:
    engine = Remembering(folder, sequences=4)
    first = engine.ask(LONG)
    text = joined(first.prompt, first.answer)
    engine.restart()
    impatient = engine.submit(joined(text, run_of(900, 90)))
    engine.await_state()
    engine.run_plan(Plan(given_up=(impatient,)))
    longer = engine.submit(joined(text, run_of(2000, 10)))
    while longer in engine.left:
        engine.step()
    while not (saved := [entry for entry in engine.entries() if entry.tokens > 101]):
        engine.kv.use_time(math.inf)
    assert engine.places() == [["disk"], ["memory"]]
    assert engine.kv.act("remove", saved[0].id)
    asked = engine.submit(joined(text, run_of(3000, 10)))
    engine.admit()
    assert [request.id for request in engine.scheduler.held_back] == [asked]
    engine.simulation.cancel(impatient)
    engine.finish()
    engine.close()
