"""Settings over HTTP: who may change them, and to what. The engine's side is in tests/runtime."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from tests.server.models import make_app

PATH = "/api/settings"


def call(app: FastAPI, method: str = "PATCH", key: str | None = None, **request: Any) -> httpx.Response:
    async def send() -> httpx.Response:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1:8383") as client:
            return await client.request(method, PATH, headers=headers, **request)

    return asyncio.run(send())


def changeable(response: httpx.Response) -> tuple[Any, ...]:
    assert response.status_code == 200, response.text
    body = response.json()
    return body["policy"], body["chunk"], body["gap_target_ms"]


def error(response: httpx.Response) -> dict[str, Any]:
    found: dict[str, Any] = response.json()["error"]
    assert found["message"].endswith(".")
    return found


def test_what_is_set_is_shown() -> None:
    app = make_app(policy="chunked", chunk=32, gap_target_ms=70, batch=64, kv_type_k="q8_0", background_wait=5)
    response = call(app, "GET")
    assert changeable(response) == ("chunked", 32, 70)
    fixed = response.json()["fixed"]
    assert (fixed["batch"], fixed["kv_type_k"], fixed["kv_type_v"]) == (64, "q8_0", "f16")
    assert (fixed["joined_calls"], fixed["background_wait_s"]) == (False, 5)
    # The worker's choice, which is not known before the model is loaded.
    names = ("flash_attention", "threads", "threads_prefill", "parallel", "context_tokens")
    assert [fixed[name] for name in names] == [None] * 5


def test_what_is_left_out_stays() -> None:
    app = make_app(chunk=32)
    assert changeable(call(app, json={})) == ("adaptive", 32, 100)
    assert changeable(call(app, json={"policy": "whole"})) == ("whole", 32, 100)
    assert changeable(call(app, json={"gap_target_ms": 45.5})) == ("whole", 32, 45.5)
    assert changeable(call(app, json={"chunk": 128, "policy": "chunked"})) == ("chunked", 128, 45.5)
    assert changeable(call(app, json={"chunk": None})) == ("chunked", None, 45.5)
    assert changeable(call(app, "GET")) == ("chunked", None, 45.5)


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({"policy": "fast"}, "policy", "invalid_value"),
        ({"policy": None}, "policy", "invalid_value"),
        ({"chunk": 0}, "chunk", "invalid_value"),
        ({"chunk": 8193}, "chunk", "invalid_value"),
        ({"chunk": "64"}, "chunk", "invalid_value"),
        ({"chunk": 1.5}, "chunk", "invalid_value"),
        ({"chunk": True}, "chunk", "invalid_value"),
        ({"gap_target_ms": 0}, "gap_target_ms", "invalid_value"),
        ({"gap_target_ms": 60_001}, "gap_target_ms", "invalid_value"),
        ({"gap_target_ms": None}, "gap_target_ms", "invalid_value"),
        ({"gap_target_ms": "50"}, "gap_target_ms", "invalid_value"),
        ({"threads": 4}, "threads", "unknown_parameter"),
        ({"policy": "whole", "polcy": "whole"}, "polcy", "unknown_parameter"),
        ([], None, None),
        ("whole", None, None),
    ],
)
def test_what_is_wrong_is_refused_and_changes_nothing(body: Any, param: str | None, code: str | None) -> None:
    app = make_app()
    before = changeable(call(app, "GET"))
    response = call(app, json=body)
    assert response.status_code == 400
    found = error(response)
    assert (found["param"], found["code"]) == (param, code)
    assert changeable(call(app, "GET")) == before


@pytest.mark.parametrize("text", ["", "{", "NaN", '{"gap_target_ms": NaN}'])
def test_what_is_no_json_is_refused(text: str) -> None:
    app = make_app()

    async def send() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1:8383") as client:
            return await client.patch(PATH, content=text, headers={"content-type": "application/json"})

    response = asyncio.run(send())
    assert response.status_code == 400
    assert error(response)["message"]


def test_admins_alone_may_change_what_every_key_may_see() -> None:
    app = make_app(api_keys=("ana=1", "ben=2", "3"), admins=("ana",))
    assert changeable(call(app, key="1", json={"policy": "whole"})) == ("whole", None, 100)
    for key in ("2", "3"):
        response = call(app, key=key, json={"policy": "chunked"})
        assert (response.status_code, error(response)["code"]) == (403, "not_admin")
        assert "--admin NAME" in error(response)["message"]
        assert changeable(call(app, "GET", key=key)) == ("whole", None, 100)
    assert call(app, json={"policy": "chunked"}).status_code == 401


def test_nobody_may_over_the_network_without_a_key() -> None:
    app = make_app(host="0.0.0.0", no_auth=True)
    response = call(app, json={"policy": "whole"})
    assert (response.status_code, error(response)["code"]) == (403, "not_admin")
    assert changeable(call(app, "GET")) == ("adaptive", None, 100)


def test_what_may_be_remembered_is_changed_and_given_to_every_later_worker() -> None:
    app = make_app(cache_memory_mib=100, cache_disk_mib=200)
    body = call(app, "GET").json()
    assert (body["cache_memory_mib"], body["cache_disk_mib"]) == (100, 200)
    body = call(app, json={"cache_memory_mib": 0.5}).json()
    assert (body["cache_memory_mib"], body["cache_disk_mib"]) == (0.5, 200)
    assert app.state.service.engine.settings.cache_memory_bytes == 2**19


@pytest.mark.parametrize("value", [-1, "5", True, None, 1e300])
def test_a_budget_that_is_none_is_refused(value: Any) -> None:
    app = make_app(cache_memory_mib=100)
    found = error(call(app, json={"cache_memory_mib": value}))
    assert found["param"] == "cache_memory_mib"
    assert call(app, "GET").json()["cache_memory_mib"] == 100


def test_where_nothing_is_remembered_there_is_no_budget_to_change() -> None:
    found = error(call(make_app(cache_scope="off"), json={"cache_disk_mib": 5}))
    assert "--cache-scope" in found["message"]
