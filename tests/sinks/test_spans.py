"""Spans for an OpenTelemetry collector."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from msgspec import structs
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from legato.core.causes import CauseTimes
from legato.errors import LegatoError
from legato.sinks.spans import SpanExporter
from legato.telemetry.record import RequestRecord
from tests.telemetry.records import ARRIVED_AT, request_record, stall

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


def exported(record: RequestRecord) -> dict[str, ReadableSpan]:
    memory = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(memory))
    exporter = SpanExporter(provider)
    exporter.export(record)
    exporter.close()
    return {span.name: span for span in memory.get_finished_spans()}


def from_arrival_ms(span: ReadableSpan) -> tuple[float, float]:
    assert span.start_time is not None
    assert span.end_time is not None
    arrived = round(ARRIVED_AT * 1e9)
    return (span.start_time - arrived) / 1e6, (span.end_time - arrived) / 1e6


def test_the_phases_follow_one_another_within_the_request() -> None:
    spans = exported(request_record(load_ms=500, queue_ms=10, prefill_ms=100, tokens=5, gap_ms=20))
    assert {name: from_arrival_ms(span) for name, span in spans.items()} == {
        "chat smollm2": (0, 690),
        "load": (0, 500),
        "queue": (500, 510),
        "prefill": (510, 610),
        "decode": (610, 690),
    }


def test_they_are_one_trace() -> None:
    spans = exported(request_record())
    whole = spans["chat smollm2"]
    assert whole.kind == SpanKind.SERVER
    assert whole.parent is None
    for name in ("queue", "prefill", "decode"):
        parent = spans[name].parent
        assert parent is not None
        assert whole.context is not None
        assert parent.span_id == whole.context.span_id
        assert parent.trace_id == whole.context.trace_id


def test_a_phase_that_took_no_time_has_no_span() -> None:
    assert set(exported(request_record(load_ms=0, tokens=0))) == {"chat smollm2", "queue", "prefill"}


def test_attributes_follow_the_conventions() -> None:
    record = structs.replace(request_record(client="ann", tokens=5), endpoint="completions")
    attributes = exported(record)["text_completion smollm2"].attributes
    assert attributes is not None
    assert attributes["gen_ai.operation.name"] == "text_completion"
    assert attributes["gen_ai.provider.name"] == "legato"
    assert attributes["gen_ai.request.model"] == "smollm2"
    assert attributes["gen_ai.usage.input_tokens"] == 64
    assert attributes["gen_ai.usage.cache_read.input_tokens"] == 16
    assert attributes["gen_ai.usage.output_tokens"] == 5
    assert attributes["gen_ai.response.finish_reasons"] == ("stop",)
    assert attributes["gen_ai.response.time_to_first_chunk"] == pytest.approx(0.11)
    assert attributes["legato.client"] == "ann"
    assert attributes["legato.queue_ms"] == pytest.approx(10)
    assert attributes["legato.service_tier"] == "default"
    assert attributes["legato.preemptions"] == 0
    assert attributes["legato.gap_target_ms"] == 100
    assert "legato.raised_gap_target_ms" not in attributes


def test_causes_and_stalls_are_told_with_the_phase() -> None:
    record = request_record(stalls=[stall(300, at_ms=110)])
    parts = CauseTimes(own_decode_ms=60, others_prefill_ms=280)
    record = structs.replace(record, timings=replace(record.timings, decode_parts=parts))
    decode = exported(record)["decode"]
    assert decode.attributes is not None
    assert decode.attributes["legato.others_prefill_ms"] == 280
    assert "legato.engine_ms" not in decode.attributes
    (event,) = decode.events
    assert event.name == "stall"
    assert event.timestamp == round(ARRIVED_AT * 1e9) + 110_000_000
    assert dict(event.attributes or {}) == {"legato.gap_ms": 300, "legato.cause": "others_prefill"}


def test_a_failure_is_an_error() -> None:
    span = exported(request_record(end="failed"))["chat smollm2"]
    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description == "The model stopped answering."
    assert span.attributes is not None
    assert span.attributes["error.type"] == "_OTHER"
    assert "gen_ai.response.finish_reasons" not in span.attributes


def test_a_client_that_went_is_no_error() -> None:
    span = exported(request_record(end="cancelled"))["chat smollm2"]
    assert span.status.status_code is StatusCode.UNSET
    assert span.attributes is not None
    assert span.attributes["legato.end"] == "cancelled"


@pytest.mark.parametrize("environment", [{}, {ENDPOINT: ""}, {"OTEL_SERVICE_NAME": "x"}])
def test_without_an_endpoint_there_is_no_exporter(environment: dict[str, str]) -> None:
    assert SpanExporter.from_environment(environment) is None


@pytest.mark.parametrize("url", ["nonsense", "localhost:4318", "grpc://localhost:4317"])
def test_an_endpoint_that_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(LegatoError, match="no URL: write it like http://"):
        SpanExporter.from_environment({"OTEL_EXPORTER_OTLP_ENDPOINT": url})


@pytest.mark.parametrize("name", [ENDPOINT, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"])
def test_an_endpoint_makes_one(name: str) -> None:
    exporter = SpanExporter.from_environment({name: "http://127.0.0.1:9"})
    assert exporter is not None
    exporter.close()


def test_another_protocol_is_refused() -> None:
    with pytest.raises(LegatoError, match="set to grpc, but Legato sends http/protobuf"):
        SpanExporter.from_environment({ENDPOINT: "http://c:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})


def test_missing_packages_are_named() -> None:
    script = f"""
        import sys
        sys.modules["opentelemetry.sdk.trace"] = None  # as if it were not installed
        from legato.errors import LegatoError
        from legato.sinks.spans import SpanExporter
        try:
            SpanExporter.from_environment({{"{ENDPOINT}": "http://127.0.0.1:4318"}})
        except LegatoError as error:
            print(error)
        """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=60)
    assert done.stdout == (
        f"{ENDPOINT} is set, but OpenTelemetry is not installed: run pip install 'legato[otel]', or unset it.\n"
    ), done.stderr


class Collector(ThreadingHTTPServer):
    """Keeps what is sent to it; answers only while it is awake."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), CollectorHandler)
        self.received: list[ExportTraceServiceRequest] = []
        self.awake = threading.Event()
        self.awake.set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class CollectorHandler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        assert isinstance(self.server, Collector)
        self.server.awake.wait()
        self.server.received.append(ExportTraceServiceRequest.FromString(body))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        monkeypatch.setenv(ENDPOINT, server.url)
        yield server
        server.awake.set()
        server.shutdown()
        thread.join()


def test_a_collector_receives_them(collector: Collector) -> None:
    exporter = SpanExporter.from_environment()
    assert exporter is not None
    for i in range(10):
        exporter.export(request_record(f"chatcmpl-{i}"))
    exporter.close()
    resources = [resource for request in collector.received for resource in request.resource_spans]
    spans = [span for resource in resources for scope in resource.scope_spans for span in scope.spans]
    assert len(spans) == 40
    service = {a.key: a.value.string_value for a in resources[0].resource.attributes}
    assert service["service.name"] == "legato"


def test_a_collector_that_sleeps_keeps_nobody_waiting(collector: Collector) -> None:
    collector.awake.clear()
    exporter = SpanExporter.from_environment()
    assert exporter is not None
    record = request_record()
    for _ in range(700):  # more spans than its queue holds
        exporter.export(record)
    exporter.close()
    assert collector.received == []
