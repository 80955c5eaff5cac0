"""Who may call."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request

from legato.errors import LegatoError
from legato.server.access import AccessMiddleware, KeyRing, KnownHosts, check_exposure, host_name, is_loopback
from legato.server.api_error import install_error_handlers
from legato.server.sessions import Sessions

LIMIT = 1000


def protected(
    *, keys: Sequence[str] = (), origins: Sequence[str] = (), hosts: Sequence[str] = (), listening: str = "127.0.0.1"
) -> AccessMiddleware:
    """An application that counts the bytes that it is sent, behind the access checks."""
    app = FastAPI()
    install_error_handlers(app)

    @app.api_route("/{path:path}", methods=["GET", "POST"])
    async def count(request: Request) -> dict[str, int]:
        return {"bytes": len(await request.body())}

    return AccessMiddleware(
        app,
        hosts=KnownHosts(listening, hosts),
        keys=KeyRing(keys),
        sessions=Sessions(),
        cors_origins=origins,
        max_body_bytes=LIMIT,
    )


def call(app: AccessMiddleware, path: str = "/v1/models", **request: Any) -> httpx.Response:
    async def send() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1:8383") as client:
            return await client.request("POST", path, **request)

    return asyncio.run(send())


def assert_refused(response: httpx.Response, status: int, code: str, kind: str) -> None:
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["type"]) == (status, code, kind)
    assert error["message"].endswith(".")


def assert_unauthorized(response: httpx.Response) -> None:
    assert_refused(response, 401, "invalid_api_key", "authentication_error")
    assert response.headers["www-authenticate"] == "Bearer"


# Host names


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("localhost", "localhost"),
        ("localhost:8383", "localhost"),
        ("LocalHost:8383", "localhost"),
        ("localhost.", "localhost"),
        ("localhost.:8383", "localhost"),
        ("127.0.0.1:80", "127.0.0.1"),
        ("[::1]", "::1"),
        ("[::1]:8383", "::1"),
        ("[FE80::1]:8383", "fe80::1"),
        ("", ""),
        (":8383", ""),
        ("[::1", ""),
        ("[evil]", ""),
        ("evil.example/localhost", "evil.example"),
        ("evil.example?localhost", "evil.example"),
        ("evil.example#localhost", "evil.example"),
    ],
)
def test_host_name(value: str, name: str) -> None:
    assert host_name(value) == name


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "localhost:8383",
        "LOCALHOST:8383",
        "localhost.",
        "chat.localhost",
        "127.0.0.1",
        "127.0.0.1:8383",
        "192.168.1.7:8383",
        "[::1]",
        "[::1]:8383",
        "[FE80::1]:8383",
        "legato.home",
        "Legato.Home:8383",
        "legato.home.:8383",
        "server.lan",
        socket.gethostname(),
        f"{socket.gethostname()}.local:8383",
    ],
)
def test_known_hosts_are_let_in(host: str) -> None:
    app = protected(hosts=["Legato.home"], listening="Server.lan")
    assert call(app, headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8383",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "evil-localhost",
        "notlegato.home",
        "x.legato.home",
        "127.1",
        "2130706433",
        "[::1",
        "",
        ":8383",
    ],
)
def test_unknown_hosts_are_refused(host: str) -> None:
    response = call(protected(hosts=["legato.home"]), headers={"Host": host})
    assert_refused(response, 403, "unknown_host", "permission_error")


def test_the_refusal_of_a_host_names_it() -> None:
    message = call(protected(), headers={"Host": "evil.example:8383"}).json()["error"]["message"]
    assert "'evil.example:8383'" in message
    assert "--allowed-host" in message


def test_a_request_without_a_host_is_refused() -> None:
    assert "" not in KnownHosts("127.0.0.1", [])
    scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": []}
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(protected()(scope, receive, send))
    assert sent[0]["status"] == 403


@pytest.mark.parametrize("path", ["/v1/models", "/health"])
def test_unknown_hosts_are_refused_everywhere(path: str) -> None:
    response = call(protected(), path, headers={"Host": "evil.example"})
    assert response.status_code == 403


# Origins


@pytest.mark.parametrize(
    ("origins", "origin", "host"),
    [
        ([], None, "127.0.0.1:8383"),
        ([], "http://127.0.0.1:8383", "127.0.0.1:8383"),
        ([], "http://localhost:8383", "localhost:8383"),
        ([], "http://[::1]:8383", "[::1]:8383"),
        (["https://chat.home"], "https://chat.home", "127.0.0.1:8383"),
        (["https://a.home", "https://b.home"], "https://b.home", "127.0.0.1:8383"),
        (["*"], "https://anything.example", "127.0.0.1:8383"),
        (["*"], "null", "127.0.0.1:8383"),
    ],
)
def test_pages_that_may_call(origins: list[str], origin: str | None, host: str) -> None:
    headers = {"Host": host} | ({"Origin": origin} if origin is not None else {})
    assert call(protected(origins=origins), headers=headers).status_code == 200


@pytest.mark.parametrize(
    ("origins", "origin"),
    [
        ([], "https://evil.example"),
        ([], "null"),
        ([], ""),
        ([], "http://127.0.0.1"),
        ([], "http://127.0.0.1:9999"),
        ([], "127.0.0.1:8383"),
        (["https://chat.home"], "http://chat.home"),
        (["https://chat.home"], "https://chat.home:444"),
        (["https://chat.home"], "https://chat.home.evil.example"),
        (["https://chat.home"], "null"),
    ],
)
def test_pages_that_may_not_call(origins: list[str], origin: str) -> None:
    response = call(protected(origins=origins), headers={"Origin": origin})
    assert_refused(response, 403, "unknown_origin", "permission_error")


# Keys


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer right"},
        {"Authorization": "bearer right"},
        {"Authorization": "BEARER  right "},
        {"X-API-Key": "right"},
        {"x-api-key": "right"},
        {"Authorization": "Basic d3Jvbmc6d3Jvbmc=", "x-api-key": "right"},
        {"Authorization": "Bearer second"},
        {"x-api-key": "second"},
        {"Authorization": "Bearer named"},
    ],
)
def test_the_right_key_lets_in(headers: dict[str, str]) -> None:
    assert call(protected(keys=["right", "second", "ada=named"]), headers=headers).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": ""},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer "},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Bearer righ"},
        {"Authorization": "Bearer rightt"},
        {"Authorization": "Bearer RIGHT"},
        {"Authorization": "Bearer right,second"},
        {"Authorization": "right"},
        {"Authorization": "Basic right"},
        {"Authorization": "Bearer ada=named"},
        {"Authorization": "Bearer ada"},
        {"x-api-key": "wrong"},
        {"x-api-key": ""},
        {"x-api-key": "ada=named"},
    ],
)
def test_other_keys_do_not(headers: dict[str, str]) -> None:
    assert_unauthorized(call(protected(keys=["right", "second", "ada=named"]), headers=headers))


def test_a_missing_key_and_a_wrong_one_are_told_apart() -> None:
    app = protected(keys=["right"])
    assert "is needed" in call(app).json()["error"]["message"]
    assert "is not known" in call(app, headers={"x-api-key": "wrong"}).json()["error"]["message"]


def test_a_key_may_have_letters_of_any_language() -> None:
    app = protected(keys=["schlüssel"])
    for name, value in ((b"Authorization", "Bearer schlüssel"), (b"X-API-Key", "schlüssel")):
        assert call(app, headers=[(name, value.encode())]).status_code == 200
        assert_unauthorized(call(app, headers=[(name, value.replace("ü", "ö").encode())]))


def test_bytes_that_are_no_text_are_a_wrong_key() -> None:
    assert_unauthorized(call(protected(keys=["right"]), headers=[(b"Authorization", b"Bearer \xff\xfe")]))


def test_without_keys_everybody_is_let_in() -> None:
    assert call(protected()).status_code == 200
    assert call(protected(), headers={"Authorization": "Bearer anything"}).status_code == 200


def test_health_and_the_page_that_asks_for_a_key_need_none_and_nothing_else_is_open() -> None:
    app = protected(keys=["right"])
    for path in ("/health", "/", "/login", "/logout", "/assets/main.js"):
        assert call(app, path).status_code == 200
    for path in (
        "/assets",
        "/api/live",
        "/login/",
        "/health/",
        "/healthy",
        "/v1/health",
        "/HEALTH",
        "/v1/chat/completions",
        "/metrics",
    ):
        assert call(app, path).status_code == 401


def test_a_stranger_is_refused_before_a_key_is_asked_for() -> None:
    response = call(protected(keys=["right"]), headers={"Host": "evil.example", "Authorization": "Bearer right"})
    assert response.json()["error"]["code"] == "unknown_host"


# Bodies


async def stream(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


@pytest.mark.parametrize("size", [0, 1, LIMIT])
def test_a_body_up_to_the_limit_is_taken(size: int) -> None:
    assert call(protected(), content=b"x" * size).json() == {"bytes": size}


def test_a_body_in_parts_up_to_the_limit_is_taken() -> None:
    response = call(protected(), content=stream(b"x" * 600, b"", b"x" * 400))
    assert "content-length" not in response.request.headers
    assert response.json() == {"bytes": LIMIT}


def test_a_body_whose_length_is_too_large_is_refused() -> None:
    assert_refused(call(protected(), content=b"x" * (LIMIT + 1)), 413, "too_large", "invalid_request_error")


def test_a_length_that_is_too_large_is_refused_before_the_body_is_read() -> None:
    response = call(protected(), content=b"x", headers={"Content-Length": "9" * 30})
    assert_refused(response, 413, "too_large", "invalid_request_error")


def test_a_body_in_parts_that_are_too_large_together_is_refused() -> None:
    response = call(protected(), content=stream(*[b"x" * 100] * 11))
    assert "content-length" not in response.request.headers
    assert_refused(response, 413, "too_large", "invalid_request_error")


def test_a_body_larger_than_it_says_is_refused() -> None:
    response = call(protected(), content=b"x" * (LIMIT + 1), headers={"Content-Length": "10"})
    assert_refused(response, 413, "too_large", "invalid_request_error")


def test_the_limit_is_for_health_too() -> None:
    assert call(protected(), "/health", content=b"x" * (LIMIT + 1)).status_code == 413


# Where to listen


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.9.1", "::1", "0:0:0:0:0:0:0:1"])
def test_loopback(host: str) -> None:
    assert is_loopback(host)
    check_exposure(host, [], no_auth=False)


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "192.168.1.7", "fe80::1", "legato.home", "", "localhost.evil.example"]
)
def test_other_addresses_need_a_key_or_a_word(host: str) -> None:
    assert not is_loopback(host)
    with pytest.raises(LegatoError, match=r"--api-key.*--no-auth"):
        check_exposure(host, [], no_auth=False)
    check_exposure(host, ["key"], no_auth=False)
    check_exposure(host, [], no_auth=True)


def test_keys_may_come_one_by_one() -> None:
    check_exposure("0.0.0.0", iter(["key"]), no_auth=False)
    with pytest.raises(LegatoError):
        check_exposure("0.0.0.0", iter([]), no_auth=False)
