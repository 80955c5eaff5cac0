"""Running the server: the listening socket, uvicorn, signals, and a stop that lets answers finish."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable

import uvicorn
from fastapi import FastAPI

from legato.errors import LegatoError
from legato.models import LocalModel
from legato.runtime.client import EngineState
from legato.runtime.messages import EngineSettings
from legato.server.access import check_exposure
from legato.server.app import create_app
from legato.server.service import Service
from legato.settings import Settings

OVERTIME_S = 5.0
"""Time beyond the grace for last events to reach their clients."""


def make_service(settings: Settings, model: LocalModel) -> Service:
    """The service of a model under these settings."""
    engine = EngineSettings(
        model_path=str(model.path),
        context_tokens=settings.ctx,
        parallel=settings.parallel,
        batch_tokens=settings.batch,
        threads=settings.threads,
        threads_prefill=settings.threads_prefill,
        gpu_layers=settings.gpu_layers,
        flash_attention=settings.flash_attention,
        kv_type_k=settings.kv_type_k,
        kv_type_v=settings.kv_type_v,
        policy=settings.policy,
        chunk=settings.chunk,
        joined_calls=settings.joined_calls,
        log_level=logging.DEBUG if settings.verbose else logging.ERROR,
    )
    return Service(
        settings.alias or model.name,
        model.path,
        engine,
        max_queue=settings.max_queue,
        chat_template=settings.chat_template,
    )


def listen(settings: Settings) -> socket.socket:
    """The listening socket.

    Raises:
        LegatoError: The address is exposed without a key, is not this machine's, or the port is taken.
    """
    check_exposure(settings.host, settings.api_keys, no_auth=settings.no_auth)
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[
            0
        ]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(2048)
    except OSError as error:
        where = f"{settings.host} port {settings.port}"
        raise LegatoError(
            f"Can't listen on {where}: {error.strerror}; choose another with --host or --port."
        ) from error
    return listening


class GracefulServer(uvicorn.Server):
    """Uvicorn, but when it stops, running answers get their grace and then a proper end."""

    def __init__(self, config: uvicorn.Config, service: Service, grace_s: float) -> None:
        super().__init__(config)
        self._service = service
        self._grace_s = grace_s

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Drain the engine while uvicorn waits for its connections."""
        draining = asyncio.create_task(self._service.drain(self._grace_s))
        await super().shutdown(sockets)
        draining.cancel()


def run_server(
    settings: Settings,
    service: Service,
    listening: socket.socket,
    on_settled: Callable[[EngineState], None],
) -> None:
    """Serve until a signal says to stop.

    Args:
        settings: Of the server.
        service: The model.
        listening: From `listen`.
        on_settled: Called when the model is ready or has failed.
    """
    app: FastAPI = create_app(settings, service)
    config = uvicorn.Config(
        app,
        log_level="info" if settings.verbose else "warning",
        access_log=settings.verbose,
        timeout_graceful_shutdown=int(settings.grace + OVERTIME_S),
        server_header=False,
    )
    server = GracefulServer(config, service, settings.grace)

    async def serve() -> None:
        announcing = asyncio.create_task(_announce(service, on_settled))
        await server.serve([listening])
        announcing.cancel()

    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(serve())


async def _announce(service: Service, on_settled: Callable[[EngineState], None]) -> None:
    on_settled(await service.settled())
