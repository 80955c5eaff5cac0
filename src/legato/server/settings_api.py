"""`/api/settings`: how steps are planned, to see and to change while the server runs."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from legato.runtime.client import EngineClient, ReadyState
from legato.scheduling.policies import PolicyName
from legato.server.clients import Clients
from legato.server.service import Service
from legato.settings import MAX_CHUNK, MAX_GAP_TARGET_MS, MIN_GAP_TARGET_MS

router = APIRouter()


class SettingsChange(BaseModel):
    """Body of `PATCH /api/settings`; what is left out stays as it is."""

    model_config = ConfigDict(extra="forbid", strict=True)

    # The defaults stand for what is left out; they are never read.
    policy: PolicyName = "adaptive"
    chunk: int | None = Field(None, ge=1, le=MAX_CHUNK)
    """Null for this hardware's default."""
    gap_target_ms: float = Field(MIN_GAP_TARGET_MS, ge=MIN_GAP_TARGET_MS, le=MAX_GAP_TARGET_MS, allow_inf_nan=False)


@router.get("/api/settings")
async def get_settings(request: Request) -> Response:
    """What can be changed while the server runs, and what is fixed that explains its pace."""
    return _answer(request.app.state.service)


@router.patch("/api/settings")
async def change_settings(request: Request, change: SettingsChange) -> Response:
    """Change how steps are planned, from the next one on."""
    clients: Clients = request.app.state.clients
    clients.check_admin(request.state.client_name)
    service: Service = request.app.state.service
    wanted = _changeable(service.engine) | change.model_dump(exclude_unset=True)
    service.engine.configure(
        policy=wanted["policy"], chunk=wanted["chunk"], gap_target_s=wanted["gap_target_ms"] / 1000
    )
    return _answer(service)


def _changeable(engine: EngineClient) -> dict[str, Any]:
    settings = engine.settings
    return {
        "policy": settings.policy,
        "chunk": settings.chunk,
        "gap_target_ms": round(settings.gap_target_s * 1000, 3),
    }


def _answer(service: Service) -> Response:
    settings = service.engine.settings
    state = service.state
    model = state.model if isinstance(state, ReadyState) else None
    fixed = {
        "flash_attention": model.flash_attention if model else settings.flash_attention,
        "threads": model.threads if model else settings.threads,
        "threads_prefill": model.threads_prefill if model else settings.threads_prefill,
        "kv_type_k": settings.kv_type_k,
        "kv_type_v": settings.kv_type_v,
        "batch": settings.batch_tokens,
        "joined_calls": settings.joined_calls,
        "interruptible": model.interruptible if model else settings.interruptible,
        "parallel": model.parallel if model else settings.parallel,
        "context_tokens": model.context_tokens if model else settings.context_tokens,
        "background_wait_s": settings.background_wait_s,
    }
    body = {**_changeable(service.engine), "fixed": fixed}
    return Response(msgspec.json.encode(body), media_type="application/json")
