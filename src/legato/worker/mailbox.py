"""The worker's end of its connection to the server."""

from __future__ import annotations

import socket

import msgspec

from legato.wire.frames import FrameBuffer, frame
from legato.wire.messages import EngineSettings, FromWorker, ToWorker


class ServerGoneError(Exception):
    """The server closed its end: nobody is left to work for."""


class SocketMailbox:
    """The worker's end of the connection."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._buffer = FrameBuffer()
        self._decoder = msgspec.msgpack.Decoder(ToWorker)
        self._encoder = msgspec.msgpack.Encoder()

    def receive_settings(self) -> EngineSettings:
        """The first message.

        Raises:
            ServerGoneError: The server is gone.
        """
        while (message := self._buffer.take()) is None:
            self._read(wait=True)
        return msgspec.msgpack.decode(message, type=EngineSettings)

    def receive(self, *, wait: bool) -> ToWorker | None:
        """The next message; with `wait` it blocks until there is one, else None says that there is none.

        Raises:
            ServerGoneError: The server is gone.
        """
        while (message := self._buffer.take()) is None:
            if not self._read(wait=wait):
                return None
        request: ToWorker = self._decoder.decode(message)
        return request

    def _read(self, *, wait: bool) -> bool:
        """Read what there is; False if that was nothing."""
        try:
            data = self._socket.recv(1 << 16, 0 if wait else socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except ConnectionError as error:
            raise ServerGoneError from error
        if not data:
            raise ServerGoneError
        self._buffer.feed(data)
        return True

    def send(self, message: FromWorker) -> None:
        """Send a message. It waits only while the server is hundreds of messages behind.

        Raises:
            ServerGoneError: The server is gone.
        """
        try:
            self._socket.sendall(frame(self._encoder.encode(message)))
        except ConnectionError as error:
            raise ServerGoneError from error
