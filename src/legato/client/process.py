"""Workers as child processes of the server: how they are started, their sockets, their last words."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections import deque
from collections.abc import Callable
from typing import cast

import msgspec

from legato.client.clock import WorkerClock
from legato.client.transport import Role, WorkerLink
from legato.wire.frames import FrameBuffer, frame
from legato.wire.messages import EngineSettings, FromWorker, ToWorker

logger = logging.getLogger(__name__)

LONGEST_LINE_BYTES = 2**20
"""Longest line that a worker may print."""
STOP_WAIT_S = 5.0
"""Longest time that a worker is waited for which was told to end."""
OPENMP = {"OMP_MAX_ACTIVE_LEVELS": "2", "OMP_WAIT_POLICY": "active", "GOMP_SPINCOUNT": "10000"}
"""How the library's threads wait for each other, unless the environment says otherwise (GNU's OpenMP).

A step that interrupts the reading of a prompt computes with threads of its own, one level deeper, while one of those
that read waits. There are more of them than cores then, and those that wait must look for long enough not to fall
asleep at every operation, and not for so long that they take the others' time.
"""


class ProcessTransport:
    """Starts workers as child processes, each of which reads prompts and writes answers."""

    async def start(self, settings: EngineSettings, on_message: Callable[[FromWorker], None]) -> WorkerLink:
        """Start a process. It says nothing before it has its settings, which are sent last."""
        mine, its = socket.socketpair()
        with its:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "legato.worker.main", str(its.fileno())),
                pass_fds=[its.fileno()],
                stdin=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                env=OPENMP | os.environ,
                limit=LONGEST_LINE_BYTES,
            )
        loop = asyncio.get_running_loop()
        _, worker = await loop.create_connection(lambda: _WorkerProcess(process, on_message), sock=mine)
        worker.send(settings)
        return worker


class _WorkerProcess(asyncio.Protocol):
    """One worker and the server's end of its socket: a `WorkerLink`."""

    role: Role = "whole"

    def __init__(self, process: asyncio.subprocess.Process, on_message: Callable[[FromWorker], None]) -> None:
        self.pid: int | None = process.pid
        self.clock = WorkerClock()
        self._process = process
        self._on_message = on_message
        self._buffer = FrameBuffer()
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(FromWorker)
        self._lost = asyncio.Event()
        """Set when the worker's end is closed and all it sent has been delivered."""
        self._stderr: deque[str] = deque(maxlen=40)
        self._reader = asyncio.create_task(self._read_stderr())

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A stream socket's transport can be written to, whichever event loop made it.
        self._transport = cast("asyncio.WriteTransport", transport)

    def data_received(self, data: bytes) -> None:
        self._buffer.feed(data)
        for message in self._buffer:
            self._on_message(self._decoder.decode(message))

    def connection_lost(self, error: Exception | None) -> None:
        self._lost.set()

    def send(self, message: ToWorker | EngineSettings) -> None:
        # To a dead worker it goes nowhere. What does not fit into the socket waits in the transport, not in the loop.
        if not self._transport.is_closing():
            self._transport.write(frame(self._encoder.encode(message)))

    async def wait(self) -> str:
        code = await self._process.wait()
        await self._lost.wait()
        # Not awaited itself: whoever cancels this wait must not end the reading.
        await asyncio.wait({self._reader})
        return self._describe_exit(code)

    async def stop(self) -> None:
        self._transport.abort()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._process.wait()), STOP_WAIT_S)
        if self._process.returncode is None:
            self._process.kill()
        await self.wait()

    async def _read_stderr(self) -> None:
        stream = self._process.stderr
        assert stream is not None
        while line := await stream.readline():
            text = line.decode("utf-8", "replace").rstrip()
            self._stderr.append(text)
            logger.info("worker %d: %s", self.pid, text)

    def _describe_exit(self, code: int) -> str:
        if code < 0:
            try:
                how = f"was ended by {signal.Signals(-code).name}"
            except ValueError:
                how = f"was ended by signal {-code}"
        else:
            how = f"ended with exit code {code}"
        words = [line for line in self._stderr if "GGML_ASSERT" in line or "Error" in line]
        return f"the engine worker {how}" + (f" ({words[-1].strip()})" if words else "")
