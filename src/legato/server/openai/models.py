"""`GET /v1/models`: the served model, the only one there is."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from legato.client.status import Ready
from legato.server.routes import service_of
from legato.server.service import Service

router = APIRouter()


@router.get("/v1/models")
async def list_models(request: Request) -> dict[str, Any]:
    """The served model."""
    return {"object": "list", "data": [_card(service_of(request))]}


@router.get("/v1/models/{name:path}")
async def get_model(request: Request, name: str) -> dict[str, Any]:
    """The served model, by name."""
    service = service_of(request)
    service.check_model(name)
    return _card(service)


def _card(service: Service) -> dict[str, Any]:
    card = {"id": service.name, "object": "model", "created": service.created_s, "owned_by": "legato"}
    state = service.state
    if isinstance(state, Ready):
        model = state.model
        card |= {
            "description": model.description,
            "parameters": model.parameters,
            "size_bytes": model.size_bytes,
            "context_length": model.context_tokens,
            "parallel": model.parallel,
        }
    return card
