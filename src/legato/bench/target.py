"""Servers to measure: how they are named on the command line, and what they say of themselves."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx

from legato.bench.results import Api
from legato.errors import LegatoError

_SYNTAX = re.compile(r"(?:(?P<api>openai|ollama):)?(?P<name>[^=:/\s][^=:/]*)=(?P<url>\S+)")
_SHOWN_MODELS = 8


@dataclass(frozen=True, slots=True)
class TargetAddress:
    """What `--target` said."""

    name: str
    """Of the server in this run."""
    url: str
    """Without `/v1` and without a slash at its end."""
    api: Api | None
    """None if it is to be found out."""

    def __str__(self) -> str:
        return f"{self.name} ({self.url})"


@dataclass(frozen=True, slots=True)
class Target:
    """A server that answered, and the model to ask there."""

    name: str
    url: str
    """Without `/v1` and without a slash at its end."""
    api: Api
    model: str
    api_key: str | None = field(default=None, repr=False)

    @property
    def headers(self) -> dict[str, str]:
        """To send with every request."""
        return _headers(self.api_key)


def parse(text: str) -> TargetAddress:
    """Read `NAME=URL`, or `ollama:NAME=URL` and `openai:NAME=URL`, which also say the API.

    Raises:
        LegatoError: The text is none of these.
    """
    match = _SYNTAX.fullmatch(text.strip())
    if match is None:
        raise LegatoError(
            f"The target {text!r} is not understood; write NAME=URL, such as legato=http://127.0.0.1:8383, "
            "or ollama:NAME=URL for Ollama's own API."
        )
    url = match["url"].rstrip("/").removesuffix("/v1")
    if not _is_web_address(url):
        raise LegatoError(
            f"The target {match['name']} has the address {match['url']}, which is no URL; "
            "it begins with http:// or https://, such as http://127.0.0.1:8383."
        )
    api: Any = match["api"]
    return TargetAddress(match["name"].strip(), url, api)


def chosen_for(name: str, values: Sequence[str], names: Sequence[str]) -> str | None:
    """The value that is meant for one target: `NAME=VALUE` is for that target alone, a plain value for all others.

    A `=` behind anything but one of the `names` of all targets belongs to the value.
    """
    general = None
    for value in values:
        before, equals, after = value.partition("=")
        if equals and before in names:
            if before == name:
                return after
        else:
            general = value
    return general


async def connect(address: TargetAddress, http: httpx.AsyncClient, model: str | None, api_key: str | None) -> Target:
    """Ask the server for its models, and find out its API if that is open.

    Raises:
        LegatoError: It can't be reached, refuses the key, speaks neither API, or the model is not clear.
    """
    attempts: tuple[Api, ...] = ("openai", "ollama") if address.api is None else (address.api,)
    for api in attempts:
        models = await _models(address, api, http, api_key)
        if models is not None:
            return Target(address.name, address.url, api, _choose(address, models, model), api_key)
    asked = " and ".join(_LISTS[api][0] for api in attempts)
    raise LegatoError(f"{address} does not list its models at {asked}; it must speak OpenAI's API or Ollama's.")


_LISTS: dict[Api, tuple[str, str, str]] = {
    "openai": ("/v1/models", "data", "id"),
    "ollama": ("/api/tags", "models", "name"),
}
"""Where each API lists its models, and under which keys."""


async def _models(address: TargetAddress, api: Api, http: httpx.AsyncClient, api_key: str | None) -> list[str] | None:
    """Names of the models; None if the server has no such list."""
    path, list_key, name_key = _LISTS[api]
    try:
        response = await http.get(address.url + path, headers=_headers(api_key), timeout=10)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        reason = str(error) or type(error).__name__
        raise LegatoError(
            f"The target {address} can't be reached ({reason}); start a server there or correct --target."
        ) from error
    if response.status_code in (401, 403):
        raise LegatoError(f"The target {address} refuses the key; give the right one with --api-key.")
    try:
        return [str(entry[name_key]) for entry in response.json()[list_key]] if response.is_success else None
    except (ValueError, KeyError, TypeError):
        return None


def _choose(address: TargetAddress, models: list[str], wanted: str | None) -> str:
    shown = ", ".join(models[:_SHOWN_MODELS]) + (", …" if len(models) > _SHOWN_MODELS else "")
    if not models:
        raise LegatoError(f"The target {address} has no model; load one there first.")
    if wanted is not None:
        for name in (wanted, f"{wanted}:latest"):
            if name in models:
                return name
        raise LegatoError(f"The target {address} has no model {wanted}; it has {shown}.")
    if len(models) > 1:
        raise LegatoError(f"The target {address} has several models; choose one with --model: {shown}.")
    return models[0]


def _is_web_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 80) > 0
    except ValueError:
        return False


def _headers(api_key: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {api_key}"} if api_key else {}
