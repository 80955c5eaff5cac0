"""What the commands that ask a running server share: their options, and the server that these name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import httpx
import typer

from legato.cli.api_client import ApiClient
from legato.cli.background_server import server_address
from legato.cli.plain_text import plain, replace_what_is_no_text
from legato.errors import LegatoError

Url = Annotated[str | None, typer.Option(help="Server to ask, such as http://127.0.0.1:8383.")]
ApiKey = Annotated[str | None, typer.Option(envvar="LEGATO_CHAT_KEY", help="API key of that server.")]
Json = Annotated[bool, typer.Option("--json", help="Print the server's JSON.")]


@contextmanager
def asked_server(url: str | None, api_key: str | None, *, timeout_s: float = 10.0) -> Iterator[ApiClient]:
    """The server of that URL, or of the settings, for whose answers the output is made ready.

    Raises:
        LegatoError: The address is none, or the settings are wrong.
    """
    replace_what_is_no_text()
    address = server_address(url, api_key)
    try:
        http = httpx.Client(base_url=address.base_url, headers=address.headers, timeout=timeout_s)
    except (httpx.InvalidURL, UnicodeEncodeError) as error:
        raise LegatoError(
            f"{plain(address.base_url)} with that key is not an address of a server; "
            "one looks like http://127.0.0.1:8383."
        ) from error
    with http:
        yield ApiClient(address.base_url, http)
