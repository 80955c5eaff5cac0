"""Calibration on the real model: counts and signs, for times are the machine's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from legato.engine.context import Context, ContextSettings
from legato.engine.model import Model
from legato.scheduling.costs import Coefficients, CostModel, Work
from legato.worker.calibration import TimedCall, calibrate, fit, time_calls

SEQUENCES = 3


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


def test_costs_are_sane_and_the_context_is_left_empty(context: Context) -> None:
    costs = calibrate(context, flash_tile=1, limit_s=2.0, batch_tokens=64)
    assert all(value >= 0 for value in msgspec.structs.astuple(costs))
    assert costs.tile_rows == 1
    assert costs.loose_pair_s == costs.prefill_pair_s
    model = CostModel(costs)
    assert model.decode_s([100]) > 0
    assert 0 < model.chunk_s(0, 8) < model.chunk_s(0, 64)
    assert all(context.length(sequence) == 0 for sequence in range(SEQUENCES))


def test_without_time_only_the_least_is_measured(context: Context) -> None:
    calls = time_calls(context, limit_s=0.01, batch_tokens=64)
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
