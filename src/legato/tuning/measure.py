"""What one configuration of the engine does: its costs, the chunk sizes it likes, joined calls, and threads."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec
import numpy as np

from legato.engine.batch import Batch
from legato.engine.context import Context, ContextSettings
from legato.engine.library import build_info
from legato.engine.model import Model
from legato.scheduling.costs import Coefficients, CostModel
from legato.tuning.setup import EngineSetup
from legato.worker.calibration import CallTimer, TimedCall, fit, time_calls
from legato.worker.sizing import flash_tile

CHUNKS = (64, 16, 8, 32, 128, 512)
"""Chunk sizes that are timed, the most telling first."""
CELLS = 4096
"""KV cells of a sequence, at most: how deep the measurements may go."""
SEQUENCES = 2
"""Sequences of the context: one to read, one to write beside it."""
JOINED_CHUNK = 64
REPEATS = 3
PROBES = 9
COSTS_SHARE = 0.8
"""Share of the time that goes into costs; the rest compares joined calls with separate ones."""


class Configuration(EngineSetup, frozen=True):
    """How the engine is set up for a measurement."""

    model_path: str
    gpu_layers: int = -1


class Measurement(msgspec.Struct, frozen=True):
    """What a configuration does."""

    costs: Coefficients
    size_factors: dict[int, float]
    """Of each chunk size, the median of what a chunk took over what the costs predict."""
    joined_ratio: float | None
    """Time of one call with a decode and a chunk over that of two calls; None if there was no time."""
    deepest: int
    """Tokens of the deepest call."""
    probe_s: float = 1.0
    """What `probe` took meanwhile."""
    interruptible: bool = False
    """The library's calls can be interrupted there."""


class ThreadTimes(msgspec.Struct, frozen=True):
    """What calls take with some numbers of threads, in seconds."""

    decode_s: dict[int, float]
    chunk_s: dict[int, float]


def measure(configuration: Configuration, *, limit_s: float) -> Measurement:
    """Measure a configuration.

    Args:
        configuration: The model and how to set it up.
        limit_s: Seconds for the calls; loading the model comes on top.

    Raises:
        ModelLoadError: The library refused the model.
        EngineError: It refused the configuration.
    """
    batch_tokens = configuration.batch_tokens
    with _opened(configuration) as context:
        probe_s = probe()
        calls = time_calls(context, limit_s=COSTS_SHARE * limit_s, batch_tokens=batch_tokens, chunks=CHUNKS)
        joined_ratio = _joined_ratio(context, batch_tokens, (1 - COSTS_SHARE) * limit_s)
    on_gpu = build_info().can_offload and configuration.gpu_layers != 0
    costs = fit(calls, flash_tile=flash_tile(configuration.flash_attention, on_gpu=on_gpu))
    deepest = max(sum(call.work.chunks[0]) for call in calls if call.work.chunks)
    pace_s = (probe_s + probe()) / 2
    return Measurement(costs, _size_factors(calls, costs), joined_ratio, deepest, pace_s, interruptible=not on_gpu)


def probe() -> float:
    """Seconds of a fixed piece of work of the processor: how fast this machine is just now."""
    matrix = np.ones((512, 512), dtype=np.float32)
    times = []
    for _ in range(PROBES):
        begun_s = time.perf_counter()
        matrix @ matrix
        times.append(time.perf_counter() - begun_s)
    return statistics.median(times)


def time_threads(configuration: Configuration, counts: Sequence[int], *, limit_s: float) -> ThreadTimes:
    """Time a decode and a chunk with different numbers of threads.

    Args:
        configuration: The model and how to set it up; its own numbers of threads are not used.
        counts: Numbers of threads, the most promising first.
        limit_s: Seconds, after which no further number is tried. One always is.

    Raises:
        ModelLoadError: The library refused the model.
        EngineError: It refused the configuration.
    """
    times = ThreadTimes({}, {})
    chunk = min(JOINED_CHUNK, configuration.batch_tokens)
    with _opened(configuration) as context:
        timer = CallTimer(context, limit_s=limit_s, batch_tokens=configuration.batch_tokens)
        timer.warm_up()
        for count in counts:
            if times.decode_s and timer.elapsed_s * (1 + 1 / len(times.decode_s)) > limit_s:
                break
            context.set_threads(count, count)
            # At the same depth for all, so that they can be compared.
            timer.clear()
            timer.depth = 0
            times.chunk_s[count] = min(timer.prefill(chunk) for _ in range(2))
            times.decode_s[count] = statistics.median(timer.decode(1) for _ in range(2 * REPEATS + 1))
    return times


@contextmanager
def _opened(configuration: Configuration) -> Iterator[Context]:
    """A context as configured, freed at the end together with its model."""
    with closing(Model(Path(configuration.model_path), gpu_layers=configuration.gpu_layers)) as model:
        setup = {name: getattr(configuration, name) for name in EngineSetup.__struct_fields__}
        cells = min(CELLS, model.context_length or CELLS)
        with closing(Context(model, ContextSettings(SEQUENCES, cells, **setup))) as context:
            yield context


def _size_factors(calls: Sequence[TimedCall], costs: Coefficients) -> dict[int, float]:
    model = CostModel(costs)
    ratios: dict[int, list[float]] = {}
    for call in calls:
        if call.work.chunks and (size := call.work.chunks[0][1]) in CHUNKS:
            ratios.setdefault(size, []).append(call.took_s / max(1e-9, model.predict(call.work)))
    return {size: statistics.median(values) for size, values in ratios.items()}


def _joined_ratio(context: Context, batch_tokens: int, limit_s: float) -> float | None:
    """Time a decode and a chunk in one call and in two, in turns."""
    chunk = min(JOINED_CHUNK, batch_tokens - 1)
    begun_s = time.perf_counter()
    batch = Batch(chunk + 1)
    tokens = context.model.vocabulary.tokenize("word " * chunk * 2, add_bos=False, parse_special=False)[:chunk]
    together: list[float] = []
    apart: list[float] = []

    def run(*, reads: bool, writes: bool, position: int) -> float:
        batch.clear()
        if reads:
            batch.add(0, tokens, position, want_logits=False)
        if writes:
            batch.add_one(1, int(tokens[0]), context.length(1))
        called_s = time.perf_counter()
        context.evaluate(batch)
        context.synchronize()
        return time.perf_counter() - called_s

    position = 0
    while len(together) < REPEATS:
        if together and time.perf_counter() - begun_s + apart[-1] + together[-1] > limit_s:
            break
        apart.append(
            run(reads=True, writes=False, position=position) + run(reads=False, writes=True, position=position)
        )
        together.append(run(reads=True, writes=True, position=position + len(tokens)))
        position += 2 * len(tokens)
        if position + 2 * len(tokens) > context.cells_per_sequence:
            break
    context.remove(0)
    context.remove(1)
    # The least of each, for whatever else runs on the machine only ever makes a call longer; once is no comparison.
    return min(together) / min(apart) if len(together) > 1 else None
