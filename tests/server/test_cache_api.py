"""What is remembered, over HTTP: who may see and change what. The engine's side is in tests/runtime."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import httpx
import msgspec
import pytest
from fastapi import FastAPI

from legato.client.client import EngineClient
from legato.client.status import Ready
from legato.core.cache import CacheEntry, CacheFigures
from legato.wire.messages import CacheCommand, CacheReply
from tests.server.models import COSTS, make_app, model_info

PATH = "/api/cache"
BOTH = CacheEntry("abc111", "", 1000, 5000, 3, 60.5, ["disk", "memory"], pinned=False)
ANAS = CacheEntry("abd222", "ana", 400, 2000, 0, 5.0, ["memory"], pinned=True)
BENS = CacheEntry("fff333", "ben", 300, 1500, 1, 900.0, ["disk"], pinned=False)
PARKED = CacheEntry("", "", 50, 0, 0, 1.23456, ["live"], pinned=False)
ALL = (PARKED, BOTH, ANAS, BENS)


class FakeWorker:
    """Has no model, and does with what it remembers as it is told."""

    pid = 1

    def __init__(self, engine: EngineClient, entries: Sequence[CacheEntry]) -> None:
        self.entries = list(entries)
        self.asked: list[tuple[str, str | None]] = []
        self.gives_up: str | None = None
        """An entry that goes by itself after it was listed."""
        self._engine = engine

    def send(self, command: CacheCommand) -> None:
        self.asked.append((command.action, command.entry))
        found = [e for e in self.entries if command.entry is None or (e.id and e.id.startswith(command.entry))]
        is_found = command.entry is None or len(found) == 1
        if is_found and command.action == "remove":
            self.entries = [e for e in self.entries if e not in found]
        if is_found and command.action in ("pin", "unpin"):
            pinned = command.action == "pin"
            self.entries = [msgspec.structs.replace(e, pinned=pinned) if e in found else e for e in self.entries]
        self._engine.cache.take(CacheReply(command.number, is_found, list(self.entries), self._state()))
        self.entries = [e for e in self.entries if e.id != self.gives_up]

    def _state(self) -> CacheFigures:
        there = {place: [e for e in self.entries if place in e.places] for place in ("live", "memory", "disk")}
        return CacheFigures(
            parked_tokens=sum(e.tokens for e in there["live"]),
            memory_bytes=sum(e.bytes for e in there["memory"]),
            memory_budget=10_000,
            memory_entries=len(there["memory"]),
            disk_bytes=sum(e.bytes for e in there["disk"]),
            disk_budget=20_000,
            disk_entries=len(there["disk"]),
        )


def remembering(entries: Sequence[CacheEntry] = ALL, **settings: Any) -> tuple[FastAPI, FakeWorker]:
    """A server that seems to be ready, and its worker."""
    app = make_app(**settings)
    engine = app.state.service.engine
    engine.supervisor.link = worker = FakeWorker(engine, entries)
    engine.supervisor.status = Ready(model_info(COSTS), 1.0)
    return app, worker


def call(app: FastAPI, method: str = "GET", path: str = "", key: str | None = None) -> httpx.Response:
    async def send() -> httpx.Response:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        # As many clients do it.
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://127.0.0.1:8383", follow_redirects=True
        ) as client:
            return await client.request(method, PATH + path, headers=headers)

    return asyncio.run(send())


def ids(response: httpx.Response) -> list[str]:
    assert response.status_code == 200, response.text
    return [entry["id"] for entry in response.json()["entries"]]


def refusal(response: httpx.Response) -> tuple[int, str | None]:
    found = response.json()["error"]
    assert found["message"].endswith(".")
    return response.status_code, found["code"]


# What is shown


def test_the_tiers_and_the_entries_used_last_first() -> None:
    app, worker = remembering()
    body = call(app).json()
    assert body["scope"] == "server"
    assert body["tiers"] == {
        "live": {"entries": 1, "tokens": 50},
        "memory": {"entries": 2, "tokens": 1400, "bytes": 7000, "budget_bytes": 10_000},
        "disk": {"entries": 2, "tokens": 1300, "bytes": 6500, "budget_bytes": 20_000},
    }
    assert [entry["id"] for entry in body["entries"]] == ["", "abd222", "abc111", "fff333"]
    assert body["entries"][0] == {
        "id": "",
        "scope": "",
        "tokens": 50,
        "bytes": 0,
        "hits": 0,
        "unused_s": 1.235,
        "places": ["live"],
        "pinned": False,
    }
    assert worker.asked == [("list", None)]


def test_nothing_remembered() -> None:
    body = call(remembering([], cache_scope="off")[0]).json()
    assert (body["scope"], body["entries"]) == ("off", [])
    assert [tier["entries"] for tier in body["tiers"].values()] == [0, 0, 0]


@pytest.mark.parametrize(
    ("scope", "key", "expected"),
    [
        ("server", "admin", ["", "abd222", "abc111", "fff333"]),
        ("key", "admin", ["", "abd222", "abc111", "fff333"]),
        ("server", "a", ["", "abd222", "abc111"]),
        ("server", "b", ["", "abc111", "fff333"]),
        ("server", "unnamed", ["", "abc111"]),
        # With a scope of its own, a named key begins with nobody else's, and keys without a name share one.
        ("key", "a", ["abd222"]),
        ("key", "b", ["fff333"]),
        ("key", "unnamed", ["", "abc111"]),
    ],
)
def test_a_key_sees_what_its_requests_may_begin_with(scope: str, key: str, expected: list[str]) -> None:
    keys = ("root=admin", "ana=a", "ben=b", "unnamed")
    app, _ = remembering(api_keys=keys, admins=("root",), cache_scope=scope)
    response = call(app, key=key)
    assert ids(response) == expected
    assert response.json()["tiers"]["disk"]["entries"] == 2


def test_without_keys_everybody_sees_all() -> None:
    assert len(ids(call(remembering(host="0.0.0.0", no_auth=True)[0]))) == len(ALL)


# What is changed


def test_clearing_forgets_all_and_says_what_that_freed() -> None:
    app, worker = remembering()
    response = call(app, "DELETE")
    assert response.json() == {"freed": {"entries": 4, "tokens": 1750, "bytes": 2 * 5000 + 2000 + 1500}}
    assert worker.entries == []
    assert call(app, "DELETE").json() == {"freed": {"entries": 0, "tokens": 0, "bytes": 0}}


@pytest.mark.parametrize("beginning", ["abc111", "abc", "f"])
def test_one_entry_is_forgotten_by_the_beginning_of_its_id(beginning: str) -> None:
    app, worker = remembering()
    gone = BENS if beginning == "f" else BOTH
    freed = call(app, "DELETE", f"/{beginning}").json()["freed"]
    assert freed == {"entries": 1, "tokens": gone.tokens, "bytes": gone.bytes * len(gone.places)}
    assert worker.entries == [entry for entry in ALL if entry is not gone]


def test_an_entry_is_pinned_and_let_go_again() -> None:
    app, worker = remembering()
    for method, pinned in (("PUT", True), ("PUT", True), ("DELETE", False), ("DELETE", False)):
        body = call(app, method, "/abc/pin").json()
        assert (body["id"], body["pinned"], body["tokens"]) == ("abc111", pinned, 1000)
        assert [entry.pinned for entry in worker.entries] == [False, pinned, True, False]


# What is refused


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/abx", "cache_entry_not_found"),
        ("/abc111x", "cache_entry_not_found"),
        ("/%20", "cache_entry_not_found"),
        ("/%2E", "cache_entry_not_found"),
        ("/ab", "cache_entry_ambiguous"),
    ],
)
def test_what_is_not_one_entry_is_not_found(path: str, code: str) -> None:
    app, worker = remembering()
    for method, end in (("DELETE", ""), ("PUT", "/pin"), ("DELETE", "/pin")):
        assert refusal(call(app, method, path + end)) == (404, code)
    assert worker.entries == list(ALL)


@pytest.mark.parametrize("entries", [ALL, [BOTH], [PARKED]])
@pytest.mark.parametrize("path", ["/", "//", "//pin", "/abc/"])
def test_an_id_that_is_missing_never_clears_anything(path: str, entries: Sequence[CacheEntry]) -> None:
    app, worker = remembering(entries)
    assert refusal(call(app, "DELETE", path))[0] == 404
    assert worker.entries == list(entries)


def test_an_entry_that_went_meanwhile_is_not_found() -> None:
    app, worker = remembering()
    worker.gives_up = "abc111"
    assert refusal(call(app, "PUT", "/abc111/pin")) == (404, "cache_entry_not_found")
    assert [action for action, _ in worker.asked] == ["list", "pin"]


CHANGES = [("DELETE", ""), ("DELETE", "/abc111"), ("PUT", "/abc111/pin"), ("DELETE", "/abd222/pin")]


@pytest.mark.parametrize(("method", "path"), CHANGES)
def test_admins_alone_may_change_it(method: str, path: str) -> None:
    app, worker = remembering(api_keys=("root=admin", "abd=a", "b"), admins=("root",))
    for key in ("a", "b"):
        assert refusal(call(app, method, path, key)) == (403, "not_admin")
    assert call(app, method, path).status_code == 401
    assert worker.asked == []
    assert call(app, method, path, "admin").status_code == 200
    assert worker.entries != list(ALL)


@pytest.mark.parametrize(("method", "path"), CHANGES)
def test_nobody_may_over_the_network_without_a_key(method: str, path: str) -> None:
    app, worker = remembering(host="0.0.0.0", no_auth=True)
    assert refusal(call(app, method, path)) == (403, "not_admin")
    assert worker.asked == []


@pytest.mark.parametrize(("method", "path"), [("GET", ""), *CHANGES])
def test_while_no_model_is_ready(method: str, path: str) -> None:
    response = call(make_app(), method, path)
    assert refusal(response) == (503, "model_loading")
    assert int(response.headers["retry-after"]) > 0


def test_an_engine_that_stops_while_it_is_asked() -> None:
    app, worker = remembering()
    engine: EngineClient = app.state.service.engine

    def stop(_command: CacheCommand) -> None:
        engine.cache.forget()

    worker.send = stop  # type: ignore[method-assign]
    assert refusal(call(app)) == (503, "model_loading")


@pytest.mark.parametrize(
    ("method", "path"), [("POST", ""), ("PUT", ""), ("GET", "/abc111"), ("PUT", "/abc111"), ("GET", "/abc111/pin")]
)
def test_other_methods_are_refused(method: str, path: str) -> None:
    app, worker = remembering()
    assert refusal(call(app, method, path)) == (405, None)
    assert worker.asked == []
