"""Server-sent events as bytes, for what a client library would hide."""

from __future__ import annotations

import json
from typing import Any

import httpx

DONE = b"data: [DONE]"


def read_events(url: str, body: dict[str, Any]) -> list[Any]:
    """Ask for a stream and return its events; each must be whole, strict UTF-8 and JSON, and the last one DONE."""
    with httpx.stream("POST", url, json=body, timeout=60, verify=False) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"].startswith("text/event-stream")
        *events, last, rest = b"".join(response.iter_raw()).split(b"\n\n")
    assert (last, rest) == (DONE, b"")
    return [_parse(event) for event in events]


def _parse(event: bytes) -> Any:
    text = event.decode("utf-8")
    assert text.startswith("data: "), text
    parsed = json.loads(text.removeprefix("data: "))
    # JSON may spell half of a surrogate pair, which is no character.
    json.dumps(parsed, ensure_ascii=False).encode("utf-8")
    return parsed
