"""The dashboard's files, and who gets its data: sessions of keys that were shown once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import httpx
import pytest
from fastapi import FastAPI

from legato.server import sessions
from legato.server.pages import FOLDER
from tests.server.test_settings_api import make_app

Calls = Callable[[httpx.AsyncClient], Awaitable[None]]


def visit(app: FastAPI, calls: Calls) -> None:
    """Do something as one browser, which keeps its cookies."""

    async def browse() -> None:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1:8383") as browser:
            await calls(browser)

    asyncio.run(browse())


@pytest.fixture
def app() -> FastAPI:
    return make_app(api_keys=("ana=secret-å", "plain"), admins=("ana",))


def test_the_page_and_its_files_need_no_key_and_allow_nothing_foreign(app: FastAPI) -> None:
    async def calls(browser: httpx.AsyncClient) -> None:
        for path in ("/", "/assets/main.js", "/assets/base.css", "/assets/languages/sv.js"):
            response = await browser.get(path)
            assert response.status_code == 200, path
            policy = response.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert response.headers["x-content-type-options"] == "nosniff"
        assert (await browser.get("/assets/main.js")).headers["content-type"].startswith("text/javascript")

    visit(app, calls)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "nothing.js",
        "views",
        "../pages.py",
        "%2e%2e/pages.py",
        "..%2f..%2fsettings.py",
        "/etc/passwd",
        "%00",
        "main.js%00.css",
        "x" * 5000,
    ],
)
def test_no_other_file_is_served(app: FastAPI, path: str) -> None:
    async def calls(browser: httpx.AsyncClient) -> None:
        response = await browser.get(httpx.URL("http://127.0.0.1:8383/assets/" + path))
        assert response.status_code in (401, 404)

    visit(app, calls)


def test_every_file_of_the_folder_is_one_that_browsers_load() -> None:
    assert {path.suffix for path in FOLDER.rglob("*") if path.is_file()} <= {".html", ".css", ".js"}


@pytest.mark.parametrize(("key", "name"), [("secret-å", "ana"), ("plain", None)])
def test_a_key_is_shown_once_and_a_session_stands_for_it(app: FastAPI, key: str, name: str | None) -> None:
    async def calls(browser: httpx.AsyncClient) -> None:
        assert (await browser.get("/api/settings")).status_code == 401
        assert (await browser.get("/login")).json() == {"needed": True}
        response = await browser.post("/login", json={"key": key})
        assert response.status_code == 204
        cookie = response.headers["set-cookie"]
        assert key not in cookie
        assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
        assert (await browser.get("/api/settings")).status_code == 200
        assert (await browser.get("/login")).json() == {"needed": False}
        # What it may do is what the key may.
        changed = await browser.patch("/api/settings", json={"gap_target_ms": 50})
        assert changed.status_code == (200 if name == "ana" else 403)
        assert (await browser.post("/logout")).status_code == 204
        assert (await browser.get("/api/settings")).status_code == 401

    visit(app, calls)


def test_a_logged_out_cookie_is_worth_nothing(app: FastAPI) -> None:
    async def calls(browser: httpx.AsyncClient) -> None:
        await browser.post("/login", json={"key": "plain"})
        token = browser.cookies[sessions.COOKIE]
        await browser.post("/logout")
        headers = {"cookie": f"{sessions.COOKIE}={token}"}
        assert (await browser.get("/api/settings", headers=headers)).status_code == 401

    visit(app, calls)


@pytest.mark.parametrize("key", ["", "secret", "SECRET-Å", "ana=secret-å", "\ud800", "x" * 10_000])
def test_a_wrong_key_gets_no_session(app: FastAPI, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("legato.server.pages.WRONG_KEY_PAUSE_S", 0)

    async def calls(browser: httpx.AsyncClient) -> None:
        body = b'{"key": "\\ud800"}' if key == "\ud800" else None
        request = {"content": body, "headers": {"content-type": "application/json"}} if body else {"json": {"key": key}}
        response = await browser.post("/login", **request)  # type: ignore[arg-type]
        assert response.status_code in (400, 401)
        assert response.json()["error"]["message"].endswith(".")
        assert "set-cookie" not in response.headers

    visit(app, calls)


def test_a_wrong_key_is_not_mended_by_a_session(app: FastAPI) -> None:
    async def calls(browser: httpx.AsyncClient) -> None:
        await browser.post("/login", json={"key": "plain"})
        assert (await browser.get("/api/settings", headers={"authorization": "Bearer no"})).status_code == 401

    visit(app, calls)


def test_pages_of_others_can_use_no_session(app: FastAPI) -> None:
    async def calls(browser: httpx.AsyncClient) -> None:
        await browser.post("/login", json={"key": "plain"})
        response = await browser.patch("/api/settings", json={}, headers={"origin": "https://elsewhere.example"})
        assert response.json()["error"]["code"] == "unknown_origin"

    visit(app, calls)


def test_the_oldest_sessions_end_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MOST_SESSIONS", 2)
    known = sessions.Sessions()
    first, second = known.begin("ana"), known.begin("ben")
    assert known.client(first) == (True, "ana")  # used last, so that the other one goes
    third = known.begin(None)
    assert [known.client(token) for token in (first, second, third)] == [(True, "ana"), (False, None), (True, None)]
