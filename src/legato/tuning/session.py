"""One run of `legato tune`: which configurations are measured, in which order, within a time limit."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import msgspec

from legato.core.choices import FlashAttention, KvType
from legato.engine.quantize import converted_bytes
from legato.tuning.choice import Measured, choose, is_confirmed_by
from legato.tuning.isolated import (
    Compare,
    Convert,
    Measure,
    OutOfTimeError,
    RefusedError,
    Result,
    Task,
    TimeThreads,
    run,
)
from legato.tuning.measure import Configuration, Measurement, ThreadTimes
from legato.tuning.quality import Loss
from legato.worker.sizing import default_threads, usable_cpus

FAST_WEIGHTS = ("Q8_0", "Q4_0")
"""Weight types that the library reads prompts with fastest, the one that loses less first."""
KV_TYPES: tuple[tuple[FlashAttention, KvType], ...] = (("off", "f32"), ("on", "q8_0"), ("on", "f32"))
"""KV types beside f16 that are tried; quantized ones need FlashAttention."""
ROUGH_KV: frozenset[KvType] = frozenset({"q8_0"})
"""KV types that change answers more than rounding does."""
CONFIRMATIONS = 2
"""Configurations that are measured once more beside the usual one, at most, before that one is kept."""
PAIR = 2
"""Measurements of a confirmation."""
TRIAL_SHARE = 1 / 12
LONGEST_TRIAL_S = 10.0
SHORTEST_TRIAL_S = 1.5
FIRST_OVERHEAD_S = 2.0
"""A guess at the time to start a process and load the model, until one was seen."""
CONVERSION_BYTES_S = 50e6
"""A guess at the bytes of a model file that are converted in a second."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A configuration, and what came of it."""

    name: str
    configuration: Configuration
    measurement: Measurement | None = None
    """None if it was refused."""
    refusal: str = ""
    """Why it was."""
    weights: str | None = None
    """The weight type if the model was converted for it."""
    keeps_answers: bool = True
    """It changes what the model answers no more than rounding does."""
    pace: float = 1.0
    """How fast the machine was at the first trial over how fast it was at this one."""
    is_confirmed: bool = True
    """False if it was better than the usual one once, but not shown to be so twice."""

    def measured(self) -> Measured:
        """What is known of it, to choose from, as if the machine had been as fast as at the first trial."""
        assert self.measurement is not None, "a refused configuration is not chosen from"
        m = self.measurement
        return Measured(
            self.name,
            m.costs.scaled(self.pace),
            self.configuration.batch_tokens,
            m.size_factors,
            m.interruptible,
            m.joined_ratio,
            self.keeps_answers,
            self.is_confirmed,
        )


class Runner(Protocol):
    """Runs tasks, as `legato.tuning.isolated.run` does."""

    def __call__(self, task: Task, result: type[Result], *, timeout_s: float) -> Result:
        """Run a task and return what comes of it."""
        ...


@dataclass(slots=True)
class Findings:
    """What a run found."""

    trials: list[Trial] = field(default_factory=list)
    """In the order in which they were measured: the most usual configuration first."""
    threads: ThreadTimes | None = None
    losses: dict[str, Loss] = field(default_factory=dict)
    """What a weight type loses against the model's own."""
    skipped: list[str] = field(default_factory=list)
    """What was left out, and why."""

    @property
    def done(self) -> list[Trial]:
        """The trials that were not refused."""
        return [trial for trial in self.trials if trial.measurement is not None]


