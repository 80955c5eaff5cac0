"""An engine worker as the server sees it: a child process, its socket, its last words."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import signal
import sys
import tempfile
from collections import deque
from collections.abc import Callable
from pathlib import Path

import msgspec
import zmq

from legato.runtime.messages import EngineSettings, FromWorker, ToWorker

logger = logging.getLogger(__name__)

LONGEST_LINE_BYTES = 2**20
"""Longest line that a worker may print."""


class WorkerProcess:
    """One worker, from spawn to exit. Made by `spawn`; ended by `stop`."""

    def __init__(self, on_message: Callable[[FromWorker], None]) -> None:
        self._on_message = on_message
        self._loop = asyncio.get_running_loop()
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(FromWorker)
        # A folder of its own, open to its owner alone, keeps other users of the machine off the socket.
        self._folder = Path(tempfile.mkdtemp(prefix="legato-"))
        self._endpoint = f"ipc://{self._folder}/engine"
        self._socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.PAIR)
        # Requests wait in the scheduler's queue, never in the socket: no mark may make a send block or drop.
        self._socket.set_hwm(0)
        self._socket.bind(self._endpoint)
        self._descriptor: int = self._socket.fileno()
        self._stderr: deque[str] = deque(maxlen=40)
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None

    @classmethod
    async def spawn(cls, settings: EngineSettings, on_message: Callable[[FromWorker], None]) -> WorkerProcess:
        """Start a worker; its messages go to `on_message`, in the event loop."""
        worker = cls(on_message)
        try:
            worker._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "legato.runtime.worker", worker._endpoint),
                stdin=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                limit=LONGEST_LINE_BYTES,
            )
        except BaseException:
            worker._close_socket()
            raise
        stdin = worker._running.stdin
        assert stdin is not None
        stdin.write(msgspec.json.encode(settings) + b"\n")
        worker._loop.add_reader(worker._descriptor, worker._drain)
        worker._reader = asyncio.create_task(worker._read_stderr())
        return worker

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._running.pid

    @property
    def _running(self) -> asyncio.subprocess.Process:
        assert self._process is not None, "a worker is made by spawn"
        return self._process

    def send(self, message: ToWorker) -> None:
        """Send a message; if the worker is dead it goes nowhere."""
        with contextlib.suppress(zmq.Again):
            self._socket.send(self._encoder.encode(message), zmq.NOBLOCK)
        # The socket's descriptor signals edges, and a send may swallow the one that announced a message.
        self._drain()

    async def wait(self) -> str:
        """Wait for the worker's end, and say in words how it ended. All it sent has been delivered by then."""
        code = await self._running.wait()
        assert self._reader is not None
        # Not awaited itself: whoever cancels this wait must not end the reading.
        await asyncio.wait({self._reader})
        self._drain()
        self._close_socket()
        return self._describe_exit(code)

    async def stop(self) -> None:
        """End the worker at once."""
        if self._running.returncode is None:
            self._running.kill()
        await self.wait()

    def _drain(self) -> None:
        while not self._socket.closed:
            try:
                data = self._socket.recv(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._on_message(self._decoder.decode(data))

    async def _read_stderr(self) -> None:
        stream = self._running.stderr
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

    def _close_socket(self) -> None:
        if not self._socket.closed:
            self._loop.remove_reader(self._descriptor)
            self._socket.close(linger=0)
        shutil.rmtree(self._folder, ignore_errors=True)
