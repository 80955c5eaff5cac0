"""What a running server says about its requests and what it remembers, over HTTP."""

from __future__ import annotations

import json
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote

import httpx
import msgspec

from legato.cli.background_server import Address
from legato.cli.plain_text import plain
from legato.errors import LegatoError
from legato.telemetry.record import LiveRequest, RequestRecord
from legato.telemetry.summary import RequestSummary
from legato.telemetry.verdict import Verdict

TIMEOUT_S = 10.0

T = TypeVar("T")


class Listing(msgspec.Struct):
    """Running and ended requests, newest first."""

    running: list[LiveRequest]
    requests: list[RequestSummary]
    next: str | None = None
    """Where the next page begins."""


class Explained(msgspec.Struct):
    """One ended request and why it took as long as it did."""

    request: RequestRecord
    verdict: Verdict


class Utilisation(msgspec.Struct):
    """How busy the machine is, 0 to 100; None where it is not known."""

    cpu_percent: float | None = None
    memory_percent: float | None = None
    gpu_percent: float | None = None


class Status(msgspec.Struct):
    """The server as it is now. Rates are None before anything was measured."""

    model: str | None
    state: str
    running: int = 0
    waiting: int = 0
    parallel: int | None = None
    """Answers written at once."""
    kv_cells_used: int | None = None
    kv_cells: int | None = None
    decode_tokens_per_second: float | None = None
    prefill_tokens_per_second: float | None = None
    utilisation: Utilisation = msgspec.field(default_factory=Utilisation)


class CacheTier(msgspec.Struct):
    """How much is remembered in one place. Bytes are of states outside the cells."""

    entries: int
    tokens: int
    bytes: int = 0
    budget_bytes: int = 0


class CacheTiers(msgspec.Struct):
    """How much is remembered in each place, for all clients together."""

    live: CacheTier
    """In cells that no request holds."""
    memory: CacheTier
    disk: CacheTier


class RememberedPrompt(msgspec.Struct):
    """Something that is remembered, without its content."""

    id: str
    """Empty for what is in the cells of a sequence."""
    scope: str
    """Whose; empty for everybody's."""
    tokens: int
    bytes: int
    """Of its state outside the cells."""
    hits: int
    """Requests that began with it."""
    unused_s: float
    """Since when nobody has used it."""
    places: list[str]
    pinned: bool


class Cache(msgspec.Struct):
    """What is remembered, what was used last first."""

    scope: str
    """Whose remembered prompts a request may begin with: everybody's (server), its own key's (key), nobody's (off)."""
    tiers: CacheTiers
    entries: list[RememberedPrompt]
    """Those that this key may see."""


class Freed(msgspec.Struct):
    """What is not remembered any more."""

    entries: int
    tokens: int
    bytes: int
    """In memory and on disk together."""


class _Cleared(msgspec.Struct):
    freed: Freed


class ApiClient:
    """Asks one server; a context that ends its connections.

    Args:
        address: Where the server is.
        timeout_s: How long an answer may take.

    Raises:
        LegatoError: The address is none.
    """

    def __init__(self, address: Address, *, timeout_s: float = TIMEOUT_S) -> None:
        self.base_url = address.base_url
        headers = {"Authorization": f"Bearer {address.api_key}"} if address.api_key else {}
        try:
            self._http = httpx.Client(base_url=address.base_url, headers=headers, timeout=timeout_s)
        except (httpx.InvalidURL, UnicodeEncodeError) as error:
            raise LegatoError(
                f"{plain(self.base_url)} with that key is not an address of a server; "
                "one looks like http://127.0.0.1:8383."
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._http.close()

    def listing(self, **filters: str | float | None) -> Listing:
        """Requests, newest first; `filters` as `GET /api/requests` takes them, None for those left out.

        Raises:
            LegatoError: The server can't be reached or refused; so do the other methods.
        """
        return self._decoded(self.listing_json(**filters), Listing)

    def listing_json(self, **filters: str | float | None) -> bytes:
        """The same as the server's JSON."""
        return self._get("/api/requests", {name: value for name, value in filters.items() if value is not None})

    def explained(self, request: str) -> Explained:
        """One ended request, by its whole id."""
        return self._decoded(self.explained_json(request), Explained)

    def explained_json(self, request: str) -> bytes:
        """The same as the server's JSON."""
        return self._get(f"/api/requests/{quote(request, safe='')}", {})

    def status(self) -> Status:
        """The server as it is now."""
        return self._decoded(self._get("/api/status", {}), Status)

    def cache(self) -> Cache:
        """What is remembered."""
        return self._decoded(self.cache_json(), Cache)

    def cache_json(self) -> bytes:
        """The same as the server's JSON."""
        return self._get("/api/cache", {})

    def clear_cache(self, entry: str | None) -> Freed:
        """Forget one entry, by the beginning of its id, or all of them for None."""
        path = "/api/cache" if entry is None else f"/api/cache/{_path_part(entry)}"
        return self._decoded(self._ask("DELETE", path), _Cleared).freed

    def pin(self, entry: str, *, pinned: bool) -> RememberedPrompt:
        """Pin an entry, by the beginning of its id, or let it go again."""
        path = f"/api/cache/{_path_part(entry)}/pin"
        return self._decoded(self._ask("PUT" if pinned else "DELETE", path), RememberedPrompt)

    def _get(self, path: str, parameters: dict[str, str | float]) -> bytes:
        return self._ask("GET", path, parameters)

    def _ask(self, method: str, path: str, parameters: dict[str, str | float] | None = None) -> bytes:
        try:
            response = self._http.request(method, path, params=parameters)
        except httpx.TimeoutException as error:
            raise LegatoError(f"The server at {plain(self.base_url)} does not answer in time.") from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise LegatoError(
                f"No Legato server answers at {plain(self.base_url)}; start one with `legato serve`."
            ) from error
        if response.status_code != 200:
            raise LegatoError(self._refusal(response))
        return response.content

    def _refusal(self, response: httpx.Response) -> str:
        try:
            return plain(str(response.json()["error"]["message"]))
        except (ValueError, KeyError, TypeError):
            return f"The server at {plain(self.base_url)} answered {response.status_code}, and not as Legato does."

    def _decoded(self, body: bytes, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise LegatoError(
                f"The server at {plain(self.base_url)} answered, but not as this version of Legato does: "
                f"{plain(str(error))}."
            ) from error


def _path_part(text: str) -> str:
    """A text as one part of a path, its dots spelt out too: "." alone would be left out, and ".." go up."""
    return quote(text, safe="").replace(".", "%2E")


def readable_json(body: bytes) -> str:
    """JSON for people and programs, with everything but ASCII escaped, so that no terminal is steered by it.

    Raises:
        LegatoError: It is no JSON.
    """
    try:
        value: Any = json.loads(body)
    except ValueError as error:
        raise LegatoError("What the server answered is no JSON, so that it is hardly Legato's.") from error
    # DEL is ASCII, too, and left as it is by the encoder.
    return json.dumps(value, indent=2).replace("\x7f", "\\u007f")
