"""Sums and distributions over all requests, for Prometheus. No label names a person or a request."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import psutil
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from legato.core.calls import Call
from legato.core.causes import CAUSES
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

ENDS = ("stop", "length", "cancelled", "failed")
PHASES = ("decode", "prefill")
TIERS = ("live", "memory", "disk")
"""Where remembered prompts are: in the engine's cells, in memory, on disk."""
CHANGE_KINDS = ("number", "inserted", "removed", "replaced", "reordered", "rewritten")
"""What clients do to remembered prompts."""


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
class Remembered:
    """What is remembered at this moment."""

    bytes: Mapping[str, int]
    """Of states by place: `memory`, `disk`."""
    budgets: Mapping[str, int]
    """The most of each, in bytes."""
    entries: Mapping[str, int]
    """How many states, by place."""
    parked_tokens: int
    """Tokens in KV cells that no request holds."""


@dataclass(frozen=True, slots=True)
class Planning:
    """How steps are planned at this moment."""

    policy: str
    gap_target_s: float
    """Of answers that have none of their own."""


class Metrics:
    """All metrics, in a registry of their own.

    May be used from any thread.

    Args:
        live: What is going on, asked at each scrape; its None leaves those gauges out.
        processes: The processes to measure, as names and process ids, asked at each scrape.
        build: What is told about this build, such as its version.
        planning: How steps are planned, asked at each scrape; None leaves that out.
        remembered: What is remembered, asked at each scrape; its None leaves those gauges out.
    """

    def __init__(
        self,
        live: Callable[[], Live | None],
        *,
        processes: Callable[[], Mapping[str, int]],
        build: Mapping[str, str],
        planning: Callable[[], Planning] | None = None,
        remembered: Callable[[], Remembered | None] = lambda: None,
    ) -> None:
        registry = self._registry = CollectorRegistry()
        self._ttft = _distribution(registry, "ttft", "From arrival to the first token leaving the server")
        self._queue = _distribution(registry, "queue", "Taking a request in and waiting for KV cells")
        self._load = _distribution(registry, "load", "Waiting while no model was ready")
        self._prefill = _distribution(registry, "prefill", "From admission to the first token: reading the prompt")
        self._request = _distribution(registry, "request", "From arrival to the end of the answer")
        self._gap = _distribution(
            registry, "inter_token_latency", "Gaps between tokens leaving the server, each one", GAP_BUCKETS_S
        )
        self._per_token = _distribution(
            registry,
            "time_per_output_token",
            "Mean gap between the tokens of one answer, once an answer",
            GAP_BUCKETS_S,
        )
        self._prompt_tokens = _counter(registry, "prompt_tokens", "Tokens of prompts")
        self._cached_tokens = _counter(registry, "cached_tokens", "Prompt tokens that did not have to be read")
        tiers = _counter(registry, "cache_hits", "Requests that began with a remembered prompt, by place", tier=TIERS)
        self._hits = {tier: tiers.labels(tier=tier) for tier in TIERS}
        self._misses = _counter(registry, "cache_misses", "Requests of which nothing was remembered")
        self._saved = _counter(registry, "cache_saved_seconds", "Reading that remembered prompts saved")
        self._reread = _counter(
            registry,
            "reread_tokens",
            "Tokens read again because of a change of a remembered prompt, by kind",
            kind=CHANGE_KINDS,
        )
        self._rereads = _counter(registry, "rereads", "Such requests, by kind", kind=CHANGE_KINDS)
        self._generated_tokens = _counter(registry, "generated_tokens", "Tokens of answers")
        self._requests = _counter(registry, "requests", "Ended requests", end=ENDS)
        causes = (*CAUSES, OTHER_STALLS)
        self._stalls = _counter(registry, "stalls", "Gaps longer than the gap target, by cause", cause=causes)
        self._stalled = _counter(registry, "stalled_seconds", "Those gaps, added up, by cause", cause=causes)
        engine = _counter(
            registry,
            "engine_seconds",
            "Time in library calls; a call that did both is shared out by tokens",
            phase=PHASES,
        )
        # Looked up once, because there is a call for every token.
        self._decode, self._read = (engine.labels(phase=phase) for phase in PHASES)
        self._calls = _counter(registry, "calls", "Library calls")
        self._preemptions = _counter(registry, "preemptions", "KV cells given up to others, by ended requests")
        self._errors = Histogram(
            "legato_step_prediction_error_ratio",
            "How far the predicted time of a library call was off, over the time that it took",
            buckets=ERROR_BUCKETS,
            registry=registry,
        )
        about = Gauge("legato_build_info", "About this build; always 1", list(build), registry=registry)
        (about.labels(**build) if build else about).set(1)
        registry.register(_LiveCollector(live))
        if planning is not None:
            registry.register(_PlanningCollector(planning))
        registry.register(_RememberedCollector(remembered))
        registry.register(_ProcessCollector(processes))

    def request_ended(self, record: RequestRecord) -> None:
        """Count a request. Its tokens are counted with it: a long answer shows when it ends."""
        timings = record.timings
        self._requests.labels(end=record.end).inc()
        self._prompt_tokens.inc(record.prompt_tokens)
        self._cached_tokens.inc(timings.cached_tokens)
        if timings.cached_in in self._hits:
            self._hits[timings.cached_in].inc()
        elif timings.ttft_ms is not None:
            self._misses.inc()
        self._saved.inc(timings.saved_ms / 1000)
        if timings.reread is not None:
            self._rereads.labels(kind=timings.reread.kind).inc()
            self._reread.labels(kind=timings.reread.kind).inc(timings.reread.lost_tokens)
        self._generated_tokens.inc(timings.decode_tokens)
        self._preemptions.inc(timings.preemptions)
        self._load.observe(record.model, timings.load_ms / 1000)
        self._queue.observe(record.model, timings.queue_ms / 1000)
        self._request.observe(record.model, timings.total_ms / 1000)
        if timings.ttft_ms is not None:  # else its prompt was perhaps not read to the end
            self._ttft.observe(record.model, timings.ttft_ms / 1000)
            self._prefill.observe(record.model, timings.prefill_ms / 1000)
        if len(record.token_ms) > 1:
            gaps = np.diff(np.asarray(record.token_ms, dtype=np.float64)) / 1000
            self._gap.observe_all(record.model, gaps)
            self._per_token.observe(record.model, float(gaps.mean()))
        self._count_stalls(record)

    def call(self, call: Call) -> None:
        """Count a library call."""
        self._calls.inc()
        if (error := call.prediction_error) is not None:
            self._errors.observe(error)
        read = sum(chunk.tokens for chunk in call.chunks)
        # Slices of an interrupted call may be too short for a token.
        read = max(read, len(call.chunks))
        tokens = read + len(call.decoded)
        if tokens:
            took = max(0.0, call.took_s)
            self._read.inc(took * read / tokens)
            self._decode.inc(took * len(call.decoded) / tokens)

    def render(self) -> tuple[bytes, str]:
        """The answer to a scrape, and its content type."""
        return generate_latest(self._registry), CONTENT_TYPE_PLAIN_0_0_4

    def _count_stalls(self, record: RequestRecord) -> None:
        listed_ms = 0.0
        for stall in record.stalls:
            listed_ms += stall.gap_ms
            self._stalls.labels(cause=stall.cause).inc()
            self._stalled.labels(cause=stall.cause).inc(stall.gap_ms / 1000)
        if record.timings.stalls > len(record.stalls):
            self._stalls.labels(cause=OTHER_STALLS).inc(record.timings.stalls - len(record.stalls))
            self._stalled.labels(cause=OTHER_STALLS).inc(max(0.0, record.timings.stalled_ms - listed_ms) / 1000)


