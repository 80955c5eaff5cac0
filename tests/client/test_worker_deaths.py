"""Workers die; the server goes on. What follows on which death is in test_supervisor.py and test_dispatcher.py."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import openai
import psutil
import pytest

from tests.support.asking import ANSWER, MODEL, QUESTION, timings_of, user
from tests.support.errors import error_of, is_sentence
from tests.support.server import LegatoProcess
from tests.support.waiting import wait_until

SMALL = ("--ctx", "1024")


# One kill, in the middle of three running answers while two more wait


@dataclass
class Kill:
    """What became of everybody when the worker was killed."""

    streams: list[Exception | None] = field(default_factory=list)
    plain: Exception | None = None
    order: list[str] = field(default_factory=list)
    """Who ended when: the answers, and the time without a worker."""
    queued_stream: str = ""
    queued_plain: Any = None
    healths: list[dict[str, Any]] = field(default_factory=list)
    refusals: list[httpx.Response] = field(default_factory=list)
    old_worker: int = 0
    new_worker: int = 0


async def play(server: LegatoProcess) -> Kill:
    kill = Kill(old_worker=server.worker().pid)
    endless: dict[str, Any] = {"model": MODEL, "max_tokens": 100_000, "extra_body": {"ignore_eos": True}}
    async with (
        server.async_openai() as client,
        httpx.AsyncClient(base_url=server.url, timeout=60, verify=False) as http,
    ):
        plain = asyncio.create_task(client.chat.completions.create(messages=user("Tell me a story."), **endless))
        streams = [
            await client.chat.completions.create(messages=user("Tell me a story."), stream=True, **endless),
            await client.completions.create(prompt="Once upon a time", stream=True, **endless),
        ]
        for stream in streams:
            await anext(stream)
            await anext(stream)
        # The three sequences are taken: these two wait.
        queued_stream = await client.chat.completions.create(
            model=MODEL, messages=user(QUESTION), temperature=0, stream=True
        )
        await anext(queued_stream)
        queued_plain = asyncio.create_task(
            client.chat.completions.create(model=MODEL, messages=user(QUESTION), temperature=0)
        )
        await asyncio.to_thread(wait_until, lambda: server.get("/api/status").json()["waiting"] == 2, "both wait")

        server.worker().kill()

        async def ending(awaitable: Any) -> Exception | None:
            try:
                await awaitable
            except openai.APIError as error:
                kill.order.append("answer")
                return error
            return None

        async def read(stream: Any) -> None:
            async for _ in stream:
                pass

        async def look() -> None:
            # The first answers may have been given before the death was noticed.
            while {body["status"] for body in kill.healths} < {"loading", "ok"} or kill.healths[-1]["status"] != "ok":
                kill.healths.append((await http.get("/health")).json())
                if kill.healths[-1]["status"] == "loading":
                    kill.refusals.append(await http.post("/v1/completions", json={"prompt": "Hi", "max_tokens": 1}))
                await asyncio.sleep(0.01)
            kill.order.append("ready")

        *kill.streams, kill.plain, _ = await asyncio.gather(
            *(ending(read(stream)) for stream in streams), ending(plain), asyncio.wait_for(look(), 60)
        )
        kill.queued_stream = "".join([chunk.choices[0].delta.content or "" async for chunk in queued_stream])
        kill.queued_plain = await queued_plain
    kill.new_worker = server.worker().pid
    return kill


@pytest.fixture(scope="module")
def mortal(model_path: Path) -> Iterator[LegatoProcess]:
    """A server whose worker is killed by the tests below, in their order."""
    with LegatoProcess("smollm2", "--parallel", "3", *SMALL) as process:
        process.wait_ready()
        yield process


@pytest.fixture(scope="module")
def kill(mortal: LegatoProcess) -> Kill:
    return asyncio.run(asyncio.wait_for(play(mortal), 120))


def test_running_streams_end_with_an_error_event(kill: Kill) -> None:
    assert len(kill.streams) == 2
    for error in kill.streams:
        assert type(error) is openai.APIError
        assert "SIGKILL" in error.message
        assert is_sentence(error.message)
        assert error.code == "engine_failed"
        assert error.type == "server_error"


def test_running_plain_requests_are_answered_with_500(kill: Kill) -> None:
    assert isinstance(kill.plain, openai.InternalServerError)
    assert kill.plain.status_code == 500
    assert "SIGKILL" in str(kill.plain)
    assert kill.plain.code == "engine_failed"


def test_all_of_them_know_before_there_is_another_worker(kill: Kill) -> None:
    assert kill.order == ["answer", "answer", "answer", "ready"]


def test_requests_that_were_only_queued_are_answered_by_the_next_worker(kill: Kill) -> None:
    assert kill.queued_stream == ANSWER
    assert kill.queued_plain.choices[0].message.content == ANSWER
    assert timings_of(kill.queued_plain)["load_ms"] > 0


def test_health_says_loading_and_then_ok(kill: Kill) -> None:
    statuses = [body["status"] for body in kill.healths]
    assert statuses[-1] == "ok"
    changes = [status for i, status in enumerate(statuses) if i == 0 or status != statuses[i - 1]]
    assert changes in (["loading", "ok"], ["ok", "loading", "ok"])
    assert any("SIGKILL" in body.get("reason", "") for body in kill.healths)


def test_in_between_new_requests_are_told_to_come_back(kill: Kill) -> None:
    refused = [reply for reply in kill.refusals if reply.status_code != 200]
    assert refused
    for reply in refused:
        assert reply.status_code == 503
        assert error_of(reply)["code"] == "model_loading"
        assert int(reply.headers["retry-after"]) >= 1


def test_there_is_one_new_worker(kill: Kill, mortal: LegatoProcess) -> None:
    assert kill.new_worker != kill.old_worker
    assert not psutil.pid_exists(kill.old_worker)
    assert len(mortal.descendants()) == 1


# Models that cannot be loaded


@pytest.fixture(scope="module")
def unknown_architecture(model_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A well-formed file of an architecture that the library has never heard of."""
    path = tmp_path_factory.mktemp("models") / "odd.gguf"
    shutil.copyfile(model_path, path)
    key, kind = b"general.architecture", (8).to_bytes(4, "little")
    before = key + kind + (5).to_bytes(8, "little")
    with path.open("r+b") as file:
        place = file.read(1 << 20).index(before + b"llama") + len(before)
        file.seek(place)
        file.write(b"lyrca")
    return path


