"""The server and its steps as `/api/…` and the dashboard show them."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from legato.client.status import Loading, Ready
from legato.core.calls import Call
from legato.server.recorder import Recorder, running
from legato.server.service import Service
from legato.sinks.utilisation import UtilisationMonitor

RECENT_S = 5.0
"""What "now" means for rates."""


async def status_of(service: Service, utilisation: UtilisationMonitor) -> dict[str, Any]:
    """The server at a glance. How busy the machine is is asked in a thread."""
    requests = running(service.engine)
    calls = service.recorder.calls_since(time.monotonic() - RECENT_S)
    state = service.state
    model = state.model if isinstance(state, Ready) else None
    waiting = sum(not one.running for one in service.engine.requests)
    error = service.recorder.prediction_error_p50()
    return {
        "model": service.name,
        "state": "ready" if service.state_name == "ok" else service.state_name,
        "load_share": round(state.share, 3) if isinstance(state, Loading) else None,
        "running": len(requests) - waiting,
        "waiting": waiting,
        "parallel": model.parallel if model else None,
        "policy": service.engine.settings.policy,
        "gap_target_ms": round(service.engine.settings.gap_target_s * 1000, 3),
        "prediction_error_p50": None if error is None else round(error, 4),
        "kv_cells_used": service.kv_cells_used,
        "kv_cells": service.kv_cells,
        "cache": _cache_of(service),
        "decode_tokens_per_second": _rate(sum(len(call.decoded) for call in calls)),
        "prefill_tokens_per_second": _rate(sum(chunk.tokens for call in calls for chunk in call.chunks)),
        "utilisation": await asyncio.to_thread(utilisation.sample),
        "history_problem": service.recorder.history.problem if service.recorder.history else None,
    }


def step_of(number: int, call: Call, recorder: Recorder) -> dict[str, Any]:
    """One library call of the engine, with its own number and the public ids of requests."""
    return {
        "number": number,
        "begun_at": recorder.calendar(call.begun_s),
        "took_ms": round(call.took_s * 1000, 3),
        "predicted_ms": None if call.predicted_s is None else round(call.predicted_s * 1000, 3),
        "decoded": [recorder.name(request) for request in call.decoded],
        "chunks": [
            {"request": recorder.name(chunk.request), "start": chunk.start, "tokens": chunk.tokens}
            for chunk in call.chunks
        ],
    }


def _cache_of(service: Service) -> dict[str, Any] | None:
    """What is remembered, as far as the engine has said."""
    cache = service.engine.cache.figures
    if cache is None:
        return None
    memory = {"bytes": cache.memory_bytes, "budget_bytes": cache.memory_budget, "entries": cache.memory_entries}
    disk = {"bytes": cache.disk_bytes, "budget_bytes": cache.disk_budget, "entries": cache.disk_entries}
    tiers = {"live": {"tokens": cache.parked_tokens}, "memory": memory, "disk": disk}
    return {"scope": service.engine.settings.cache_scope, "has_disk": cache.has_disk, "tiers": tiers}


def _rate(tokens: int) -> float:
    return round(tokens / RECENT_S, 2)