class Distribution(Collector):
    """A histogram by model that takes many values at once; the library's own takes one, at some microseconds each.

    Args:
        name: As Prometheus knows it.
        help: One line for people.
        bounds: Upper bounds of the buckets, ascending; a value belongs to the first that is not below it.
    """

    def __init__(self, name: str, help: str, bounds: Sequence[float]) -> None:  # noqa: A002 - Prometheus' word
        self._name = name
        self._help = help
        self._bounds = list(bounds)
        self._labels = [*map(floatToGoString, bounds), "+Inf"]
        self._lock = threading.Lock()
        self._counts: dict[str, list[int]] = {}
        self._sums: dict[str, float] = {}

    def observe(self, model: str, value: float) -> None:
        """Count a value of a model."""
        with self._lock:
            self._counts_of(model)[bisect_left(self._bounds, value)] += 1
            self._sums[model] += value

    def observe_all(self, model: str, values: NDArray[np.float64]) -> None:
        """Count values of a model."""
        counts = np.bincount(np.searchsorted(self._bounds, values), minlength=len(self._labels)).tolist()
        with self._lock:
            known = self._counts_of(model)
            for bucket, count in enumerate(counts):
                known[bucket] += count
            self._sums[model] += float(values.sum())

    def _counts_of(self, model: str) -> list[int]:
        if model not in self._counts:
            self._counts[model] = [0] * len(self._labels)
            self._sums[model] = 0.0
        return self._counts[model]

    def collect(self) -> Iterable[Metric]:
        """The histogram, for a scrape."""
        family = HistogramMetricFamily(self._name, self._help, labels=["model"])
        with self._lock:
            for model, counts in self._counts.items():
                buckets = list(zip(self._labels, accumulate(counts), strict=True))
                family.add_metric([model], buckets, self._sums[model])
        yield family


