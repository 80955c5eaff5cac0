"""Settings that are changed while the server answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.test_telemetry import metric
from tests.support.asking import ask
from tests.support.errors import error_of, is_sentence
from tests.support.server import LegatoProcess
from tests.support.streams import endless


@pytest.fixture(scope="module")
def home(model_path: Path) -> Iterator[LegatoProcess]:
    """A server without keys, for this machine."""
    with LegatoProcess("smollm2", "--parallel", "2", "--ctx", "1024") as process:
        process.wait_ready()
        yield process


def change(server: LegatoProcess, body: Any, **headers: str) -> httpx.Response:
    return httpx.patch(f"{server.url}/api/settings", json=body, headers=headers, timeout=30, verify=False)


def test_what_explains_the_pace_is_shown(home: LegatoProcess) -> None:
    body = home.get("/api/settings").json()
    assert set(body) == {"policy", "chunk", "gap_target_ms", "cache_memory_mib", "cache_disk_mib", "fixed"}
    fixed = body["fixed"]
    assert (fixed["parallel"], fixed["context_tokens"]) == (2, 1024)
    assert fixed["flash_attention"] in ("on", "off", "auto")
    assert fixed["threads"] >= 1
    assert fixed["batch"] >= 32
    assert fixed["kv_type_k"]


@pytest.mark.parametrize("policy", ["whole", "chunked", "adaptive"])
def test_a_running_answer_goes_on_under_another_policy(home: LegatoProcess, policy: str) -> None:
    with endless(home.openai()) as chunks:
        reply = change(home, {"policy": policy, "chunk": 32, "gap_target_ms": 80})
        assert reply.status_code == 200, reply.text
        assert (reply.json()["policy"], reply.json()["chunk"], reply.json()["gap_target_ms"]) == (policy, 32, 80)
        # Beside it a prompt is read as the new policy has it.
        assert ask(home.openai(), "completions", [42] * 100, max_tokens=1).usage.prompt_tokens == 100
        assert next(iter(chunks)).choices
    status = home.get("/api/status").json()
    assert (status["policy"], status["gap_target_ms"]) == (policy, 80)
    assert metric(home, f'legato_policy_info{{policy="{policy}"}}') == 1
    assert metric(home, "legato_gap_target_seconds") == 0.08
    assert home.still_answers()


def test_a_new_gap_target_is_that_of_answers_that_ask_for_none(home: LegatoProcess) -> None:
    assert change(home, {"gap_target_ms": 70}).status_code == 200
    timings = [
        ask(home.openai(), "completions", [42], max_tokens=1, extra_body=extra).model_extra["timings"]
        for extra in ({}, {"gap_target_ms": 30})
    ]
    assert [each["gap_target_ms"] for each in timings] == [70, 30]


def test_the_steps_show_another_policy(home: LegatoProcess) -> None:
    """With 16 tokens a step, whatever they take."""
    assert change(home, {"policy": "chunked", "chunk": 16}).status_code == 200
    answer = ask(home.openai(), "completions", [43] * 64, max_tokens=1)
    chunks = home.get(f"/api/requests/{answer.id}").json()["request"]["chunks"]
    assert [chunk["tokens"] for chunk in chunks] == [16] * 4


def test_a_change_outlives_the_worker(home: LegatoProcess) -> None:
    assert change(home, {"policy": "chunked", "chunk": 16, "gap_target_ms": 60}).status_code == 200
    worker = home.worker()
    worker.kill()
    worker.wait(30)
    home.wait_for("loading")
    home.wait_ready()
    answer = ask(home.openai(), "completions", [44] * 64, max_tokens=1)
    record = home.get(f"/api/requests/{answer.id}").json()["request"]
    assert [chunk["tokens"] for chunk in record["chunks"]] == [16] * 4
    assert record["timings"]["gap_target_ms"] == 60


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"policy": "fast"}, "policy"),
        ({"chunk": 0}, "chunk"),
        ({"gap_target_ms": 0}, "gap_target_ms"),
        ({"batch": 64}, "batch"),
    ],
)
def test_what_is_wrong_is_refused(home: LegatoProcess, body: dict[str, Any], param: str) -> None:
    before = home.get("/api/settings").json()
    reply = change(home, body)
    assert reply.status_code == 400
    error = error_of(reply)
    assert error["param"] == param
    assert param in error["message"]
    assert home.get("/api/settings").json() == before


# Whose requests are what


@pytest.fixture(scope="module")
def shared(model_path: Path) -> Iterator[LegatoProcess]:
    """A server whose keys are of every class."""
    options = (
        *("--api-key", "ana=1", "--api-key", "ben=2", "--api-key", "cai=3"),
        *("--admin", "ana", "--background-client", "ben", "--gap-target", "cai=55"),
    )
    with LegatoProcess("smollm2", "--parallel", "2", "--ctx", "256", *options) as process:
        process.wait_ready()
        yield process


def test_admins_alone_change_settings(shared: LegatoProcess) -> None:
    assert change(shared, {"gap_target_ms": 90}, authorization="Bearer 1").json()["gap_target_ms"] == 90
    for key in ("2", "3"):
        reply = change(shared, {"gap_target_ms": 80}, authorization=f"Bearer {key}")
        assert reply.status_code == 403
        error = error_of(reply)
        assert error["code"] == "not_admin"
        assert "--admin NAME" in error["message"]
        assert is_sentence(error["message"])
    assert change(shared, {"gap_target_ms": 80}).status_code == 401


def test_a_background_clients_requests_are_flex(shared: LegatoProcess) -> None:
    answer = ask(shared.openai(api_key="2"), "chat", max_tokens=1, service_tier="default")
    assert answer.service_tier == "flex"
    assert ask(shared.openai(api_key="1"), "chat", max_tokens=1).service_tier == "default"


def test_a_key_has_its_gap_target(shared: LegatoProcess) -> None:
    assert change(shared, {"gap_target_ms": 90}, authorization="Bearer 1").status_code == 200
    for key, extra, target in (("3", {}, 55), ("3", {"gap_target_ms": 20}, 20), ("1", {}, 90)):
        answer = ask(shared.openai(api_key=key), "completions", [42], max_tokens=1, extra_body=extra)
        assert answer.model_extra["timings"]["gap_target_ms"] == target
