"""Sums and distributions over all requests, for Prometheus. No label names a person or a request."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np
import psutil
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from legato.core.cache import CacheFigures
from legato.core.calls import Call
from legato.core.causes import CAUSES
from legato.core.origin import EndReason
from legato.core.timings import ChangeKind, Timings
from legato.telemetry.record import RequestRecord

PHASE_BUCKETS_S = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0),
    *(2.5, 5.0, 10.0, 20.0, 40.0, 60.0, 120.0, 300.0, 600.0, 1800.0),
)
"""Upper bounds for the phases of a request, s: a short prompt on a GPU to a long one on a CPU."""
GAP_BUCKETS_S = (
    *(0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075),
    *(0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0),
)
"""Upper bounds for the time of one token, s: finer, because a tenth more of it is felt."""
ERROR_BUCKETS = (0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0)
"""Upper bounds for the relative error of a prediction."""

OTHER_STALLS = "other"
"""Cause of the stalls that a record counts but does not list, because only its longest are listed."""
TIERS = ("live", "memory", "disk")
"""Where remembered prompts are: in the engine's cells, in memory, on disk."""

DURATIONS: dict[str, tuple[str, Callable[[Timings], float | None]]] = {
    # Without a first token the prompt was perhaps not read to its end.
    "ttft": ("From arrival to the first token leaving the server", lambda timings: timings.ttft_ms),
    "queue": ("Taking a request in and waiting for KV cells", lambda timings: timings.queue_ms),
    "load": ("Waiting while no model was ready", lambda timings: timings.load_ms),
    "prefill": (
        "From admission to the first token: reading the prompt",
        lambda timings: None if timings.ttft_ms is None else timings.prefill_ms,
    ),
    "request": ("From arrival to the end of the answer", lambda timings: timings.total_ms),
}
"""Distributions of one value a request: what each is, and its value in ms; None where there is none."""

TOTALS: dict[str, tuple[str, Callable[[RequestRecord], float]]] = {
    "prompt_tokens": ("Tokens of prompts", lambda record: record.prompt_tokens),
    "cached_tokens": ("Prompt tokens that did not have to be read", lambda record: record.timings.cached_tokens),
    "cache_misses": (
        "Requests of which nothing was remembered",
        lambda record: record.timings.cached_in not in TIERS and record.timings.ttft_ms is not None,
    ),
    "cache_saved_seconds": ("Reading that remembered prompts saved", lambda record: record.timings.saved_ms / 1000),
    "generated_tokens": ("Tokens of answers", lambda record: record.timings.decode_tokens),
    "preemptions": ("KV cells given up to others, by ended requests", lambda record: record.timings.preemptions),
}
"""Counters that each ended request adds to: what they count, and what it adds."""


@dataclass(frozen=True, slots=True)
class Live:
    """What is going on at this moment."""

    running: int
    """Requests that have KV cells."""
    waiting: int
    """Requests that wait for them."""
    kv_cells_used: int
    kv_cells: int


@dataclass(frozen=True, slots=True)
class Planning:
    """How steps are planned at this moment."""

    policy: str
    gap_target_s: float
    """Of answers that have none of their own."""


