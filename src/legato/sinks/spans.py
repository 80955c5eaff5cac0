"""A span for each request and each of its phases, sent to an OpenTelemetry collector.

The attributes `gen_ai.*` follow OpenTelemetry's conventions for generative AI, which are still in development; what
they have no name for is `legato.*`. Prompts and answers are never sent.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

from legato.core.causes import CAUSES, CauseTimes
from legato.core.timings import Timings
from legato.errors import LegatoError
from legato.telemetry.record import RequestRecord

if TYPE_CHECKING:  # an optional extra: it may be missing
    from opentelemetry.sdk.trace import TracerProvider

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
OPERATIONS = {"chat": "chat", "completions": "text_completion"}

CLOSE_S = 3.0
"""How long an ending server waits for the collector."""

Attributes = dict[str, str | int | float | list[str]]

SPANNED: dict[str, tuple[str, ...]] = {
    "load": (),
    "queue": (),
    "prefill": ("prefill_tokens", "cached_tokens"),
    "decode": ("decode_tokens",),
}
"""Phases that have a span, one after the other, and the fields of `Timings` that are told with each."""
FIGURES = (
    *("load_ms", "queue_ms", "prefill_ms", "decode_ms", "stalls", "stalled_ms", "itl_max_ms", "preemptions"),
    *("gap_target_ms", "raised_gap_target_ms"),
)
"""Those that are told with the whole request."""


class SpanExporter:
    """Sends spans in the background; a collector that is slow or away costs spans, never time."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("legato")

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> SpanExporter | None:
        """An exporter to the collector that OpenTelemetry's usual variables name; None if they name none.

        Raises:
            LegatoError: They name one, but no URL, the packages are missing, or it would be spoken to in a way that
                Legato does not know.
        """
        if not any(environment.get(name) for name in ENDPOINTS):
            return None
        for name in ENDPOINTS:
            if (url := environment.get(name)) and not url.startswith(("http://", "https://")):
                raise LegatoError(f"{name} is {url!r}, which is no URL: write it like http://localhost:4318.")
        protocol = next((environment[name] for name in PROTOCOLS if environment.get(name)), "http/protobuf")
        if protocol != "http/protobuf":
            raise LegatoError(
                f"OpenTelemetry's protocol is set to {protocol}, but Legato sends http/protobuf: set "
                f"OTEL_EXPORTER_OTLP_PROTOCOL to that, and the endpoint to the collector's HTTP port (usually 4318)."
            )
        return cls(_provider(environment))

    def export(self, record: RequestRecord) -> None:
        """Send the spans of an ended request, soon."""
        from opentelemetry import context, trace

        name = f"{OPERATIONS[record.endpoint]} {record.model}"
        whole = self._tracer.start_span(
            name,
            context=context.Context(),  # a trace of its own, whatever this thread was doing
            kind=trace.SpanKind.SERVER,
            attributes=request_attributes(record),
            start_time=_instant_ns(record, 0.0),
        )
        if record.end == "failed":
            whole.set_status(trace.StatusCode.ERROR, record.error)
        inside = trace.set_span_in_context(whole, context.Context())
        begin_ms = 0.0
        for phase in SPANNED:
            took_ms = getattr(record.timings, f"{phase}_ms")
            if took_ms > 0:
                part = self._tracer.start_span(
                    phase,
                    context=inside,
                    attributes=phase_attributes(phase, record.timings),
                    start_time=_instant_ns(record, begin_ms),
                )
                for stall in record.stalls if phase == "decode" else []:
                    about = {"legato.gap_ms": stall.gap_ms, "legato.cause": stall.cause}
                    part.add_event("stall", about, timestamp=_instant_ns(record, stall.at_ms))
                part.end(_instant_ns(record, begin_ms + took_ms))
            begin_ms += took_ms
        whole.end(_instant_ns(record, record.timings.total_ms))

    def close(self) -> None:
        """Send what waits, as far as the collector takes it within `CLOSE_S`."""
        # OpenTelemetry would wait for a collector that is away for many seconds.
        closing = threading.Thread(target=self._provider.shutdown, name="spans-close", daemon=True)
        closing.start()
        closing.join(CLOSE_S)


def request_attributes(record: RequestRecord) -> Attributes:
    """What is said of the whole request."""
    timings = record.timings
    attributes = {
        "gen_ai.operation.name": OPERATIONS[record.endpoint],
        "gen_ai.provider.name": "legato",
        "gen_ai.request.model": record.model,
        "gen_ai.response.model": record.model,
        "gen_ai.response.id": record.id,
        "gen_ai.response.finish_reasons": [record.end] if record.end in ("stop", "length") else None,
        "gen_ai.response.time_to_first_chunk": None if timings.ttft_ms is None else timings.ttft_ms / 1000,
        "gen_ai.usage.input_tokens": record.prompt_tokens,
        "gen_ai.usage.cache_read.input_tokens": timings.cached_tokens,
        "gen_ai.usage.output_tokens": timings.decode_tokens,
        # The conventions' word for a failure without a class of its own.
        "error.type": "_OTHER" if record.end == "failed" else None,
        "legato.client": record.client,
        "legato.end": record.end,
        "legato.service_tier": record.service_tier,
        **{f"legato.{name}": getattr(timings, name) for name in FIGURES},
    }
    return {name: value for name, value in attributes.items() if value is not None}


def phase_attributes(phase: str, timings: Timings) -> Attributes:
    """What is said of one phase: its tokens, and the causes that took time."""
    told: dict[str, float] = {name: getattr(timings, name) for name in SPANNED[phase]}
    parts: CauseTimes | None = getattr(timings, f"{phase}_parts", None)
    if parts is not None:
        told |= {f"{cause}_ms": parts.of(cause) for cause in CAUSES if parts.of(cause)}
    return {f"legato.{name}": value for name, value in told.items()}


def _instant_ns(record: RequestRecord, at_ms: float) -> int:
    """Unix time, ns. The offset is added in whole nanoseconds: a float of today's date has only some 200 ns."""
    return round(record.arrived_at * 1e9) + round(at_ms * 1e6)


def _provider(environment: Mapping[str, str]) -> TracerProvider:
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        named = next(name for name in ENDPOINTS if environment.get(name))
        raise LegatoError(
            f"{named} is set, but OpenTelemetry is not installed: run pip install 'legato[otel]', or unset it."
        ) from None

    is_named = "OTEL_SERVICE_NAME" in environment or "service.name=" in environment.get("OTEL_RESOURCE_ATTRIBUTES", "")
    resource = Resource.create({} if is_named else {"service.name": "legato"})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider
