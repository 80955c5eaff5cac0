"""A server to talk to: one that runs, or one started in the background for as long as it is needed."""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any

import httpx

from legato.cli.console import say
from legato.errors import LegatoError
from legato.settings import load_settings, secret


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Where a server is, and what opens it."""

    base_url: str
    """Without /v1."""
    api_key: str | None
    """None if there is none, or none is known."""

    @property
    def headers(self) -> dict[str, str]:
        """To send with every request."""
        return {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}


def server_address(url: str | None, api_key: str | None) -> ServerAddress:
    """Where the server is: at the URL, with or without /v1, or else where the settings say; and the key that opens it.

    Left out, the key is the settings' first one, but only for their own server: a named one is somebody else's and is
    not shown it.

    Raises:
        LegatoError: The settings are wrong.
    """
    settings = load_settings()
    own_key = secret(settings.api_keys[0]) if settings.api_keys and url is None else None
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    base_url = (url or f"http://{host}:{settings.port}").rstrip("/").removesuffix("/v1")
    return ServerAddress(base_url, api_key or own_key)


@contextmanager
def running_or_started(url: str | None, model: str | None, api_key: str | None) -> Iterator[ServerAddress]:
    """A server that serves the model, or any if that is left out.

    Without a URL it is the one of the settings, or a new one if none runs there.

    Raises:
        LegatoError: The named server can't be reached or serves another model, or a new one could not load the model.
    """
    address = server_address(url, api_key)
    base_url = address.base_url
    health = _health(base_url)
    if health is None and url is not None:
        raise LegatoError(f"No Legato server answers at {base_url}; start one with `legato serve`.")
    served = health and health.get("model")
    if health is not None and model in (None, served):
        say(f"Talking to {served} at {base_url}.")
        yield address
        return
    if url is not None:
        raise LegatoError(f"The server at {base_url} serves {served}, not {model}.")
    with _started(model or load_settings().model) as started_url:
        yield ServerAddress(started_url, address.api_key)


def _health(base_url: str) -> dict[str, Any] | None:
    try:
        answer = httpx.get(f"{base_url}/health", timeout=2)
        body = answer.json()
    except (httpx.HTTPError, httpx.InvalidURL, ValueError):
        return None
    return body if isinstance(body, dict) and "status" in body and "model" in body else None


@contextmanager
def _started(model: str) -> Iterator[str]:
    say(f"Starting a server for {model} …")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    base_url = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryFile() as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "legato", "serve", "--host", "127.0.0.1", "--port", str(port), "--", model],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            # Ctrl-C stops an answer, not the server behind it.
            start_new_session=True,
        )
        try:
            _wait_until_ready(server, base_url, log)
            yield base_url
        finally:
            server.terminate()
            server.wait()


def _wait_until_ready(server: subprocess.Popen[bytes], base_url: str, log: IO[bytes]) -> None:
    while True:
        health = _health(base_url)
        if health is not None and health["status"] == "ok":
            return
        if health is not None and health["status"] == "failed":
            raise LegatoError(str(health["reason"]))
        if server.poll() is not None:
            log.seek(0)
            words = log.read().decode("utf-8", "replace").strip() or "without a word"
            raise LegatoError(words.splitlines()[-1].removeprefix("Error: "))
        time.sleep(0.1)
