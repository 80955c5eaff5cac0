"""Requests that are wrong before their body is looked at: methods, paths, broken and half-sent HTTP."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import httpx
import pytest

from tests.support.errors import error_of, is_sentence
from tests.support.server import LegatoProcess


@pytest.fixture(autouse=True)
def _unharmed(server: LegatoProcess) -> Iterator[None]:
    worker = server.worker()
    yield
    assert server.worker() == worker
    assert server.still_answers()


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/chat/completions", "POST"),
        ("PUT", "/v1/chat/completions", "POST"),
        ("GET", "/v1/completions", "POST"),
        ("DELETE", "/v1/completions", "POST"),
        ("POST", "/v1/models", "GET"),
        ("DELETE", "/v1/models/smollm2", "GET"),
        ("POST", "/health", "GET"),
    ],
)
def test_a_wrong_method_is_refused(server: LegatoProcess, method: str, path: str, allowed: str) -> None:
    reply = httpx.request(method, f"{server.url}{path}", timeout=30, verify=False)
    assert reply.status_code == 405
    message = error_of(reply)["message"]
    assert method in message
    assert path in message
    assert is_sentence(message)
    assert allowed in reply.headers["allow"]


@pytest.mark.parametrize(
    "path",
    [
        "/nothing",
        "/v1",
        "/v1/nothing",
        "/chat/completions",
        "/v1/chat",
        "/v1/embeddings",
        "/v1/%ff%fe",
        "/../etc/passwd",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_an_unknown_path_is_not_found(server: LegatoProcess, path: str, method: str) -> None:
    reply = httpx.request(method, f"{server.url}{path}", timeout=30, verify=False)
    assert reply.status_code == 404
    message = error_of(reply)["message"]
    assert "/v1" in message
    assert is_sentence(message)


def raw(server: LegatoProcess, data: bytes) -> bytes:
    """Send bytes and read until the server closes or has answered."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(data)
        return connection.recv(65536)


@pytest.mark.parametrize(
    "data",
    [
        b"HELLO\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET /health HTTP/9.9\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: abc\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nZZZ\r\n",
    ],
    ids=["no HTTP", "TLS", "a version of its own", "a negative length", "a length of letters", "broken chunks"],
)
def test_what_is_no_http_is_answered_with_400(server: LegatoProcess, data: bytes) -> None:
    assert raw(server, data).startswith(b"HTTP/1.1 400")


def test_a_body_that_never_comes_whole_holds_nothing(server: LegatoProcess) -> None:
    """The client promises more than it sends, and goes."""
    lines = ("Host: localhost", "Content-Type: application/json", "Content-Length: 1000", "", "")
    head = "\r\n".join(("POST /v1/completions HTTP/1.1", *lines)).encode()
    before = len(server.output())
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
            connection.sendall(head + b'{"prompt": "')
    assert server.still_answers()
    assert "Traceback" not in server.output()[before:]
