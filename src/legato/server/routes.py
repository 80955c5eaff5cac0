"""What routes share: the parts of the server behind a request, and answers in JSON."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import Request
from starlette.responses import Response

from legato.server.clients import Clients
from legato.server.service import Service


def service_of(request: Request) -> Service:
    """The served model."""
    service: Service = request.app.state.service
    return service


def clients_of(request: Request) -> Clients:
    """What the names of API keys stand for."""
    clients: Clients = request.app.state.clients
    return clients


def client_of(request: Request) -> str | None:
    """Name of the API key that was sent; None if it has none, or none is needed."""
    client: str | None = request.state.client_name
    return client


def json_response(body: Any) -> Response:
    """A body that msgspec knows to write."""
    return Response(msgspec.json.encode(body), media_type="application/json")