class Metrics:
    """All metrics, in a registry of their own. May be used from any thread.

    At each scrape it is asked what is going on, which processes to measure (by name, their ids), how steps are planned,
    and how much is remembered; None leaves those gauges out.
    """

    def __init__(
        self,
        live: Callable[[], Live | None],
        *,
        processes: Callable[[], Mapping[str, int]],
        build: Mapping[str, str],
        planning: Callable[[], Planning | None] = lambda: None,
        remembered: Callable[[], CacheFigures | None] = lambda: None,
    ) -> None:
        self._registry = CollectorRegistry()
        self._durations = {name: self._distribution(name, what) for name, (what, _) in DURATIONS.items()}
        self._gap = self._distribution(
            "inter_token_latency", "Gaps between tokens leaving the server, each one", GAP_BUCKETS_S
        )
        self._per_token = self._distribution(
            "time_per_output_token", "Mean gap between the tokens of one answer, once an answer", GAP_BUCKETS_S
        )
        self._totals = {name: self._counter(name, what) for name, (what, _) in TOTALS.items()}
        self._hits = self._counter("cache_hits", "Requests that began with a remembered prompt, by place", tier=TIERS)
        kinds = get_args(ChangeKind)
        self._reread = self._counter(
            "reread_tokens", "Tokens read again because of a change of a remembered prompt, by kind", kind=kinds
        )
        self._rereads = self._counter("rereads", "Such requests, by kind", kind=kinds)
        self._requests = self._counter("requests", "Ended requests", end=get_args(EndReason))
        causes = (*CAUSES, OTHER_STALLS)
        self._stalls = self._counter("stalls", "Gaps longer than the gap target, by cause", cause=causes)
        self._stalled = self._counter("stalled_seconds", "Those gaps, added up, by cause", cause=causes)
        self._calls = self._counter("calls", "Library calls")
        phases = ("decode", "prefill")
        engine = self._counter(
            "engine_seconds", "Time in library calls; a call that did both is shared out by tokens", phase=phases
        )
        # Looked up once, because there is a call for every token.
        self._decode, self._prefill = (engine.labels(phase=phase) for phase in phases)
        self._errors = Histogram(
            "legato_step_prediction_error_ratio",
            "How far the predicted time of a library call was off, over the time that it took",
            buckets=ERROR_BUCKETS,
            registry=self._registry,
        )
        for ask in (
            lambda: _info("build", "About this build", build),
            lambda: _live_gauges(live()),
            lambda: _planning_gauges(planning()),
            lambda: _cache_gauges(remembered()),
            lambda: _process_metrics(processes()),
        ):
            self._registry.register(_AtScrape(ask))

    def _distribution(self, name: str, explanation: str, bounds: Sequence[float] = PHASE_BUCKETS_S) -> Distribution:
        distribution = Distribution(f"legato_{name}_seconds", explanation, bounds)
        self._registry.register(distribution)
        return distribution

    def _counter(self, name: str, explanation: str, **labels: Sequence[str]) -> Counter:
        """A counter with at most one label, whose values are all there at once: else the first event is no rise."""
        counter = Counter(f"legato_{name}", explanation, list(labels), registry=self._registry)
        for label, values in labels.items():
            for value in values:
                counter.labels(**{label: value})
        return counter

    def request_ended(self, record: RequestRecord) -> None:
        """Count a request. Its tokens are counted with it: a long answer shows when it ends."""
        timings = record.timings
        self._requests.labels(end=record.end).inc()
        for name, (_, value_of) in TOTALS.items():
            self._totals[name].inc(value_of(record))
        for name, (_, ms_of) in DURATIONS.items():
            if (ms := ms_of(timings)) is not None:
                self._durations[name].observe(record.model, ms / 1000)
        if timings.cached_in in TIERS:
            self._hits.labels(tier=timings.cached_in).inc()
        if timings.reread is not None:
            self._rereads.labels(kind=timings.reread.kind).inc()
            self._reread.labels(kind=timings.reread.kind).inc(timings.reread.lost_tokens)
        if len(record.token_ms) > 1:
            gaps = np.diff(np.asarray(record.token_ms, dtype=np.float64)) / 1000
            self._gap.observe(record.model, gaps)
            self._per_token.observe(record.model, float(gaps.mean()))
        for stall in record.stalls:
            self._count_stalls(stall.cause, 1, stall.gap_ms)
        if (unlisted := timings.stalls - len(record.stalls)) > 0:
            unlisted_ms = timings.stalled_ms - sum(stall.gap_ms for stall in record.stalls)
            self._count_stalls(OTHER_STALLS, unlisted, max(0.0, unlisted_ms))

    def _count_stalls(self, cause: str, number: int, ms: float) -> None:
        self._stalls.labels(cause=cause).inc(number)
        self._stalled.labels(cause=cause).inc(ms / 1000)

    def call(self, call: Call) -> None:
        """Count a library call."""
        self._calls.inc()
        if (error := call.prediction_error) is not None:
            self._errors.observe(error)
        # Slices of an interrupted call may be too short for a token.
        read = max(sum(chunk.tokens for chunk in call.chunks), len(call.chunks))
        if tokens := read + len(call.decoded):
            took_s = max(0.0, call.took_s)
            self._prefill.inc(took_s * read / tokens)
            self._decode.inc(took_s * len(call.decoded) / tokens)

    def render(self) -> tuple[bytes, str]:
        """The answer to a scrape, and its content type."""
        return generate_latest(self._registry), CONTENT_TYPE_PLAIN_0_0_4


