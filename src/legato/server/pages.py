"""The dashboard: its files, its live events, and logging in."""

from __future__ import annotations

import asyncio
import functools
import mimetypes
from pathlib import Path
from typing import Final

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict
from starlette.responses import FileResponse, Response

from legato import __version__
from legato.server.access import KeyRing
from legato.server.api_error import ApiError
from legato.server.broadcast import Broadcast
from legato.server.routes import client_of, clients_of, service_of
from legato.server.sessions import COOKIE, LASTS_S, Sessions
from legato.server.sse import EventStream

router = APIRouter()

FOLDER: Final = Path(__file__).parent / "dashboard"
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""Nothing but the server's own files and its own API."""
HEADERS: Final = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    # Asked for again each time, and answered with "not modified": an update of the server is an update of its page.
    "cache-control": "no-cache",
}
WRONG_KEY_PAUSE_S: Final = 0.5
"""How long a wrong key waits for its answer."""

# Not what the system says, which on some knows no modules.
mimetypes.add_type("text/javascript", ".js")


@functools.cache
def _files() -> dict[str, Path]:
    """The page's files by their paths in its folder. No other path is ever looked up, however it is spelled."""
    return {file.relative_to(FOLDER).as_posix(): file for file in FOLDER.rglob("*") if file.is_file()}


class Login(BaseModel):
    """Body of `POST /login`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    key: str


@router.get("/")
async def page() -> Response:
    """The page; it has no data in it, and asks for them with what it was given."""
    return FileResponse(FOLDER / "index.html", headers=HEADERS)


@router.get("/assets/{path:path}")
async def asset(path: str) -> Response:
    """One of its files."""
    file = _files().get(path)
    if file is None:
        raise ApiError(404, f"There is no file {path[:100]!r} here.", code="not_found")
    return FileResponse(file, headers=HEADERS)


@router.get("/api/live")
async def live(request: Request) -> Response:
    """What changes, as events; see `legato.server.broadcast`."""
    broadcast: Broadcast = request.app.state.broadcast
    clients, client = clients_of(request), client_of(request)
    hello = {
        "version": __version__,
        "model": service_of(request).name,
        "client": client,
        "admin": clients.is_admin(client),
        "keys": clients.has_keys,
    }
    return EventStream(broadcast.watch(hello))


@router.get("/login")
async def login_needed(request: Request) -> dict[str, bool]:
    """Whether the page has to ask for a key, so that it need not be refused to find out."""
    ring: KeyRing = request.app.state.key_ring
    sessions: Sessions = request.app.state.sessions
    has_session, _ = sessions.client(request.cookies.get(COOKIE, ""))
    return {"needed": bool(ring) and not has_session}


@router.post("/login")
async def login(request: Request, body: Login) -> Response:
    """Show a key, and get a session for it."""
    ring: KeyRing = request.app.state.key_ring
    sessions: Sessions = request.app.state.sessions
    is_known, client = ring.client_of(body.key.encode("utf-8", "surrogatepass"))
    if not is_known:
        await asyncio.sleep(WRONG_KEY_PAUSE_S)
        raise ApiError(
            401, "This API key is not known here; ask whoever runs the server for one.", code="invalid_api_key"
        )
    response = Response(status_code=204)
    is_encrypted = request.headers.get("x-forwarded-proto", request.url.scheme) == "https"
    response.set_cookie(
        COOKIE, sessions.begin(client), max_age=int(LASTS_S), httponly=True, samesite="strict", secure=is_encrypted
    )
    return response


@router.post("/logout")
async def logout(request: Request) -> Response:
    """End the session."""
    sessions: Sessions = request.app.state.sessions
    sessions.end(request.cookies.get(COOKIE, ""))
    response = Response(status_code=204)
    response.delete_cookie(COOKIE, httponly=True, samesite="strict")
    return response
