"""Who may call: host names, API keys, origins and body sizes, checked before anything else is read."""

from __future__ import annotations

import contextlib
import hmac
import ipaddress
import socket
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from legato.errors import LegatoError
from legato.server.api_error import ApiError
from legato.server.sessions import COOKIE, Sessions
from legato.settings import key_name, secret

OPEN_PATHS = frozenset({"/health", "/", "/login", "/logout"})
"""Paths that need no API key: for supervisors that have none, and for the page that asks for one."""
OPEN_FOLDER = "/assets/"
"""The page's files, which hold no data."""


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that is spelled out; None of a name."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host)
    return None


def is_loopback(host: str) -> bool:
    """True if only this machine can reach that address."""
    address = _address(host)
    return host == "localhost" if address is None else address.is_loopback


def check_exposure(host: str, api_keys: Iterable[str], *, no_auth: bool) -> None:
    """Refuse to listen to a network without a key.

    Raises:
        LegatoError: The address is not loopback, there is no API key, and nobody said `--no-auth`.
    """
    if not is_loopback(host) and not tuple(api_keys) and not no_auth:
        raise LegatoError(
            f"Others could use this server on {host}: set a key with --api-key, or say --no-auth if that is wanted."
        )


def host_name(value: str) -> str:
    """The name or address in a Host header, without port and brackets, in lower case."""
    try:
        return (urlsplit(f"//{value}").hostname or "").rstrip(".")
    except ValueError:
        return ""


class KnownHosts:
    """The names that this server is known by.

    A page of a foreign site can make its own name resolve to this machine and call the server with it (DNS rebinding).
    It can only ever do that with a name, so literal addresses are all known, and of names the listed ones alone.
    """

    def __init__(self, listening: str, allowed: Iterable[str]) -> None:
        machine = socket.gethostname().lower()
        self._names = {"localhost", machine, f"{machine}.local", listening.lower(), *map(host_name, allowed)}

    def __contains__(self, name: str) -> bool:
        return name in self._names or name.endswith(".localhost") or _address(name) is not None


class KeyRing:
    """The API keys of a server, each as KEY or NAME=KEY; none lets everybody in."""

    def __init__(self, api_keys: Iterable[str]) -> None:
        self._keys = [(secret(key).encode(), key_name(key)) for key in api_keys]

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._keys)

    def client_of(self, given: bytes) -> tuple[bool, str | None]:
        """Whether a key is known, and its name.

        Every key is compared, in constant time, so that timing tells nothing.
        """
        names = [name for known, name in self._keys if hmac.compare_digest(given, known)]
        return bool(names), next(iter(names), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessMiddleware:
    """Checks every request, as plain ASGI so that streams pass through untouched."""

    app: ASGIApp = field(kw_only=False)
    """What is protected."""
    hosts: KnownHosts
    keys: KeyRing
    """One of which clients must send; none lets everybody in."""
    sessions: Sessions
    """Whoever has one need not send a key."""
    cors_origins: Collection[str]
    """Origins whose pages may call."""
    max_body_bytes: int

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or answer it with what is missing."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close"})
            return
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        length = headers.get("content-length", "")
        try:
            self._check_host(headers)
            self._check_origin(headers)
            if scope["path"] not in OPEN_PATHS and not scope["path"].startswith(OPEN_FOLDER):
                scope.setdefault("state", {})["client_name"] = self._check_key(headers)
            self._check_length(int(length) if length.isdecimal() else 0)
        except ApiError as error:
            await error.response()(scope, receive, send)
            return
        await self.app(scope, self._limited(receive), send)

    def _check_host(self, headers: Headers) -> None:
        value = headers.get("host", "")
        if host_name(value) not in self.hosts:
            raise ApiError(
                403,
                f"This server is not known as {value!r}; if it should be, start it with --allowed-host.",
                code="unknown_host",
            )

    def _check_origin(self, headers: Headers) -> None:
        """Refuse pages of other sites even where the browser would send their request without asking first."""
        origin = headers.get("origin")
        if origin is None or origin in self.cors_origins or "*" in self.cors_origins:
            return
        if origin.partition("://")[2] != headers.get("host"):
            raise ApiError(
                403,
                f"Pages of {origin} may not call this server; if they should, start it with --cors-origin.",
                code="unknown_origin",
            )

    def _check_key(self, headers: Headers) -> str | None:
        """The name of the key that was sent; None if it has none, or none is needed."""
        if not self.keys:
            return None
        scheme, _, key = headers.get("authorization", "").partition(" ")
        given = key.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")
        if not given:
            is_known, client = self.sessions.client(cookie_parser(headers.get("cookie", "")).get(COOKIE, ""))
        else:
            # Headers arrive as Latin-1, whatever their bytes mean.
            is_known, client = self.keys.client_of(given.encode("latin-1"))
        if not is_known:
            what = "The API key is not known" if given else "An API key is needed"
            raise ApiError(
                401,
                f"{what}; send one as 'Authorization: Bearer KEY'.",
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )
        return client

    def _limited(self, receive: Receive) -> Receive:
        """Count the body's bytes as they come: a length need not be given, or true."""
        received = 0

        async def limited() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            self._check_length(received)
            return message

        return limited

    def _check_length(self, length: int) -> None:
        if length > self.max_body_bytes:
            message = f"The body is larger than {self.max_body_bytes / 2**20:g} MiB, the most that this server takes."
            raise ApiError(413, message, code="too_large")
