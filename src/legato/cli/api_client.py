"""What a running server says about its requests and what it remembers, over HTTP."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import httpx
import msgspec

from legato.cli.plain_text import plain
from legato.core.cache import CacheEntry
from legato.errors import LegatoError
from legato.telemetry.record import LiveRequest, RequestRecord
from legato.telemetry.summary import RequestSummary
from legato.telemetry.verdict import Verdict

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


class MachineUse(msgspec.Struct, frozen=True):
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
    utilisation: MachineUse = MachineUse()


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


class RememberedPrompt(CacheEntry, frozen=True, array_like=False):
    """Something that is remembered, field by name."""


class CacheContents(msgspec.Struct):
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


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """What a server said about one thing, as its JSON."""

    kind: type[T]
    body: bytes
    base_url: str
    """Of the server."""

    def decoded(self) -> T:
        """The thing itself.

        Raises:
            LegatoError: That is not what this version of Legato says of it.
        """
        try:
            return msgspec.json.decode(self.body, type=self.kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise LegatoError(
                f"The server at {plain(self.base_url)} answered, but not as this version of Legato does: "
                f"{plain(str(error))}."
            ) from error


class ApiClient:
    """Asks one server, over connections with its key; a method raises `LegatoError` if it isn't there or refuses."""

    def __init__(self, base_url: str, http: httpx.Client) -> None:
        self.base_url = base_url
        self._http = http

    def listing(self, **filters: str | float | None) -> Answer[Listing]:
        """Requests, newest first; `filters` as `GET /api/requests` takes them, None for those left out."""
        return self._ask(Listing, "GET", "/api/requests", filters)

    def explained(self, request: str) -> Answer[Explained]:
        """One ended request, by its whole id."""
        return self._ask(Explained, "GET", f"/api/requests/{quote(request, safe='')}")

    def status(self) -> Answer[Status]:
        """The server as it is now."""
        return self._ask(Status, "GET", "/api/status")

    def cache(self) -> Answer[CacheContents]:
        """What is remembered."""
        return self._ask(CacheContents, "GET", "/api/cache")

    def clear_cache(self, entry: str | None) -> Freed:
        """Forget one entry, by the beginning of its id, or all of them for None."""
        path = "/api/cache" if entry is None else f"/api/cache/{_path_part(entry)}"
        return self._ask(_Cleared, "DELETE", path).decoded().freed

    def pin(self, entry: str, *, pinned: bool) -> RememberedPrompt:
        """Pin an entry, by the beginning of its id, or let it go again."""
        path = f"/api/cache/{_path_part(entry)}/pin"
        return self._ask(RememberedPrompt, "PUT" if pinned else "DELETE", path).decoded()

    def _ask(
        self, kind: type[T], method: str, path: str, filters: dict[str, str | float | None] | None = None
    ) -> Answer[T]:
        wanted = {name: value for name, value in (filters or {}).items() if value is not None}
        try:
            response = self._http.request(method, path, params=wanted)
        except httpx.TimeoutException as error:
            raise LegatoError(f"The server at {plain(self.base_url)} does not answer in time.") from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise LegatoError(
                f"No Legato server answers at {plain(self.base_url)}; start one with `legato serve`."
            ) from error
        if response.status_code != 200:
            raise LegatoError(refusal(response, self.base_url))
        return Answer(kind, response.content, self.base_url)


def refusal(response: httpx.Response, server: str) -> str:
    """What a server that refused says of it, or that it doesn't refuse as Legato does."""
    try:
        return plain(str(response.json()["error"]["message"]))
    except (ValueError, KeyError, TypeError):
        return f"The server at {plain(server)} answered {response.status_code}, and not as Legato does."


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
