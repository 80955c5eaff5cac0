"""A worker that is none: what the client sends is kept, and what it gets is said by the test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import pytest

from legato.client import client as client_module
from legato.client.client import EngineClient
from legato.client.request_stream import RequestStream
from legato.core.origin import Origin, ServiceTier
from legato.core.sampling import SamplingParameters
from legato.scheduling.costs import Coefficients
from legato.wire.messages import EngineSettings, FromWorker, ModelInfo, Ready, ToWorker

COSTS = Coefficients(0.005, 0.001, 1e-7, 0.01, 0.001, 1e-7)


@dataclass
class FakeWorker:
    """One worker, from spawn to `die`."""

    settings: EngineSettings
    tell: Callable[[FromWorker], None]
    """Gives the client a message."""
    sent: list[ToWorker] = field(default_factory=list)
    pid: int = 1
    _end: asyncio.Event = field(default_factory=asyncio.Event)

    def send(self, message: ToWorker) -> None:
        self.sent.append(message)

    def ready(self) -> None:
        """Say that the model is loaded."""
        fields: dict[str, Any] = dict.fromkeys(ModelInfo.__struct_fields__, 1)
        known = {"description": "m", "chat_template": None, "flash_attention": "off", "policy": self.settings.policy}
        self.tell(Ready(ModelInfo(**(fields | known | {"parallel": 2, "costs": COSTS})), 0.1))

    def die(self) -> None:
        self._end.set()

    async def wait(self) -> str:
        await self._end.wait()
        return "the engine worker was ended by SIGKILL"

    async def stop(self) -> None:
        self.die()

    def take(self, kind: type[Any]) -> list[Any]:
        """What was sent of one kind."""
        return [message for message in self.sent if isinstance(message, kind)]


class FakeWorkers:
    """All workers of one client, in their order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.spawned: list[FakeWorker] = []
        self.while_spawning: Callable[[], None] = lambda: None
        self._more = asyncio.Event()
        monkeypatch.setattr(client_module.WorkerProcess, "spawn", self._spawn)
        monkeypatch.setattr(client_module, "BACKOFF_S", (0.0,))

    async def _spawn(self, settings: EngineSettings, tell: Callable[[FromWorker], None]) -> FakeWorker:
        # What goes through the socket must be what the worker reads.
        settings = msgspec.msgpack.decode(msgspec.msgpack.encode(settings), type=EngineSettings)
        worker = FakeWorker(settings, tell)
        await asyncio.sleep(0)
        self.while_spawning()
        self.spawned.append(worker)
        self._more.set()
        return worker

    async def next(self, number: int = 1) -> FakeWorker:
        """The worker of that number, once it is there."""
        while len(self.spawned) < number:
            self._more.clear()
            await self._more.wait()
        await asyncio.sleep(0)  # until the client has it too
        return self.spawned[number - 1]


def submit(
    client: EngineClient, *, tier: ServiceTier = "default", gap_target_s: float | None = None, name: str = "a"
) -> RequestStream:
    return client.submit(
        np.array([1, 2, 3], dtype=np.int32),
        origin=Origin(name, "chat", "ana", tier),
        max_new_tokens=10,
        sampling=SamplingParameters(),
        gap_target_s=gap_target_s,
    )
