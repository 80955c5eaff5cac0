"""A small hub on 127.0.0.1: as much of the hub's protocol as its client needs, and its faults on order.

Like the real one it has two addresses: the hub itself, and the storage that large files are redirected to.
"""

from __future__ import annotations

import hashlib
import json
import re
import socket
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable

COMMIT = "c" * 40
NEXT_COMMIT = "d" * 40
_TOKEN = "Bearer hf_good"
_CHUNK_BYTES = 64 * 1024


@dataclass
class Repo:
    files: dict[str, bytes]
    commit: str = COMMIT
    gated: bool = False
    # Large files are redirected to the storage; small ones are git objects, served by the hub itself.
    large: bool = True
    declared_bytes: int | None = None
    # What the storage really sends, where that is not the file.
    tampered: bytes | None = None


@dataclass
class Request:
    method: str
    path: str
    range: str | None
    authorization: str | None
    sent_bytes: int = 0


@dataclass
class Storage:
    """Faults of the storage, each used up by one request for contents."""

    cut_after: list[int] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    ignores_range: bool = False


class FakeHub:
    def __init__(self) -> None:
        self.repos: dict[str, Repo] = {}
        self.storage = Storage()
        self.requests: list[Request] = []
        self.api_body: bytes | None = None
        self.api_status = 200
        self.silent = False
        # Contents stop after half of them until this is set.
        self.go_on = threading.Event()
        self.go_on.set()
        self._lock = threading.Lock()
        self._hub = self._serve(_HubHandler)
        self._cdn = self._serve(_StorageHandler)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._hub.server_address[1]}"

    @property
    def storage_address(self) -> str:
        return f"http://127.0.0.1:{self._cdn.server_address[1]}"

    @property
    def downloads(self) -> list[Request]:
        """The requests for contents, in order."""
        return [request for request in self.requests if request.method == "GET" and not request.path.startswith("/api")]

    @property
    def sent_bytes(self) -> int:
        return sum(request.sent_bytes for request in self.downloads)

    def note(self, request: Request) -> None:
        with self._lock:
            self.requests.append(request)

    def contents(self, digest: str) -> bytes | None:
        for repo in self.repos.values():
            for data in repo.files.values():
                if hashlib.sha256(data).hexdigest() == digest:
                    return repo.tampered or data
        return None

    def close(self) -> None:
        self.silent = False
        self.go_on.set()
        for server in (self._hub, self._cdn):
            server.shutdown()
            server.server_close()

    def _serve(self, handler: type[_Handler]) -> ThreadingHTTPServer:
        server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (handler,), {"hub": self}))
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        return server


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: FakeHub

    def setup(self) -> None:
        super().setup()
        self.requested = Request("", "", None, None)

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass

    def respond(self) -> None:
        raise NotImplementedError

    def send(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, content in headers.items():
            self.send_header(name.replace("_", "-"), content)
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def fail(self, status: int, code: str) -> None:
        self.send(status, X_Error_Code=code, X_Error_Message=code)

    def _answer(self) -> None:
        self.requested = Request(
            self.command, urlsplit(self.path).path, self.headers.get("Range"), self.headers.get("Authorization")
        )
        # A client that was killed takes its end of the connection with it.
        try:
            self.respond()
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True


class _HubHandler(_Handler):
    def respond(self) -> None:
        if self.hub.silent:
            # No answer until the client has gone: its end of the connection closes, and this read ends.
            self.connection.recv(1)
            self.close_connection = True
            return
        path = unquote(urlsplit(self.path).path)
        if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/.+)?", path):
            self.hub.note(self.requested)
            self._respond_info(match[1])
        elif match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            self._respond_file(match[1], match[3])
        else:
            self.fail(404, "NotFound")

    def _respond_info(self, name: str) -> None:
        repo = self.hub.repos.get(name)
        if self.hub.api_body is not None or self.hub.api_status != 200:
            self.send(self.hub.api_status, self.hub.api_body or b"", Content_Type="text/html")
        elif repo is None:
            self.fail(401, "RepoNotFound")
        else:
            siblings = [{"rfilename": file} for file in ["README.md", *repo.files]]
            self.send(200, json.dumps({"id": name, "sha": repo.commit, "siblings": siblings}).encode())

    def _respond_file(self, name: str, file: str) -> None:
        repo = self.hub.repos.get(name)
        if repo is None or file not in repo.files:
            self.fail(404, "RepoNotFound" if repo is None else "EntryNotFound")
        elif repo.gated and self.requested.authorization != _TOKEN:
            self.hub.note(self.requested)
            self.fail(403, "GatedRepo")
        elif repo.large:
            data = repo.files[file]
            digest = hashlib.sha256(data).hexdigest()
            if self.command == "HEAD":
                self.hub.note(self.requested)
            self.send(
                302,
                Location=f"{self.hub.storage_address}/{digest}",
                X_Repo_Commit=repo.commit,
                X_Linked_Etag=f'"{digest}"',
                X_Linked_Size=str(repo.declared_bytes or len(data)),
                ETag='"of-the-redirect"',
            )
        else:
            self.hub.note(self.requested)
            data = repo.files[file]
            git_sha1 = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
            self.send(200, data, X_Repo_Commit=repo.commit, ETag=f'"{git_sha1}"')


class _StorageHandler(_Handler):
    def respond(self) -> None:
        self.hub.note(self.requested)
        storage = self.hub.storage
        data = self.hub.contents(self.path.strip("/"))
        if data is None:
            self.fail(404, "EntryNotFound")
        elif storage.statuses:
            self.send(storage.statuses.pop(0))
        else:
            start = self._start() if not storage.ignores_range else 0
            stop = len(data) if not storage.cut_after else start + storage.cut_after.pop(0)
            self._send_contents(data, start, min(stop, len(data)))

    def _start(self) -> int:
        match = re.fullmatch(r"bytes=(\d+)-", self.requested.range or "")
        return int(match[1]) if match else 0

    def _send_contents(self, data: bytes, start: int, stop: int) -> None:
        span = {"Content_Range": f"bytes {start}-{len(data) - 1}/{len(data)}"} if start else {}
        self.send(206 if start else 200, Content_Length=str(len(data) - start), **span)
        half = (start + stop) // 2
        self._write(data, start, half)
        self.hub.go_on.wait()
        self._write(data, half, stop)
        if stop < len(data):
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)

    def _write(self, data: bytes, start: int, stop: int) -> None:
        for position in range(start, stop, _CHUNK_BYTES):
            chunk = data[position : min(position + _CHUNK_BYTES, stop)]
            self.wfile.write(chunk)
            self.requested.sent_bytes += len(chunk)


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until something has happened; the test's own timeout is the limit."""
    pause = threading.Event()
    while not condition():
        pause.wait(0.01)
