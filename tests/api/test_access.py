"""Who may call: API keys, host names, origins."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import openai
import pytest

from tests.support.errors import error_of, is_sentence
from tests.support.server import LegatoProcess

HOME = "https://chat.home"


@pytest.fixture(scope="module")
def guarded(model_path: Path) -> Iterator[LegatoProcess]:
    """A server with two keys, a name of its own, and a web page that may use it."""
    options = ("--api-key", "sesame", "--api-key", "ada=lovelace", "--allowed-host", "box.home", "--cors-origin", HOME)
    with LegatoProcess("smollm2", "--ctx", "256", "--parallel", "1", *options) as process:
        process.wait_ready()
        yield process


def get(server: LegatoProcess, path: str = "/v1/models", **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value.encode("utf-8") for name, value in headers.items()}
    return httpx.get(f"{server.url}{path}", headers=named, timeout=30, verify=False)


# Keys


@pytest.mark.parametrize("key", ["sesame", "lovelace"])
def test_a_right_key_is_let_in(guarded: LegatoProcess, key: str) -> None:
    client = guarded.openai(api_key=key)
    assert client.completions.create(model="smollm2", prompt="Hi", max_tokens=1).usage.completion_tokens == 1
    assert get(guarded, x_api_key=key).status_code == 200


@pytest.mark.parametrize("key", ["wrong", "Sesame", "sesam", "ada", "ada=lovelace", "sesamelovelace", "ß", "sesame, x"])
def test_a_wrong_key_is_refused(guarded: LegatoProcess, key: str) -> None:
    reply = get(guarded, authorization=f"Bearer {key}")
    assert reply.status_code == 401
    assert error_of(reply)["code"] == "invalid_api_key"
    assert "not known" in reply.text


def test_the_official_client_sees_an_authentication_error(guarded: LegatoProcess) -> None:
    with pytest.raises(openai.AuthenticationError, match="not known"):
        guarded.openai(api_key="wrong").models.list()


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer"}, {"authorization": "Basic c2VzYW1l"}])
def test_without_a_key_nothing_is_told(guarded: LegatoProcess, headers: dict[str, str]) -> None:
    for path in ("/v1/models", "/v1/models/smollm2", "/v1/nothing", "/api/live"):
        reply = get(guarded, path, **headers)
        assert reply.status_code == 401, path
        error = error_of(reply)
        assert error["code"] == "invalid_api_key"
        assert is_sentence(error["message"])
        assert reply.headers["www-authenticate"] == "Bearer"
        assert "sesame" not in reply.text


def test_a_refused_request_is_not_answered(guarded: LegatoProcess) -> None:
    reply = guarded.post("/v1/completions", {"prompt": "Hi", "max_tokens": 1})
    assert reply.status_code == 401
    assert "choices" not in reply.json()


def test_health_needs_no_key(guarded: LegatoProcess) -> None:
    assert guarded.health()[0] == 200


def test_without_keys_any_key_will_do(server: LegatoProcess) -> None:
    assert server.openai(api_key="whatever").models.list().data


# Names


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "", "box.home"])
def test_an_unknown_host_is_refused(server: LegatoProcess, host: str) -> None:
    reply = get(server, "/health", host=host)
    assert reply.status_code == 403
    error = error_of(reply)
    assert error["code"] == "unknown_host"
    assert "--allowed-host" in error["message"]


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:8383", "127.0.0.1", "[::1]:80", "192.168.1.5", "app.localhost"]
)
def test_names_that_no_foreign_page_can_have_are_known(server: LegatoProcess, host: str) -> None:
    assert get(server, "/health", host=host).status_code == 200


@pytest.mark.parametrize("host", ["box.home", "BOX.home:8383", "box.home."])
def test_an_allowed_host_is_known(guarded: LegatoProcess, host: str) -> None:
    assert get(guarded, "/health", host=host).status_code == 200


# Origins


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://localhost:1", "https://chat.home.evil.example"]
)
@pytest.mark.parametrize("kind", ["with CORS", "without CORS"])
def test_a_foreign_page_is_refused(server: LegatoProcess, guarded: LegatoProcess, origin: str, kind: str) -> None:
    reply = get(guarded if kind == "with CORS" else server, "/health", origin=origin)
    assert reply.status_code == 403
    assert error_of(reply)["code"] == "unknown_origin"
    assert "access-control-allow-origin" not in reply.headers


def test_the_servers_own_pages_may_call(server: LegatoProcess) -> None:
    assert get(server, "/health", origin=server.url).status_code == 200


def preflight(server: LegatoProcess, origin: str) -> httpx.Response:
    headers = {
        "origin": origin,
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type",
    }
    return httpx.options(f"{server.url}/v1/chat/completions", headers=headers, timeout=30, verify=False)


def test_a_browser_that_asks_first_is_told_yes(guarded: LegatoProcess) -> None:
    """It sends no key with the question."""
    reply = preflight(guarded, HOME)
    assert reply.status_code == 200
    assert reply.headers["access-control-allow-origin"] == HOME
    assert "POST" in reply.headers["access-control-allow-methods"]
    assert "authorization" in reply.headers["access-control-allow-headers"].lower()


def test_a_browser_that_asks_for_another_page_is_told_no(server: LegatoProcess, guarded: LegatoProcess) -> None:
    for reply in (preflight(guarded, "https://evil.example"), preflight(server, HOME)):
        assert reply.status_code in (400, 403)
        assert "access-control-allow-origin" not in reply.headers


def test_an_allowed_page_reads_answers_and_refusals(guarded: LegatoProcess) -> None:
    answered = get(guarded, origin=HOME, authorization="Bearer sesame")
    assert (answered.status_code, answered.headers["access-control-allow-origin"]) == (200, HOME)
    refused = get(guarded, origin=HOME)
    assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, HOME)
    missing = get(guarded, "/v1/nothing", origin=HOME, authorization="Bearer sesame")
    assert (missing.status_code, missing.headers["access-control-allow-origin"]) == (404, HOME)
