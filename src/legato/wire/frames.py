"""Messages on a stream socket: each is a frame, its length in four bytes and then its bytes.

A plain socket pair, because a token's way from the engine to its reader matters: the engine's thread writes straight
into the socket and the server's event loop wakes from it, with no thread of a messaging library between them that would
need the CPU that the engine computes on.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

_LENGTH = struct.Struct("<I")


def frame(message: bytes) -> bytes:
    """A message as it travels."""
    return _LENGTH.pack(len(message)) + message


class FrameBuffer:
    """Collects what a socket brings until it makes whole messages."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> None:
        """Take bytes in."""
        self._data += data

    def __iter__(self) -> Iterator[bytes]:
        """The whole messages so far; each is given once."""
        while (message := self.take()) is not None:
            yield message

    def take(self) -> bytes | None:
        """The next whole message, or None if there is none yet."""
        if len(self._data) < _LENGTH.size:
            return None
        end = _LENGTH.size + _LENGTH.unpack_from(self._data)[0]
        if len(self._data) < end:
            return None
        message = bytes(self._data[_LENGTH.size : end])
        del self._data[:end]
        return message
