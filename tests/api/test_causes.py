"""Waits that were made on purpose on a real server: who caused them is told.

How much of their time is charged to whom is tested to the millisecond in tests/client/test_causes.py.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.asking import ask, read, timings_of, user
from tests.support.raw import raw_post
from tests.support.server import LegatoProcess
from tests.support.streams import endless
from tests.support.waiting import wait_until

LONG = "All work and no play makes a dull day. " * 60
"""About 600 tokens: ten chunks."""
CAUSES = ("own_decode_ms", "others_decode_ms", "own_prefill_ms", "others_prefill_ms", "engine_ms", "delivery_ms")


@pytest.fixture(scope="module")
def by_chunks(model_path: Path) -> Iterator[LegatoProcess]:
    """A server whose steps read 64 tokens whatever they take, and whose gaps are stalls early."""
    options = ("--policy", "chunked", "--chunk", "64", "--gap-target-ms", "20", "--parallel", "8", "--ctx", "2048")
    with LegatoProcess("smollm2", *options) as process:
        process.wait_ready()
        yield process


def sum_of(parts: dict[str, Any]) -> float:
    return sum(parts[cause] for cause in CAUSES)


def record(server: LegatoProcess, request_id: str) -> dict[str, Any]:
    """An ended request; one whose client has just gone ends soon."""
    path = f"/api/requests/{request_id}"
    return wait_until(lambda: server.get(path).json().get("request"), f"{request_id} has ended")


def streamed(server: LegatoProcess, prompt: Any, tokens: int, **extra: Any) -> dict[str, Any]:
    """Stream an answer; its record."""
    options = {"max_tokens": tokens, "extra_body": {"ignore_eos": True, **extra}}
    return record(server, read(ask(server.openai(), "completions", prompt, stream=True, **options)).chunks[0].id)


def test_a_prompt_beside_a_running_answer_is_blamed_for_its_stalls(by_chunks: LegatoProcess) -> None:
    with endless(by_chunks.openai()) as chunks:
        chat_id = next(iter(chunks)).id
        prompt = streamed(by_chunks, LONG, 1)
    chat = record(by_chunks, chat_id)
    assert chat["end"] == "cancelled"
    blamed = [blame for stall in chat["stalls"] for blame in stall["parts"]["blamed"]]
    assert {blame["request"] for blame in blamed} == {prompt["id"]}
    assert "others_prefill" in {stall["cause"] for stall in chat["stalls"]}
    assert chat["timings"]["decode_parts"]["blamed"][0]["tokens"] <= prompt["prompt_tokens"]


def has_stopped(server: LegatoProcess) -> bool:
    """Whether the only answer gets no further."""
    before = server.get("/api/requests").json()["running"]
    time.sleep(1.5)
    after = server.get("/api/requests").json()["running"]
    assert after, "the answer went on to its end"
    return bool(before) and before[0]["answer_tokens"] == after[0]["answer_tokens"] > 0


def test_a_client_that_does_not_read_is_told_so(server: LegatoProcess) -> None:
    body = {"messages": user("Hi"), "max_tokens": 500, "ignore_eos": True, "logprobs": True, "top_logprobs": 20}
    with raw_post(server, "/v1/chat/completions", body | {"stream": True}, receive_buffer=4096) as connection:
        wait_until(lambda: has_stopped(server), "what the client does not read holds its answer up", timeout_s=60)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**20)
        data = b""
        while part := connection.recv(65536):
            data += part
            if b"[DONE]" in data:
                break
    first = data.split(b"data: ", 1)[1].split(b"\n\n", 1)[0]
    found = record(server, json.loads(first)["id"])
    stalls = [stall for stall in found["stalls"] if stall["gap_ms"] > 1000]
    assert stalls
    assert {stall["cause"] for stall in stalls} == {"delivery"}


def test_waiting_for_a_place_names_who_had_it(serve: Any) -> None:
    server = serve("smollm2", "--parallel", "1", "--ctx", "512")
    with endless(server.openai()) as chunks:
        first = next(iter(chunks)).id
        waiting: list[dict[str, Any]] = []
        thread = threading.Thread(target=lambda: waiting.append(streamed(server, [42], 1)))
        thread.start()
        while server.get("/api/status").json()["waiting"] == 0:
            time.sleep(0.05)
        (live,) = [live for live in server.get("/api/requests").json()["running"] if live["phase"] == "queue"]
        assert live["ahead"] == 0
    thread.join(timeout=30)
    assert waiting[0]["behind"] == [first]
    assert waiting[0]["timings"]["queue_ms"] > 0


def test_parts_and_gaps_add_up_in_the_answer_too(server: LegatoProcess) -> None:
    last = read(ask(server.openai(), "chat", stream=True, max_tokens=20)).chunks[-1]
    timings = timings_of(last)
    assert timings is not None
    assert sum_of(timings["prefill_parts"]) == pytest.approx(timings["prefill_ms"], abs=0.01)
    tokens = timings["decode_tokens"]
    seconds = (tokens - 1) / timings["decode_tokens_per_second"]
    assert sum_of(timings["decode_parts"]) == pytest.approx(seconds * 1000, rel=0.01)
    assert timings["stalled_ms"] >= 100 * timings["stalls"]
