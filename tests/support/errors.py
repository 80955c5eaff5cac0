"""Errors in OpenAI's shape."""

from __future__ import annotations

from typing import Any

import httpx

TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


def error_of(reply: httpx.Response) -> dict[str, Any]:
    """The error that a refusal carries, once its shape is checked."""
    assert reply.headers["content-type"] == "application/json", reply.text
    body = reply.json()
    assert set(body) == {"error"}, body
    error = body["error"]
    assert set(error) == {"message", "type", "param", "code"}, error
    assert isinstance(error["message"], str)
    assert isinstance(error["param"], str | None)
    assert isinstance(error["code"], str | None)
    assert error["type"] == TYPES.get(
        reply.status_code, "invalid_request_error" if reply.status_code < 500 else "server_error"
    )
    assert len(error["message"]) < 1000, "a message is no place for the request"
    return error


def is_sentence(message: str) -> bool:
    """True for words that begin like a sentence, or with the name of a parameter, and end like one."""
    first = message.split(maxsplit=1)[0].rstrip(":")
    named = "_" in first or "[" in first or "." in first or first in PARAMETERS
    return message[-1:] == "." and " " in message and (named or not first[0].islower()) and "\n" not in message


PARAMETERS = frozenset(
    {"messages", "prompt", "model", "stop", "seed", "n", "temperature", "logprobs", "echo", "stream", "truncation"}
    | {"user"}
)
