"""Running the server: the listening socket, uvicorn, signals, and a stop that lets answers finish."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import msgspec
import platformdirs
import uvicorn

from legato.chat.template import read_template
from legato.client.status import EngineStatus
from legato.errors import LegatoError
from legato.models import LocalModel
from legato.server.access import check_exposure
from legato.server.app import create_app
from legato.server.cost_memory import CostMemory
from legato.server.engine_settings import cost_settings_of, engine_settings
from legato.server.language import read_language
from legato.server.service import Service
from legato.settings import Settings
from legato.sinks.history import History
from legato.sinks.spans import SpanExporter
from legato.tuning.profile import ProfileStore, default_profiles

OVERTIME_S = 5.0
"""Time beyond the grace for last events to reach their clients."""
DAY_S = 86_400
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def make_service(settings: Settings, model: LocalModel, profiles: ProfileStore | None = None) -> Service:
    """The service of a model under these settings; what they leave open is as tuned, by the user if not otherwise said.

    Raises:
        LegatoError: The settings name a chat template that is not there, or not one.
    """
    template = read_template(settings.chat_template) if settings.chat_template is not None else None
    name = settings.alias or model.name
    profiles = profiles or default_profiles()
    engine = engine_settings(settings, model, profiles.find_profile(model.path))
    cost_settings = cost_settings_of(engine)
    costs = profiles.find_costs(model.path, cost_settings)
    return Service(
        name,
        msgspec.structs.replace(engine, costs=costs),
        partial(read_language, name, model.path, template),
        max_queue=settings.max_queue,
        history=_open_history(settings),
        spans=SpanExporter.from_environment(),
        costs=CostMemory(partial(profiles.save_costs, model.path, cost_settings), costs),
    )


def _open_history(settings: Settings) -> History | None:
    if settings.no_telemetry or settings.history == "off":
        return None
    path = Path(settings.history) if settings.history else platformdirs.user_state_path("legato") / "history.sqlite"
    return History(path, max_age_s=settings.history_days * DAY_S, max_bytes=int(settings.history_mib * 2**20))


def listen(settings: Settings) -> socket.socket:
    """The listening socket.

    Raises:
        LegatoError: The address is exposed without a key, is not this machine's, or the port is taken.
    """
    check_exposure(settings.host, settings.api_keys, no_auth=settings.no_auth)
    try:
        found = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, address = found[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(2048)
    except OSError as error:
        where = f"{settings.host} port {settings.port}"
        message = f"Can't listen on {where}: {error.strerror}; choose another with --host or --port."
        raise LegatoError(message) from error
    return listening


class GracefulServer(uvicorn.Server):
    """Uvicorn, but it sleeps while nothing happens, and its stop gives running answers their grace and a proper end."""

    def __init__(self, config: uvicorn.Config, service: Service, grace_s: float) -> None:
        super().__init__(config)
        self._service = service
        self._grace_s = grace_s
        self._stopping = asyncio.Event()
        self.stopped_by: signal.Signals | None = None
        """The first signal that said to stop."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """A first signal stops the server, a second one cuts running answers off."""
        loop = asyncio.get_running_loop()
        for number in STOP_SIGNALS:
            loop.add_signal_handler(number, self._stop, number)
        try:
            yield
        finally:
            for number in STOP_SIGNALS:
                loop.remove_signal_handler(number)

    def _stop(self, number: signal.Signals) -> None:
        if self.stopped_by is not None:
            self._service.cut_off()
        else:
            self.stopped_by = number
            self.should_exit = True
            self._stopping.set()

    async def main_loop(self) -> None:
        """Wait for a signal. Uvicorn's own loop looks for one ten times a second."""
        await self.on_tick(0)
        await self._stopping.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Drain the engine while uvicorn waits for its connections."""
        draining = asyncio.create_task(self._drain())
        await super().shutdown(sockets)
        draining.cancel()

    async def _drain(self) -> None:
        await self._service.drain(self._grace_s)
        await asyncio.sleep(OVERTIME_S)
        # Whoever has not read the end of an answer by now is not going to.
        for connection in list(self.server_state.connections):
            if connection.transport is not None:
                connection.transport.abort()


def run_server(
    settings: Settings,
    service: Service,
    listening: socket.socket,
    on_settled: Callable[[EngineStatus], None],
) -> None:
    """Serve until a signal says to stop, and let that signal end the process as whoever sent it expects.

    `on_settled` is called when the model is ready or has failed.
    """
    config = uvicorn.Config(
        create_app(settings, service),
        log_level="info" if settings.verbose else "warning",
        access_log=settings.verbose,
        server_header=False,
        # Uvicorn would have to wake up every second to know the date; the application looks when it answers.
        date_header=False,
    )
    server = GracefulServer(config, service, settings.grace)

    async def announce() -> None:
        on_settled(await service.settled())

    async def serve() -> None:
        announcing = asyncio.create_task(announce())
        await server.serve([listening])
        announcing.cancel()

    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(serve())
    if server.stopped_by is not None:
        signal.raise_signal(server.stopped_by)
