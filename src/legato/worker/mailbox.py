"""The worker's end of its connection to the server."""

from __future__ import annotations

import socket

import msgspec

from legato.wire.frames import FrameBuffer, frame
from legato.wire.messages import EngineSettings, FromWorker, ToWorker


class SocketMailbox:
    """The worker's end of the connection.

    Raises:
        ConnectionError: By any of its methods, once the server is gone: nobody is left to work for.
    """

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._buffer = FrameBuffer()
        self._decoder = msgspec.msgpack.Decoder(ToWorker)
        self._encoder = msgspec.msgpack.Encoder()

    def receive_settings(self) -> EngineSettings:
        """The first message."""
        message = self._next(wait=True)
        assert message is not None, "it was waited for"
        return msgspec.msgpack.decode(message, type=EngineSettings)

    def receive(self, *, wait: bool) -> ToWorker | None:
        """The next message; with `wait` it blocks until there is one, else None says that there is none."""
        message = self._next(wait=wait)
        request: ToWorker | None = None if message is None else self._decoder.decode(message)
        return request

    def _next(self, *, wait: bool) -> bytes | None:
        while (message := self._buffer.take()) is None:
            try:
                data = self._socket.recv(1 << 16, 0 if wait else socket.MSG_DONTWAIT)
            except BlockingIOError:
                return None
            if not data:
                raise ConnectionResetError("the server closed its end")
            self._buffer.feed(data)
        return message

    def send(self, message: FromWorker) -> None:
        """Send a message. It waits only while the server is hundreds of messages behind."""
        self._socket.sendall(frame(self._encoder.encode(message)))
