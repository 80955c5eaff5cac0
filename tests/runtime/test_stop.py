"""Stopping: running answers get their grace, everybody gets a last event, and no process is left."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai
import psutil
import pytest

from tests.support.asking import MODEL, user
from tests.support.errors import is_sentence
from tests.support.server import LegatoProcess
from tests.support.streams import endless
from tests.support.waiting import wait_until

SMALL = ("--parallel", "3", "--ctx", "4096")
TOKENS = 120
SOON_S = 10.0
ENDS = {signal.SIGTERM: (0, -signal.SIGTERM), signal.SIGINT: (0, -signal.SIGINT, 130)}
"""Exit codes that say: stopped as asked."""

Stop = Callable[[LegatoProcess], None]
SIGNALS = pytest.mark.parametrize(
    ("stop", "number"),
    [(LegatoProcess.terminate, signal.SIGTERM), (LegatoProcess.interrupt, signal.SIGINT)],
    ids=["SIGTERM", "Ctrl-C"],
)


@dataclass
class Ending:
    """What became of a stream and of a plain request that ran when the server was told to stop."""

    stream: list[Any]
    error: openai.APIError | None
    plain: Any
    refused: bool


async def stop_while_answering(server: LegatoProcess, stop: Stop, tokens: int) -> Ending:
    options: dict[str, Any] = {"model": MODEL, "max_tokens": tokens, "extra_body": {"ignore_eos": True}}
    async with server.async_openai() as client:
        plain = asyncio.create_task(client.chat.completions.create(messages=user("Tell me a story."), **options))
        stream = await client.completions.create(prompt="Once upon a time", stream=True, **options)
        chunks = [await anext(stream)]
        stop(server)
        refused = await asyncio.to_thread(wait_until, lambda: is_refused(server), "new connections are refused")
        error = None
        try:
            chunks += [chunk async for chunk in stream]
        except openai.APIError as caught:
            error = caught
        (answer,) = await asyncio.gather(plain, return_exceptions=True)
    return Ending(chunks, error, answer, refused)


def is_refused(server: LegatoProcess) -> bool:
    try:
        httpx.get(f"{server.url}/health", timeout=5, verify=False)
    except httpx.ConnectError:
        return True
    except httpx.TransportError:
        # It was let in just before the door was shut.
        return False
    return False


def assert_all_gone(processes: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(processes, timeout=5)
    assert not alive


@SIGNALS
def test_running_answers_finish_in_their_grace(serve, stop: Stop, number: signal.Signals, tmp_path: Path) -> None:
    server = serve("smollm2", *SMALL, "--grace", "30", environment={"TMPDIR": str(tmp_path)})
    processes = server.descendants()
    ending = asyncio.run(asyncio.wait_for(stop_while_answering(server, stop, TOKENS), 60))
    assert ending.refused
    assert ending.error is None
    assert ending.stream[-1].choices[0].finish_reason == "length"
    assert ending.stream[-1].model_extra["timings"]["decode_tokens"] == TOKENS
    assert ending.plain.usage.completion_tokens == TOKENS
    assert server.wait_ended(timeout_s=SOON_S) in ENDS[number]
    assert_all_gone(processes)
    assert "Traceback" not in server.output()
    assert not list(tmp_path.iterdir()), "nothing is left behind"


@SIGNALS
def test_after_its_grace_an_answer_ends_with_an_error(serve, stop: Stop, number: signal.Signals) -> None:
    server = serve("smollm2", *SMALL, "--grace", "0.5")
    processes = server.descendants()
    ending = asyncio.run(asyncio.wait_for(stop_while_answering(server, stop, 100_000), 60))
    assert type(ending.error) is openai.APIError
    assert "stopping" in ending.error.message
    assert is_sentence(ending.error.message)
    assert isinstance(ending.plain, openai.InternalServerError)
    assert "stopping" in str(ending.plain)
    assert server.wait_ended(timeout_s=SOON_S) in ENDS[number]
    assert_all_gone(processes)
    assert "Traceback" not in server.output()


@SIGNALS
def test_a_second_signal_ends_it_at_once(serve, stop: Stop, number: signal.Signals, tmp_path: Path) -> None:
    server = serve("smollm2", *SMALL, "--grace", "30", environment={"TMPDIR": str(tmp_path)})
    processes = server.descendants()
    with endless(server.openai()):
        stop(server)
        wait_until(lambda: is_refused(server), "new connections are refused")
        assert server.process.poll() is None, "it waits for the answer"
        stop(server)
        assert server.wait_ended(timeout_s=SOON_S) in ENDS[number]
    assert_all_gone(processes)
    assert "Traceback" not in server.output()
    assert not list(tmp_path.iterdir()), "nothing is left behind"


def test_an_idle_server_ends_at_once(serve) -> None:
    server = serve("smollm2", "--parallel", "1", "--ctx", "256", "--grace", "30")
    processes = server.descendants()
    # A connection that is kept open for more requests is no reason to wait.
    with httpx.Client(base_url=server.url, verify=False) as client:
        client.get("/health")
        server.terminate()
        assert server.wait_ended(timeout_s=SOON_S) in ENDS[signal.SIGTERM]
    assert_all_gone(processes)


def test_a_server_ends_while_its_model_is_loading(serve) -> None:
    server = serve("smollm2", "--parallel", "1", "--ctx", "256", ready=False)
    processes = wait_until(server.workers, "a worker is there")
    server.terminate()
    assert server.wait_ended(timeout_s=SOON_S) in ENDS[signal.SIGTERM]
    assert_all_gone(processes)
    assert "Traceback" not in server.output()


def test_grace_zero_ends_answers_at_once(serve) -> None:
    server = serve("smollm2", *SMALL, "--grace", "0")
    with endless(server.openai()) as stream:
        server.terminate()
        with pytest.raises(openai.APIError, match="stopping"):
            list(stream)
    assert server.wait_ended(timeout_s=SOON_S) in ENDS[signal.SIGTERM]
