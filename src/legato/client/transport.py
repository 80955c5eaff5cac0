"""How workers are reached."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol

from legato.client.clock import WorkerClock
from legato.wire.messages import EngineSettings, FromWorker, ToWorker

Role = Literal["whole", "prefill", "decode"]
"""What a worker does: reads prompts and writes answers, or only one of the two."""


class WorkerLink(Protocol):
    """One worker, from its start to its end."""

    role: Role
    pid: int | None
    """Its process on this machine; None if it runs on another one."""
    clock: WorkerClock
    """What the instants in its messages are told by."""

    def send(self, message: ToWorker) -> None:
        """Send a message; if the worker is dead it goes nowhere."""

    async def wait(self) -> str:
        """Wait for the worker's end, and say in words how it ended. All it sent has been delivered by then."""

    async def stop(self) -> None:
        """End the worker. It gets a moment to put what it remembers on disk."""


class Transport(Protocol):
    """A way to reach workers."""

    async def start(self, settings: EngineSettings, on_message: Callable[[FromWorker], None]) -> WorkerLink:
        """Start a worker, or connect to one.

        Its messages are given to `on_message` in the event loop, the first one after this has returned.
        """
