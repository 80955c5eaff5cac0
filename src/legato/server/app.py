"""The application: routes, middleware, and the life of the served model."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email.utils import formatdate
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.datastructures import MutableHeaders
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from legato import __version__
from legato.client.status import Failed, Loading, Ready
from legato.server import cache_api, pages, settings_api, telemetry_api
from legato.server.access import AccessMiddleware, KeyRing, KnownHosts
from legato.server.api_error import install_error_handlers
from legato.server.broadcast import Broadcast
from legato.server.clients import Clients
from legato.server.openai import chat, completions, models
from legato.server.service import Service
from legato.server.sessions import Sessions
from legato.server.sse import ClientGoneError
from legato.settings import Settings
from legato.sinks.utilisation import UtilisationMonitor, nvidia_gpus


def create_app(settings: Settings, service: Service) -> FastAPI:
    """The application that serves one model under these settings."""

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        service.start()
        yield
        await service.close()

    app = FastAPI(title="Legato", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.service = service
    app.state.clients = Clients.of(settings)
    key_ring = app.state.key_ring = KeyRing(settings.api_keys)
    sessions = app.state.sessions = Sessions()
    app.state.utilisation = UtilisationMonitor(nvidia_gpus())
    app.state.broadcast = Broadcast(service, app.state.utilisation)
    install_error_handlers(app)

    @app.exception_handler(ClientGoneError)
    async def client_gone(_request: Request, _error: ClientGoneError) -> Response:
        # Nobody reads it; 499 is what access logs call this.
        return Response(status_code=499)

    for routes in (chat, completions, models, telemetry_api, settings_api, cache_api, pages):
        app.include_router(routes.router)
    _add_health_route(app, service)
    app.add_middleware(
        AccessMiddleware,
        hosts=KnownHosts(settings.host, settings.allowed_hosts),
        keys=key_ring,
        sessions=sessions,
        cors_origins=settings.cors_origins,
        max_body_bytes=int(settings.max_body_mib * 2**20),
    )
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware, allow_origins=settings.cors_origins, allow_methods=["*"], allow_headers=["*"]
        )
    app.add_middleware(ClockMiddleware)
    return app


class ClockMiddleware:
    """Notes when each request's head was there, where its time to first token begins, and dates the response."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Note the time and pass on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_dated(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["date"] = formatdate(usegmt=True)
            await send(message)

        scope.setdefault("state", {})["arrived_s"] = time.monotonic()
        await self._app(scope, receive, send_dated)


def _add_health_route(app: FastAPI, service: Service) -> None:
    @app.get("/health")
    async def health() -> JSONResponse:
        """200 when the model answers; 503 with `loading`, `failed` or `stopping` when not."""
        state = service.state
        body: dict[str, Any] = {"status": service.state_name, "model": service.name}
        if isinstance(state, Loading):
            body["progress"] = round(state.share, 3)
        if isinstance(state, Loading | Failed) and state.reason:
            body["reason"] = state.reason
        return JSONResponse(body, 200 if isinstance(state, Ready) else 503)
