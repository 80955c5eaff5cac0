"""Calibration: on a context whose calls take what a clock says, and on the real model, where only events count."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from legato.engine.batch import Batch
from legato.engine.context import Context, ContextSettings
from legato.engine.model import Model
from legato.scheduling.costs import Coefficients, CostModel, Work
from legato.worker import calibration
from legato.worker.calibration import TimedCall, calibrate, fit, time_calls

SEQUENCES = 3
TRUE = CostModel(Coefficients(0.004, 0.0005, 2e-6, 0.001, 0.002, 4e-7, 4e-7, 1))
"""What the calls of `TimedContext` take."""


class TimedContext:
    """A context without a model, whose calls move a clock by what they cost."""

    sequences = SEQUENCES
    cells_per_sequence = 512
    model = SimpleNamespace(vocabulary=SimpleNamespace(size=1000))

    def __init__(self) -> None:
        self.now_s = 0.0
        self.lengths = [0] * SEQUENCES

    def evaluate(self, batch: Batch) -> None:
        rows = range(len(batch))
        sequences = [batch.native.seq_id[row][0] for row in rows]
        positions = [batch.native.pos[row] for row in rows]
        for sequence, position in zip(sequences, positions, strict=True):
            assert position == self.lengths[sequence], "a sequence is filled from its end on"
            self.lengths[sequence] += 1
        assert max(self.lengths) <= self.cells_per_sequence
        one_chunk = len(set(sequences)) == 1 and not batch.native.logits[0]
        work = Work(chunks=((positions[0], len(rows)),)) if one_chunk else Work(depths=tuple(positions))
        self.now_s += TRUE.predict(work)

    def synchronize(self) -> None:
        """Nothing is ever pending."""

    def remove(self, sequence: int) -> None:
        self.lengths[sequence] = 0

    def copy(self, source: int, target: int) -> None:
        self.lengths[target] = self.lengths[source]


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> Any:
    context = TimedContext()
    monkeypatch.setattr(calibration, "time", SimpleNamespace(perf_counter=lambda: context.now_s))
    return context


def test_costs_are_found_and_the_context_is_left_empty(timed: Any) -> None:
    costs = calibrate(timed, flash_tile=1, limit_s=20.0, batch_tokens=64)
    assert costs.tile_rows == 1
    assert costs.loose_pair_s == costs.prefill_pair_s
    model = CostModel(costs)
    for work in (Work(depths=(100,)), Work(depths=(300, 300)), Work(chunks=((0, 8),)), Work(chunks=((200, 64),))):
        assert model.predict(work) == pytest.approx(TRUE.predict(work), rel=0.15)
    assert timed.lengths == [0] * SEQUENCES


@pytest.mark.parametrize("limit_s", [0.5, 1.0, 2.0, 5.0])
def test_the_limit_is_kept(timed: Any, limit_s: float) -> None:
    calls = time_calls(timed, limit_s=limit_s, batch_tokens=64)
    assert timed.now_s <= limit_s
    assert [call.took_s for call in calls] == pytest.approx([TRUE.predict(call.work) for call in calls])


def test_more_time_brings_deeper_calls(timed: Any) -> None:
    deepest = []
    for limit_s in (0.5, 2.0):
        calls = time_calls(timed, limit_s=limit_s, batch_tokens=64)
        deepest.append(max(sum(call.work.chunks[0]) for call in calls if call.work.chunks))
        assert timed.lengths == [0] * SEQUENCES
    assert deepest == sorted(set(deepest))


@pytest.fixture
def context(model_path: Path) -> Iterator[Context]:
    model = Model(model_path)
    context = Context(
        model,
        ContextSettings(
            sequences=SEQUENCES, cells_per_sequence=512, batch_tokens=64, threads=1, threads_prefill=1,
            flash_attention="off",
        ),
    )  # fmt: skip
    yield context
    context.close()
    model.close()


def test_costs_of_the_real_model_are_none_below_nothing_and_the_context_is_left_empty(context: Context) -> None:
    costs = calibrate(context, flash_tile=1, limit_s=2.0, batch_tokens=64)
    assert all(value >= 0 for value in msgspec.structs.astuple(costs))
    assert CostModel(costs).decode_s([100]) > 0
    assert all(context.length(sequence) == 0 for sequence in range(SEQUENCES))


def test_without_time_only_the_least_is_measured(context: Context) -> None:
    calls = time_calls(context, limit_s=0.0, batch_tokens=64)
    assert [call.work for call in calls] == [Work(chunks=((0, 16),)), Work(depths=(16,))]
    assert context.length(0) == 0


def test_calls_keep_to_the_batch_and_to_the_cells(context: Context) -> None:
    calls = time_calls(context, limit_s=3.0, batch_tokens=32)
    assert max(call.work.chunks[0][1] for call in calls if call.work.chunks) <= 32
    assert max(sum(call.work.chunks[0]) for call in calls if call.work.chunks) <= context.cells_per_sequence


@pytest.mark.parametrize("tile", [1, 64])
def test_a_fit_finds_the_costs_that_made_the_calls(tile: int) -> None:
    true = CostModel(Coefficients(0.004, 0.0005, 2e-6, 0.001, 0.002, 4e-7, 16e-7, tile))
    works = [
        Work(depths=(depth,) * sequences) for depth in (16, 200, 600) for sequences in (1, 1, 2, 4)
    ] + [Work(chunks=((depth, tokens),)) for depth in (0, 200, 600) for tokens in (8, 16, 32, 64, 128)]  # fmt: skip
    costs = fit([TimedCall(work, true.predict(work)) for work in works], flash_tile=tile)
    fitted = CostModel(costs)
    assert costs.tile_rows == tile
    for work in works:
        assert fitted.predict(work) == pytest.approx(true.predict(work), rel=0.15)
