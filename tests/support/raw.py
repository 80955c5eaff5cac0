"""Requests over a plain socket, for clients that behave as no library would."""

from __future__ import annotations

import json
import socket
from typing import Any

from tests.support.server import LegatoProcess


def raw_post(server: LegatoProcess, path: str, body: dict[str, Any], receive_buffer: int = 0) -> socket.socket:
    """A request's connection, ours to close."""
    content = json.dumps(body)
    head = ("Host: localhost", "Content-Type: application/json", f"Content-Length: {len(content)}", "", content)
    connection = socket.socket()
    if receive_buffer:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        # Small segments also keep the server's own buffer small, which loopback's would make megabytes.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)
    connection.connect(("127.0.0.1", server.port))
    connection.sendall("\r\n".join((f"POST {path} HTTP/1.1", *head)).encode())
    return connection
