"""A span for each request and each of its phases, sent to an OpenTelemetry collector.

The attributes `gen_ai.*` follow OpenTelemetry's conventions for generative AI, which are still in development; what
they have no name for is `legato.*`. Prompts and answers are never sent.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from legato.core.causes import CAUSES, CauseTimes
from legato.errors import LegatoError
from legato.telemetry.record import RequestRecord

if TYPE_CHECKING:  # an optional extra: it may be missing
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
OPERATIONS = {"chat": "chat", "completions": "text_completion"}

CLOSE_S = 3.0
"""How long an ending server waits for the collector."""

Attributes = dict[str, str | int | float | list[str]]


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of a request, ms from its arrival."""

    name: str
    begin_ms: float
    end_ms: float
    attributes: Attributes


class SpanExporter:
    """Sends spans in the background; a collector that is slow or away costs spans, never time.

    Args:
        provider: Where the spans go. It is shut down by `close`.
    """

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
        for phase in phases(record):
            part = self._tracer.start_span(
                phase.name,
                context=inside,
                attributes=phase.attributes,
                start_time=_instant_ns(record, phase.begin_ms),
            )
            if phase.name == "decode":
                _add_stalls(part, record)
            part.end(_instant_ns(record, phase.end_ms))
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
    attributes: Attributes = {
        "gen_ai.operation.name": OPERATIONS[record.endpoint],
        "gen_ai.provider.name": "legato",
        "gen_ai.request.model": record.model,
        "gen_ai.response.model": record.model,
        "gen_ai.response.id": record.id,
        "gen_ai.usage.input_tokens": record.prompt_tokens,
        "gen_ai.usage.cache_read.input_tokens": timings.cached_tokens,
        "gen_ai.usage.output_tokens": timings.decode_tokens,
        "legato.end": record.end,
        "legato.load_ms": timings.load_ms,
        "legato.queue_ms": timings.queue_ms,
        "legato.prefill_ms": timings.prefill_ms,
        "legato.decode_ms": timings.decode_ms,
        "legato.stalls": timings.stalls,
        "legato.stalled_ms": timings.stalled_ms,
        "legato.service_tier": record.service_tier,
        "legato.preemptions": timings.preemptions,
    }
    if record.end in ("stop", "length"):
        attributes["gen_ai.response.finish_reasons"] = [record.end]
    if record.end == "failed":
        attributes["error.type"] = "_OTHER"  # the conventions' word for a failure without a class of its own
    if timings.ttft_ms is not None:
        attributes["gen_ai.response.time_to_first_chunk"] = timings.ttft_ms / 1000
    if timings.itl_max_ms is not None:
        attributes["legato.itl_max_ms"] = timings.itl_max_ms
    if timings.gap_target_ms is not None:
        attributes["legato.gap_target_ms"] = timings.gap_target_ms
    if timings.raised_gap_target_ms is not None:
        attributes["legato.raised_gap_target_ms"] = timings.raised_gap_target_ms
    if record.client is not None:
        attributes["legato.client"] = record.client
    return attributes


def phases(record: RequestRecord) -> list[Phase]:
    """The phases that took time, one after the other."""
    timings = record.timings
    prefill: Attributes = {
        "legato.prefill_tokens": timings.prefill_tokens,
        "legato.cached_tokens": timings.cached_tokens,
        **_parts_attributes(timings.prefill_parts),
    }
    decode: Attributes = {
        "legato.decode_tokens": timings.decode_tokens,
        **_parts_attributes(timings.decode_parts),
    }
    found: list[Phase] = []
    begin = 0.0
    for name, took_ms, attributes in (
        ("load", timings.load_ms, Attributes()),
        ("queue", timings.queue_ms, Attributes()),
        ("prefill", timings.prefill_ms, prefill),
        ("decode", timings.decode_ms, decode),
    ):
        if took_ms > 0:
            found.append(Phase(name, begin, begin + took_ms, attributes))
        begin += took_ms
    return found


def _parts_attributes(parts: CauseTimes | None) -> Attributes:
    return {} if parts is None else {f"legato.{cause}_ms": parts.of(cause) for cause in CAUSES if parts.of(cause)}


def _add_stalls(span: Span, record: RequestRecord) -> None:
    for stall in record.stalls:
        attributes = {"legato.gap_ms": stall.gap_ms, "legato.cause": stall.cause}
        span.add_event("stall", attributes, timestamp=_instant_ns(record, stall.at_ms))


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