class _LiveCollector(Collector):
    def __init__(self, live: Callable[[], Live | None]) -> None:
        self._live = live

    def describe(self) -> Iterable[Metric]:
        """Nothing: the live figures are for scrapes only, and there are none yet when this is registered."""
        return []

    def collect(self) -> Iterable[Metric]:
        live = self._live()
        if live is None:
            return
        yield GaugeMetricFamily("legato_requests_running", "Requests that have KV cells", live.running)
        yield GaugeMetricFamily("legato_requests_waiting", "Requests that wait for KV cells", live.waiting)
        yield GaugeMetricFamily("legato_kv_cells_used", "KV cells in use, one for each token", live.kv_cells_used)
        yield GaugeMetricFamily("legato_kv_cells", "KV cells that there are", live.kv_cells)


class _PlanningCollector(Collector):
    def __init__(self, planning: Callable[[], Planning]) -> None:
        self._planning = planning

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterable[Metric]:
        now = self._planning()
        policy = GaugeMetricFamily("legato_policy_info", "How steps are planned; always 1", labels=["policy"])
        policy.add_metric([now.policy], 1)
        yield policy
        yield GaugeMetricFamily(
            "legato_gap_target_seconds", "Gap target of answers that have none of their own", now.gap_target_s
        )


class _RememberedCollector(Collector):
    def __init__(self, remembered: Callable[[], Remembered | None]) -> None:
        self._remembered = remembered

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterable[Metric]:
        now = self._remembered()
        if now is None:
            return
        yield _by_tier("legato_cache_bytes", "Bytes of remembered prompts", now.bytes)
        yield _by_tier("legato_cache_budget_bytes", "The most that they may take", now.budgets)
        yield _by_tier("legato_cache_entries", "Remembered prompts", now.entries)
        yield GaugeMetricFamily(
            "legato_kv_cells_parked",
            "KV cells of ended requests, for whoever goes on from there",
            now.parked_tokens,
        )


def _by_tier(name: str, explanation: str, values: Mapping[str, int]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, explanation, labels=["tier"])
    for tier, value in values.items():
        family.add_metric([tier], value)
    return family


class _ProcessCollector(Collector):
    """CPU time and memory, on every system; the library's own collector knows only one process, and only Linux."""

    def __init__(self, processes: Callable[[], Mapping[str, int]]) -> None:
        self._processes = processes

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterable[Metric]:
        cpu = CounterMetricFamily("legato_process_cpu_seconds", "CPU time, user and system", labels=["process"])
        memory = GaugeMetricFamily("legato_process_resident_memory_bytes", "Memory in RAM", labels=["process"])
        for name, pid in self._processes().items():
            try:
                process = psutil.Process(pid)
                times, rss = process.cpu_times(), process.memory_info().rss
            except psutil.Error:  # it ended just now
                continue
            cpu.add_metric([name], times.user + times.system)
            memory.add_metric([name], rss)
        yield cpu
        yield memory


def _distribution(
    registry: CollectorRegistry, name: str, explanation: str, bounds: Sequence[float] = PHASE_BUCKETS_S
) -> Distribution:
    distribution = Distribution(f"legato_{name}_seconds", explanation, bounds)
    registry.register(distribution)
    return distribution


def _counter(registry: CollectorRegistry, name: str, explanation: str, **labels: Sequence[str]) -> Counter:
    """A counter with at most one label, whose values are all there from the start: else the first event is no rise."""
    counter = Counter(f"legato_{name}", explanation, list(labels), registry=registry)
    for label, values in labels.items():
        for value in values:
            counter.labels(**{label: value})
    return counter
