"""Workers that are real processes, with no model to load."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from legato.client.clock import on_server_clock
from legato.client.process import ProcessTransport
from legato.client.transport import WorkerLink
from legato.wire.messages import EngineSettings, FromWorker, LoadFailed, Report

Script = Callable[[WorkerLink, list[FromWorker]], Awaitable[None]]


@pytest.fixture
def play(tmp_path: Path) -> Callable[[Script], None]:
    """Run a script with a worker whose model is missing, and what it says."""

    async def run(script: Script) -> None:
        said: list[FromWorker] = []
        worker = await ProcessTransport().start(EngineSettings(str(tmp_path / "missing.gguf")), said.append)
        assert said == []
        try:
            await script(worker, said)
        finally:
            await worker.stop()

    return lambda script: asyncio.run(asyncio.wait_for(run(script), 60))


def test_what_a_worker_said_has_come_when_its_end_is_told(play: Callable[[Script], None]) -> None:
    async def script(worker: WorkerLink, said: list[FromWorker]) -> None:
        assert await worker.wait() == "the engine worker ended with exit code 1"
        (message,) = said
        assert isinstance(message, LoadFailed)
        assert "missing.gguf" in message.reason

    play(script)


def test_a_killed_worker_s_signal_is_told(play: Callable[[Script], None]) -> None:
    async def script(worker: WorkerLink, said: list[FromWorker]) -> None:
        assert worker.pid is not None
        os.kill(worker.pid, signal.SIGKILL)
        assert await worker.wait() == "the engine worker was ended by SIGKILL"
        await worker.stop()
        assert said == []

    play(script)


def test_a_worker_that_is_stopped_ends(play: Callable[[Script], None]) -> None:
    async def script(worker: WorkerLink, _said: list[FromWorker]) -> None:
        await worker.stop()
        assert worker.pid is not None
        with pytest.raises(ProcessLookupError):
            os.kill(worker.pid, 0)

    play(script)


def test_it_goes_by_the_server_s_clock(play: Callable[[Script], None]) -> None:
    async def script(worker: WorkerLink, _said: list[FromWorker]) -> None:
        report = Report(1.0)
        assert worker.role == "whole"
        assert on_server_clock(report, worker.clock.offset_s) is report

    play(script)
