"""An engine whose workers are none: what the client sends is kept, what it gets is said by the test, and time too."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from legato.client.client import EngineClient
from legato.client.clock import ServerClock, WorkerClock
from legato.client.request_stream import Ended, Event, RequestStream
from legato.client.status import EngineStatus
from legato.client.transport import Role
from legato.core.origin import Origin, ServiceTier
from legato.core.sampling import SamplingParameters
from legato.scheduling.costs import Coefficients
from legato.wire.messages import EngineSettings, FromWorker, Ready, ToWorker
from tests.server.models import model_info

COSTS = Coefficients(0.005, 0.001, 1e-7, 0.01, 0.001, 1e-7)
SETTINGS = EngineSettings("model.gguf", policy="chunked", chunk=64, gap_target_s=0.1)
SIGKILL = "the engine worker was ended by SIGKILL"


class FakeClock:
    """Time that passes only when the test, or a pause, says so."""

    def __init__(self) -> None:
        self.now_s = 5000.0
        self.pauses_s: list[float] = []

    def server_clock(self) -> ServerClock:
        return ServerClock(lambda: self.now_s, self._sleep)

    async def _sleep(self, seconds: float) -> None:
        self.pauses_s.append(seconds)
        self.now_s += seconds
        await asyncio.sleep(0)


@dataclass
class FakeLink:
    """One worker, from its start to `die`."""

    settings: EngineSettings
    tell: Callable[[FromWorker], None]
    """Gives the client a message."""
    role: Role = "whole"
    pid: int | None = 1
    clock: WorkerClock = field(default_factory=WorkerClock)
    sent: list[ToWorker] = field(default_factory=list)
    stopped: bool = False
    _end: asyncio.Future[str] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def send(self, message: ToWorker) -> None:
        self.sent.append(message)

    def ready(self) -> None:
        """Say that the model is loaded; it answers two requests at once."""
        self.tell(Ready(model_info(COSTS, parallel=2), 0.1))

    def die(self) -> None:
        self._end.set_result(SIGKILL)

    async def wait(self) -> str:
        return await asyncio.shield(self._end)

    async def stop(self) -> None:
        self.stopped = True

    def take(self, kind: type[Any]) -> list[Any]:
        """What was sent of one kind."""
        return [message for message in self.sent if isinstance(message, kind)]


class FakeTransport:
    """Starts fake workers, and keeps them in their order."""

    def __init__(self) -> None:
        self.links: list[FakeLink] = []
        self.while_starting: Callable[[], None] = lambda: None
        self._started = asyncio.Condition()

    async def start(self, settings: EngineSettings, on_message: Callable[[FromWorker], None]) -> FakeLink:
        # What goes through the socket must be what the worker reads.
        settings = msgspec.msgpack.decode(msgspec.msgpack.encode(settings), type=EngineSettings)
        await asyncio.sleep(0)
        self.while_starting()
        self.links.append(FakeLink(settings, on_message))
        async with self._started:
            self._started.notify_all()
        return self.links[-1]

    async def next(self, number: int = 1) -> FakeLink:
        """The worker of that number, once the client has it."""
        async with self._started:
            await self._started.wait_for(lambda: len(self.links) >= number)
        await asyncio.sleep(0)
        return self.links[number - 1]


class Stage:
    """A client between a fake transport and a fake clock."""

    def __init__(self, **options: Any) -> None:
        self.transport = FakeTransport()
        self.clock = FakeClock()
        self.client = EngineClient(
            SETTINGS, max_queue=2, transport=self.transport, clock=self.clock.server_clock(), **options
        )

    @property
    def status(self) -> EngineStatus:
        return self.client.supervisor.status

    @property
    def worker(self) -> FakeLink:
        """The latest one."""
        return self.transport.links[-1]

    async def next_ready(self) -> FakeLink:
        """The next worker, which has its model loaded."""
        worker = await self.transport.next(len(self.transport.links) + 1)
        worker.ready()
        return worker

    async def replace_worker(self) -> FakeLink:
        """Let the worker die, and the next one be ready."""
        self.worker.die()
        return await self.next_ready()

    def submit(
        self, *, tier: ServiceTier = "default", gap_target_s: float | None = None, name: str = "a"
    ) -> RequestStream:
        return self.client.submit(
            np.array([1, 2, 3], dtype=np.int32),
            origin=Origin(name, "chat", "ana", tier),
            max_new_tokens=10,
            sampling=SamplingParameters(),
            gap_target_s=gap_target_s,
        )


def play(script: Callable[[Stage], Awaitable[None]], *, ready: bool = True, **options: Any) -> None:
    """Run a script on a stage of its own.

    Args:
        script: What happens.
        ready: Whether the first worker is ready before that; else nothing is started.
        options: For the client.
    """

    async def run() -> None:
        stage = Stage(**options)
        try:
            if ready:
                stage.client.supervisor.start()
                await stage.next_ready()
            await script(stage)
        finally:
            await stage.client.close()

    asyncio.run(asyncio.wait_for(run(), 30))


def events_so_far(request: RequestStream) -> list[Event]:
    """What was delivered and not read yet."""
    events = []
    while not request._events.empty():
        events.append(request._events.get_nowait())
    return events


def ends(request: RequestStream) -> list[Ended]:
    """The terminal events that were delivered and not read yet."""
    return [event for event in events_so_far(request) if isinstance(event, Ended)]