@pytest.fixture(scope="module")
def failed(unknown_architecture: Path) -> Iterator[LegatoProcess]:
    with LegatoProcess(str(unknown_architecture)) as process:
        process.wait_for("failed")
        yield process


def test_a_model_that_the_library_refuses_is_reported_with_its_reason(failed: LegatoProcess) -> None:
    status, body = failed.health()
    assert status == 503
    assert "unknown model architecture: 'lyrca'" in body["reason"]
    assert "lyrca" in failed.output()
    assert "Traceback" not in failed.output()


def test_its_requests_are_refused_for_good(failed: LegatoProcess) -> None:
    reply = failed.post("/v1/completions", {"prompt": "Hi"})
    assert reply.status_code == 503
    error = error_of(reply)
    assert error["code"] == "model_failed"
    assert "lyrca" in error["message"]
    assert "retry-after" not in reply.headers


def test_its_worker_is_gone(failed: LegatoProcess) -> None:
    wait_until(lambda: not failed.workers(), "the worker has ended")
    assert failed.health()[1]["status"] == "failed"


def test_its_server_still_stops_when_told_to(failed: LegatoProcess) -> None:
    failed.terminate()
    assert failed.wait_ended(timeout_s=10) in (0, -15)


# The server dies


@pytest.mark.parametrize("when", ["while idle", "in the middle of an answer", "while loading"])
def test_a_worker_does_not_outlive_its_server(serve, when: str) -> None:
    process = serve("smollm2", *SMALL, ready=when != "while loading")
    workers = wait_until(process.workers, "there is a worker")
    if when == "in the middle of an answer":
        options: dict[str, Any] = {"max_tokens": 100_000, "stream": True, "extra_body": {"ignore_eos": True}}
        stream = process.openai().completions.create(model=MODEL, prompt="Once upon a time", **options)
        next(iter(stream))
    process.process.kill()
    process.process.wait()
    _, alive = psutil.wait_procs(workers, timeout=10)
    assert not alive
