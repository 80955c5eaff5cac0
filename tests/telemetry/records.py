"""Records of ended requests, for tests."""

from __future__ import annotations

from dataclasses import replace

from legato.core.cache import Restored
from legato.core.causes import Blame, CauseTimes
from legato.core.origin import EndReason
from legato.core.timings import ChunkRead, Stall
from legato.telemetry.record import RequestRecord
from legato.telemetry.timeline import Timeline

ARRIVED_AT = 1_700_000_000.0


def request_record(
    id: str = "chatcmpl-1",  # noqa: A002
    *,
    arrived_at: float = ARRIVED_AT,
    client: str | None = None,
    model: str = "smollm2",
    end: EndReason = "stop",
    tokens: int = 4,
    gap_ms: float = 20.0,
    load_ms: float = 0.0,
    queue_ms: float = 10.0,
    prefill_ms: float = 100.0,
    prompt_tokens: int = 64,
    cached_tokens: int = 16,
    stalls: list[Stall] | None = None,
    token_ms: list[float] | None = None,
) -> RequestRecord:
    """A request that waited, read its prompt, and wrote its tokens; at an even pace without `token_ms`."""
    admitted = (load_ms + queue_ms) / 1000
    first_ms = load_ms + queue_ms + prefill_ms
    even_ms = [round(first_ms + gap_ms * i, 3) for i in range(tokens)]
    timeline = Timeline(
        0.0,
        prompt_tokens=prompt_tokens,
        restored=Restored(1, cached_tokens, "live", 0.0, 0.0),
        load_s=load_ms / 1000,
        admitted_s=admitted,
        token_times_s=[ms / 1000 for ms in even_ms],
        ended_s=(even_ms[-1] if even_ms else first_ms) / 1000,
    )
    stalls = stalls or []
    timings = replace(timeline.timings(), stalls=len(stalls), stalled_ms=sum(stall.gap_ms for stall in stalls))
    return RequestRecord(
        id=id,
        endpoint="chat",
        model=model,
        client=client,
        arrived_at=arrived_at,
        end=end,
        error="The model stopped answering." if end == "failed" else "",
        prompt_tokens=prompt_tokens,
        timings=timings,
        stalls=stalls,
        chunks=[ChunkRead(at_ms=load_ms + queue_ms, took_ms=prefill_ms, start=cached_tokens, tokens=prompt_tokens)],
        token_ms=even_ms if token_ms is None else token_ms,
    )


def stall(gap_ms: float = 300.0, at_ms: float = 110.0) -> Stall:
    """A gap in which another request's prompt was read."""
    parts = CauseTimes(
        own_decode_ms=20.0, others_prefill_ms=gap_ms - 20, blamed=[Blame("chatcmpl-9", 512, gap_ms - 20)]
    )
    return Stall(at_ms=at_ms, gap_ms=gap_ms, cause="others_prefill", parts=parts)