class Distribution(Collector):
    """A histogram by model that takes many values at once; the library's own takes one, at some microseconds each.

    Its buckets have these upper bounds, ascending; a value belongs to the first that is not below it.
    """

    def __init__(self, name: str, help: str, bounds: Sequence[float]) -> None:  # noqa: A002 - Prometheus' word
        self._name = name
        self._help = help
        self._bounds = list(bounds)
        self._labels = [*map(floatToGoString, bounds), "+Inf"]
        self._lock = threading.Lock()
        self._counts: dict[str, NDArray[np.int64]] = {}
        self._sums: dict[str, float] = {}

    def observe(self, model: str, values: float | NDArray[np.float64]) -> None:
        """Count one value of a model, or several."""
        buckets = np.searchsorted(self._bounds, np.atleast_1d(values))
        counts = np.bincount(buckets, minlength=len(self._labels))
        with self._lock:
            self._counts[model] = self._counts.get(model, 0) + counts
            self._sums[model] = self._sums.get(model, 0.0) + float(np.sum(values))

    def collect(self) -> Iterable[Metric]:
        """The histogram, for a scrape."""
        family = HistogramMetricFamily(self._name, self._help, labels=["model"])
        with self._lock:
            for model, counts in self._counts.items():
                buckets = list(zip(self._labels, np.cumsum(counts).tolist(), strict=True))
                family.add_metric([model], buckets, self._sums[model])
        yield family


class _AtScrape(Collector):
    """Metrics that are asked for at each scrape."""

    def __init__(self, ask: Callable[[], Iterable[Metric]]) -> None:
        self._ask = ask

    def collect(self) -> Iterable[Metric]:
        return self._ask()


def _live_gauges(now: Live | None) -> Iterable[Metric]:
    if now is None:
        return
    yield GaugeMetricFamily("legato_requests_running", "Requests that have KV cells", now.running)
    yield GaugeMetricFamily("legato_requests_waiting", "Requests that wait for KV cells", now.waiting)
    yield GaugeMetricFamily("legato_kv_cells_used", "KV cells in use, one for each token", now.kv_cells_used)
    yield GaugeMetricFamily("legato_kv_cells", "KV cells that there are", now.kv_cells)


def _planning_gauges(now: Planning | None) -> Iterable[Metric]:
    if now is None:
        return
    yield from _info("policy", "How steps are planned", {"policy": now.policy})
    yield GaugeMetricFamily(
        "legato_gap_target_seconds", "Gap target of answers that have none of their own", now.gap_target_s
    )


def _info(name: str, explanation: str, labels: Mapping[str, str]) -> Iterable[Metric]:
    family = GaugeMetricFamily(f"legato_{name}_info", f"{explanation}; always 1", labels=list(labels))
    family.add_metric(list(labels.values()), 1)
    yield family


def _cache_gauges(now: CacheFigures | None) -> Iterable[Metric]:
    if now is None:
        return
    for name, explanation, in_memory, on_disk in (
        ("bytes", "Bytes of remembered prompts", now.memory_bytes, now.disk_bytes),
        ("budget_bytes", "The most that they may take", now.memory_budget, now.disk_budget),
        ("entries", "Remembered prompts", now.memory_entries, now.disk_entries),
    ):
        family = GaugeMetricFamily(f"legato_cache_{name}", explanation, labels=["tier"])
        family.add_metric(["memory"], in_memory)
        family.add_metric(["disk"], on_disk)
        yield family
    yield GaugeMetricFamily(
        "legato_kv_cells_parked", "KV cells of ended requests, for whoever goes on from there", now.parked_tokens
    )


def _process_metrics(processes: Mapping[str, int]) -> Iterable[Metric]:
    """CPU time and memory, on every system; the library's own collector knows only one process, and only Linux."""
    cpu = CounterMetricFamily("legato_process_cpu_seconds", "CPU time, user and system", labels=["process"])
    memory = GaugeMetricFamily("legato_process_resident_memory_bytes", "Memory in RAM", labels=["process"])
    for name, pid in processes.items():
        try:
            process = psutil.Process(pid)
            times, rss = process.cpu_times(), process.memory_info().rss
        except psutil.Error:  # it ended just now
            continue
        cpu.add_metric([name], times.user + times.system)
        memory.add_metric([name], rss)
    yield cpu
    yield memory
