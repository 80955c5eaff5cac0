"""Refusals, and the shape that they have outside of dialects with one of their own.

That is `{"error": {"message", "type", "param", "code"}}`, as OpenAI's clients read it.
"""

from __future__ import annotations

import logging
import re
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException as StarletteHTTPException

logger = logging.getLogger(__name__)

_TYPES = {401: "authentication_error", 403: "permission_error", 404: "invalid_request_error", 429: "rate_limit_error"}


class ApiError(HTTPException):
    """An answer that refuses, in one sentence that says what was wrong and what would be right.

    `param` is the parameter that it is about, and `code` a word for programs.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(status, detail=message, headers=headers)
        self.message = message
        self.param = param
        self.code = code

    @property
    def body(self) -> dict[str, Any]:
        """The JSON body. A dialect that has another one makes it of the same parts."""
        kind = _TYPES.get(self.status_code, "invalid_request_error" if self.status_code < 500 else "server_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    def response(self) -> JSONResponse:
        """The whole answer."""
        return JSONResponse(self.body, self.status_code, self.headers)


def invalid(message: str, param: str, code: str = "invalid_value") -> ApiError:
    """What answers a parameter that can't be taken."""
    return ApiError(400, message, param=param, code=code)


def install_error_handlers(app: FastAPI) -> None:
    """Fold every error that the framework can answer with into the one shape."""

    @app.exception_handler(RequestValidationError)
    async def invalid(_request: Request, error: RequestValidationError) -> JSONResponse:
        return from_validation(error).response()

    @app.exception_handler(StarletteHTTPException)
    async def refused(request: Request, error: StarletteHTTPException) -> JSONResponse:
        if isinstance(error, ApiError):
            return error.response()
        message = str(error.detail)
        if error.status_code == 404:
            message = f"There is nothing at {request.url.path}; the API is under /v1."
        elif error.status_code == 405:
            message = f"{request.url.path} does not answer {request.method}."
        elif error.status_code == 400:
            message = f"The body could not be read as JSON: {error.__cause__ or message}."
        return ApiError(error.status_code, message, headers=dict(error.headers or {})).response()

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> JSONResponse:
        logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
        return ApiError(
            500, f"The server failed at this request ({type(error).__name__}); its log says more."
        ).response()


def from_validation(error: RequestValidationError) -> ApiError:
    """The first of the body's faults, in one sentence."""
    first = error.errors()[0]
    path = [part for part in first["loc"] if part != "body"]
    param = _dotted(path)
    kind = first["type"]
    if kind == "json_invalid":
        reason = first.get("ctx", {}).get("error", "")
        return ApiError(400, f"The body is not valid JSON: {reason} at character {path[0] if path else 0}.")
    if kind == "extra_forbidden":
        return invalid(f"Unrecognized request argument: {param}.", param, "unknown_parameter")
    if not path:
        return ApiError(400, "The body must be a JSON object, sent with Content-Type: application/json.")
    message = first["msg"].removeprefix("Value error, ")
    return invalid(f"{param}: {message[0].lower()}{message[1:]}.", param)


_UNION_MEMBER = re.compile(r"(str|int|float|bool|list|dict)(\[.*\])?")
"""Names of a union's members, which pydantic puts into the path of what was wrong."""


def _dotted(path: list[Any]) -> str:
    """`messages[0].content` from its parts."""
    text = ""
    for position, part in enumerate(path):
        if isinstance(part, int):
            text += f"[{part}]"
        elif position == 0 or not _UNION_MEMBER.fullmatch(part):
            text += f".{part}" if text else part
    return text
