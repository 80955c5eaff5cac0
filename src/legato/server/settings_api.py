"""`/api/settings`: how steps are planned, to see and to change while the server runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from legato.client.client import EngineClient
from legato.client.status import Ready
from legato.core.choices import PolicyName
from legato.server.api_error import invalid
from legato.server.routes import client_of, clients_of, json_response, service_of
from legato.server.service import Service
from legato.settings import MAX_CHUNK, MAX_GAP_TARGET_MS, MIN_GAP_TARGET_MS
from legato.wire.messages import Configure, SetBudgets

router = APIRouter()

MAX_CACHE_MIB = 2.0**30
"""A petabyte: beyond what anybody means."""


class SettingsChange(BaseModel):
    """Body of `PATCH /api/settings`; what is left out stays as it is."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    # The defaults stand for what is left out; they are never read.
    policy: PolicyName = "adaptive"
    chunk: int | None = Field(None, ge=1, le=MAX_CHUNK)
    """Null for this hardware's default."""
    cache_memory_mib: float = Field(0, ge=0, le=MAX_CACHE_MIB)
    cache_disk_mib: float = Field(0, ge=0, le=MAX_CACHE_MIB)
    gap_target_ms: float = Field(MIN_GAP_TARGET_MS, ge=MIN_GAP_TARGET_MS, le=MAX_GAP_TARGET_MS)


@router.get("/api/settings")
async def get_settings(request: Request) -> Response:
    """What can be changed while the server runs, and what is fixed that explains its pace."""
    return _answer(service_of(request))


@router.patch("/api/settings")
async def change_settings(request: Request, change: SettingsChange) -> Response:
    """Change how steps are planned, from the next one on."""
    clients_of(request).check_admin(client_of(request))
    service = service_of(request)
    given = change.model_dump(exclude_unset=True)
    wanted = _changeable(service.engine) | given
    service.engine.configure(Configure(wanted["policy"], wanted["chunk"], wanted["gap_target_ms"] / 1000))
    budgets = {name: int(mib * 2**20) for name, mib in given.items() if name.startswith("cache_")}
    if budgets:
        _check_cache(service, budgets)
        service.engine.set_cache_budgets(SetBudgets(budgets.get("cache_memory_mib"), budgets.get("cache_disk_mib")))
    return _answer(service)


def _check_cache(service: Service, budgets: Mapping[str, int]) -> None:
    """Refuse budgets of what there is not.

    Raises:
        ApiError: Nothing is remembered here, or nothing on disk.
    """
    if service.engine.settings.cache_scope == "off":
        message = "Nothing is remembered here; start the server with another --cache-scope than off."
        raise invalid(message, next(iter(budgets)))
    cache = service.engine.cache.figures
    if "cache_disk_mib" in budgets and cache is not None and not cache.has_disk:
        message = "Nothing is remembered on disk here; start the server with --cache-disk-mib above 0."
        raise invalid(message, "cache_disk_mib")


def _mib(chosen: int | None, present: int | None) -> float | None:
    """A budget as it is set, or as the engine chose it; None while that is not known."""
    found = present if chosen is None else chosen
    return None if found is None else round(found / 2**20, 1)


def _changeable(engine: EngineClient) -> dict[str, Any]:
    settings, cache = engine.settings, engine.cache.figures
    return {
        "policy": settings.policy,
        "chunk": settings.chunk,
        "gap_target_ms": round(settings.gap_target_s * 1000, 3),
        "cache_memory_mib": _mib(settings.cache_memory_bytes, cache.memory_budget if cache else None),
        "cache_disk_mib": _mib(settings.cache_disk_bytes, cache.disk_budget if cache else None),
    }


def _answer(service: Service) -> Response:
    settings = service.engine.settings
    state = service.state
    # What the worker has chosen, once it is known; until then what is set.
    model = state.model if isinstance(state, Ready) else settings
    chosen = ("flash_attention", "threads", "threads_prefill", "interruptible", "parallel", "context_tokens")
    fixed = {name: getattr(model, name) for name in chosen} | {
        "kv_type_k": settings.kv_type_k,
        "kv_type_v": settings.kv_type_v,
        "batch": settings.batch_tokens,
        "joined_calls": settings.joined_calls,
        "background_wait_s": settings.background_wait_s,
    }
    return json_response({**_changeable(service.engine), "fixed": fixed})