class Session:
    """Measures configurations of one model, the most telling first, until the time is up.

    Args:
        model_path: The model.
        size_bytes: Of its file, or of all parts of a split one.
        own_weights: Its weight type, None if its file does not say.
        limit_s: Seconds that all may take together.
        gap_target_s: Longest gap of a chat; the better of two configurations by it goes on to further trials.
        convert: Also measure faster weight types, in a temporary folder.
        report: Told what begins, with the share of the time that is gone, 0 to 1.
        runner: Does the work.
        clock: Seconds from any beginning.
    """

    def __init__(
        self,
        model_path: Path,
        *,
        size_bytes: int,
        own_weights: str | None,
        limit_s: float,
        gap_target_s: float,
        convert: bool,
        report: Callable[[str, float], None],
        runner: Runner = run,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._model_path = model_path
        self._size_bytes = size_bytes
        self._own_weights = own_weights
        self._limit_s = limit_s
        self._gap_target_s = gap_target_s
        self._convert = convert
        self._report = report
        self._runner = runner
        self._clock = clock
        self._begun_s = clock()
        self._trial_s = max(SHORTEST_TRIAL_S, min(LONGEST_TRIAL_S, limit_s * TRIAL_SHARE))
        self._overhead_s = FIRST_OVERHEAD_S
        self._findings = Findings()
        self._is_confirming = False
        threads = default_threads()
        self._base = Configuration(
            flash_attention="off", kv_type_k="f16", kv_type_v="f16", threads=threads, threads_prefill=threads,
            batch_tokens=512, model_path=str(model_path),
        )  # fmt: skip

    def run(self) -> Findings:
        """Measure."""
        # Whether FlashAttention pays is the most telling, so it is never crowded out by numbers of threads: these,
        # both ways and a confirmation are five.
        if self._remaining_s() > 5 * (self._trial_s + self._overhead_s):
            self._try_threads()
        for flash_attention in ("off", "on"):
            self._try(f"FlashAttention {flash_attention}", _with(self._base, flash_attention=flash_attention))
        if self._findings.done:
            best = self._findings.done[self._best()].configuration
            if self._convert:
                self._try_weights(best)
            for flash_attention, kv_type in KV_TYPES:
                name = f"FlashAttention {flash_attention}, {kv_type} KV"
                wanted = _with(self._base, flash_attention=flash_attention, kv_type_k=kv_type, kv_type_v=kv_type)
                self._try(name, wanted, keeps_answers=kv_type not in ROUGH_KV)
            self._confirm()
        return self._findings

    def _remaining_s(self) -> float:
        return self._limit_s - (self._clock() - self._begun_s)

    def _spare_s(self) -> float:
        """Seconds that are left without those kept for a confirmation, once there is something to confirm."""
        keeps = bool(self._findings.trials) and not self._is_confirming
        return self._remaining_s() - (PAIR * (self._trial_s + self._overhead_s) if keeps else 0.0)

    def _best(self) -> int:
        return choose([trial.measured() for trial in self._findings.done], self._gap_target_s).index

    def _has_time(self, name: str, needed_s: float) -> bool:
        """True if there is time; otherwise it is noted as skipped."""
        if needed_s <= self._spare_s():
            self._report(name, 1 - self._remaining_s() / self._limit_s)
            return True
        self._findings.skipped.append(f"{name}: no time left")
        return False

    def _try(
        self, name: str, configuration: Configuration, *, weights: str | None = None, keeps_answers: bool = True
    ) -> Trial | None:
        """Measure a configuration and note what came of it; None if there was no time."""
        # The very first is measured whatever the limit is: without one there is nothing to choose.
        is_first = not self._findings.trials
        if not self._has_time(name, 0 if is_first else self._trial_s + self._overhead_s):
            return None
        begun_s = self._clock()
        limit_s = min(self._trial_s, max(0.1, self._spare_s() - self._overhead_s))
        try:
            measurement = self._runner(Measure(configuration, limit_s), Measurement, timeout_s=self._remaining_s())
            pace = self._pace(measurement)
            trial = Trial(name, configuration, measurement, weights=weights, keeps_answers=keeps_answers, pace=pace)
            # A trial also goes a little beyond its own time: that is overhead too.
            self._overhead_s = max(0.5, self._clock() - begun_s - limit_s, self._overhead_s / 2)
        except OutOfTimeError:
            self._findings.skipped.append(f"{name}: it was not done in time")
            return None
        except RefusedError as error:
            trial = Trial(name, configuration, refusal=str(error), weights=weights, keeps_answers=keeps_answers)
        self._findings.trials.append(trial)
        return trial

    def _pace(self, measurement: Measurement) -> float:
        """How fast the machine was at the first trial over how fast it was at this measurement."""
        first = next((trial.measurement for trial in self._findings.done), None) or measurement
        return first.probe_s / measurement.probe_s

    def _confirm(self) -> None:
        """Measure the best once more beside the usual one; mark what is not better twice, so that it is not chosen."""
        self._is_confirming = True
        pairs = 0
        while (best := self._best()) != 0:
            trial = self._findings.done[best]
            if pairs == CONFIRMATIONS:
                self._findings.skipped.append(f"{trial.name} once more: two others were not confirmed")
            elif self._has_time(f"{trial.name} once more", PAIR * (self._trial_s + self._overhead_s)):
                pairs += 1
                if self._is_better_again(trial):
                    return
            self._findings.trials[self._findings.trials.index(trial)] = replace(trial, is_confirmed=False)

    def _is_better_again(self, trial: Trial) -> bool:
        again: list[Measured] = []
        # The other way round than at first: a machine that becomes slower favours either of them once.
        for one in (trial, self._findings.done[0]):
            task = Measure(one.configuration, self._trial_s)
            measurement = self._run(f"{trial.name} once more", task, Measurement, self._remaining_s())
            if measurement is None:
                return False
            again.append(replace(one, measurement=measurement, pace=self._pace(measurement)).measured())
        other, usual = again
        return is_confirmed_by(usual, other, self._gap_target_s)

    def _try_threads(self) -> None:
        counts = thread_counts(usable_cpus(), default_threads())
        if len(counts) < 2 or not self._has_time("threads", self._trial_s + self._overhead_s):
            return
        task = TimeThreads(self._base, counts, self._trial_s)
        times = self._run("threads", task, ThreadTimes, self._remaining_s() / 2)
        if times is None:
            return
        self._findings.threads = times
        self._base = _with(self._base, threads=_fastest(times.decode_s), threads_prefill=_fastest(times.chunk_s))

    def _try_weights(self, best: Configuration) -> None:
        with tempfile.TemporaryDirectory(prefix="legato-tune-") as folder:
            for weights in FAST_WEIGHTS:
                if weights == self._own_weights:
                    continue
                path = Path(folder) / f"{weights}.gguf"
                if not self._make(path, weights):
                    continue
                flash_attention = best.flash_attention
                name = f"{weights} weights, FlashAttention {flash_attention}"
                if self._try(name, _with(best, model_path=str(path)), weights=weights, keeps_answers=False):
                    self._compare(path, weights)
                path.unlink(missing_ok=True)

    def _make(self, path: Path, weights: str) -> bool:
        name = f"conversion to {weights}"
        # A conversion that would leave no time to measure what it made is not begun.
        if not self._has_time(name, self._size_bytes / CONVERSION_BYTES_S + self._trial_s + self._overhead_s):
            return False
        if shutil.disk_usage(path.parent).free < converted_bytes(self._size_bytes, self._own_weights, weights):
            self._findings.skipped.append(f"{name}: the disk of {path.parent.parent} has no room for it")
            return False
        size_bytes = self._run(name, Convert(str(self._model_path), str(path), weights), int, self._spare_s())
        return size_bytes is not None

    def _compare(self, path: Path, weights: str) -> None:
        name = f"what {weights} loses"
        if not self._has_time(name, 2 * self._overhead_s):
            return
        loss = self._run(name, Compare(str(self._model_path), str(path)), Loss, self._spare_s())
        if loss is not None:
            self._findings.losses[weights] = loss

    def _run(self, name: str, task: Task, result: type[Result], timeout_s: float) -> Result | None:
        """Run a task; None if nothing came of it, which is noted as skipped."""
        try:
            return self._runner(task, result, timeout_s=timeout_s)
        except (RefusedError, OutOfTimeError) as error:
            self._findings.skipped.append(f"{name}: {error}")
            return None


def thread_counts(usable: int, usual: int) -> list[int]:
    """Numbers of threads worth trying, the usual one first: powers of two and all."""
    powers = [2**i for i in range(usable.bit_length()) if 2**i <= usable]
    return list(dict.fromkeys([usual, usable, *reversed(powers)]))


def _fastest(times: dict[int, float]) -> int:
    """The number of threads with the least time; fewer, where the difference is within a twentieth."""
    least = min(times.values())
    return min(count for count, took_s in times.items() if took_s <= 1.05 * least)


def _with(configuration: Configuration, **changes: object) -> Configuration:
    return msgspec.structs.replace(configuration, **changes)
