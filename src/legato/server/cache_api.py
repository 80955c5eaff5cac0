"""`/api/cache`: what is remembered of prompts, to see, to clear and to pin; never its content."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

from legato.client.status import NotReadyError
from legato.core.cache import CacheAction, CacheEntry
from legato.server.api_error import ApiError
from legato.server.routes import client_of, clients_of, json_response, service_of
from legato.wire.messages import CacheReply

router = APIRouter()


@router.get("/api/cache")
async def get_cache(request: Request) -> Response:
    """Figures of each tier, and the entries that the caller's requests may begin with; all of them for admins."""
    reply = await _ask(request, "list")
    state = reply.figures
    tiers = {
        "live": _held(reply.entries, "live"),
        "memory": _held(reply.entries, "memory") | {"bytes": state.memory_bytes, "budget_bytes": state.memory_budget},
        "disk": _held(reply.entries, "disk") | {"bytes": state.disk_bytes, "budget_bytes": state.disk_budget},
    }
    latest_first = sorted(_visible(request, reply.entries), key=lambda entry: entry.unused_s)
    scope = service_of(request).engine.settings.cache_scope
    return json_response({"scope": scope, "tiers": tiers, "entries": [_entry(entry) for entry in latest_first]})


@router.delete("/api/cache")
async def clear_cache(request: Request) -> Response:
    """Forget everything, what is pinned and what is in the cells too; says what was freed."""
    clients_of(request).check_admin(client_of(request))
    before = await _ask(request, "list")
    await _ask(request, "remove")
    return _freed(before.entries)


@router.put("/api/cache/{entry}/pin")
async def pin_entry(request: Request, entry: str) -> Response:
    """Keep an entry whatever room others need."""
    return json_response(_entry(await _change(request, "pin", entry)))


@router.delete("/api/cache/{entry}/pin")
async def unpin_entry(request: Request, entry: str) -> Response:
    """Let an entry go again when others need its room."""
    return json_response(_entry(await _change(request, "unpin", entry)))


# Of any form, and empty too: else a slash without an id would be led to the path that clears everything.
@router.delete("/api/cache/{entry:path}")
async def remove_entry(request: Request, entry: str) -> Response:
    """Forget one entry; says what was freed."""
    return _freed([await _change(request, "remove", entry)])


async def _ask(request: Request, action: CacheAction, entry: str | None = None) -> CacheReply:
    """Have the engine do something with what it remembers.

    Raises:
        ApiError: No model is ready.
    """
    service = service_of(request)
    try:
        return await service.engine.cache.ask(action, entry)
    except NotReadyError as error:
        _ = service.model  # refuses, and says why
        raise ApiError(503, str(error), code="model_loading") from error


async def _change(request: Request, action: CacheAction, beginning: str) -> CacheEntry:
    """Do something with the one entry whose id begins so; returns it as it is now, or as it was if it was removed.

    Raises:
        ApiError: The client is no admin, no model is ready, or not exactly one entry's id begins so.
    """
    clients_of(request).check_admin(client_of(request))
    entries = (await _ask(request, "list")).entries
    found = [entry for entry in entries if beginning and entry.id.startswith(beginning)]
    if len(found) > 1:
        raise ApiError(
            404,
            f"{len(found)} remembered prompts have ids that begin with {beginning!r}; write more of the id.",
            code="cache_entry_ambiguous",
        )
    reply = await _ask(request, action, found[0].id) if found else None
    if reply is None or not reply.found:
        raise ApiError(
            404,
            f"No remembered prompt has the id {beginning!r}; /api/cache lists those that there are.",
            code="cache_entry_not_found",
        )
    return next((entry for entry in reply.entries if entry.id == found[0].id), found[0])


def _visible(request: Request, entries: Sequence[CacheEntry]) -> list[CacheEntry]:
    """The entries that the caller may see: all, or those that its own requests may begin with."""
    clients, client = clients_of(request), client_of(request)
    if not clients.has_keys or client in clients.admins:
        return list(entries)
    scopes = {client or ""}
    if service_of(request).engine.settings.cache_scope == "server":
        scopes.add("")
    return [entry for entry in entries if entry.scope in scopes]


def _held(entries: Sequence[CacheEntry], place: str) -> dict[str, int]:
    there = [entry.tokens for entry in entries if place in entry.places]
    return {"entries": len(there), "tokens": sum(there)}


def _entry(entry: CacheEntry) -> dict[str, Any]:
    return msgspec.structs.asdict(entry) | {"unused_s": round(entry.unused_s, 3)}


def _freed(entries: Sequence[CacheEntry]) -> Response:
    """What is there no more: an entry's bytes once for each place outside the cells."""
    freed = {
        "entries": len(entries),
        "tokens": sum(entry.tokens for entry in entries),
        "bytes": sum(entry.bytes * len(entry.places) for entry in entries),
    }
    return json_response({"freed": freed})
