"""Reading GGUF's primitive values, with every length checked before it is believed."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias

from legato.errors import LegatoError

Scalar: TypeAlias = int | float | bool

# A header's strings and entries are visited one by one. The largest vocabularies have some hundred thousand strings,
# the largest models some thousand tensors; the limits keep a hostile header from keeping us busy for as long as its
# file is big.
_MOST_STRINGS: Final = 4_000_000
_MOST_ENTRIES: Final = 200_000
# The format's own limit for names.
_LONGEST_NAME_BYTES: Final = 65_535

STRING: Final = 8
ARRAY: Final = 9
# The format's number of each type that is no string or array -> struct's letter for it.
_LETTERS: Final = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_SCALARS: Final = {kind: struct.Struct(f"<{letter}") for kind, letter in _LETTERS.items()}


class GgufReader:
    """A position in a GGUF file's header.

    Every method raises LegatoError where the header asks for more than the file holds or breaks the format.
    """

    def __init__(self, file: BinaryIO, path: Path, size_bytes: int) -> None:
        self._file = file
        self._path = path
        self._size_bytes = size_bytes
        self._strings_left = _MOST_STRINGS
        self._entries_left = _MOST_ENTRIES
        self._position = file.tell()

    @property
    def position(self) -> int:
        """Bytes from the beginning of the file."""
        return self._position

    def u32(self) -> int:
        """Read an unsigned 32-bit number."""
        return int.from_bytes(self._take(4), "little")

    def u64(self) -> int:
        """Read an unsigned 64-bit number."""
        return int.from_bytes(self._take(8), "little")

    def count(self, smallest_item_bytes: int) -> int:
        """Read how many items follow.

        Args:
            smallest_item_bytes: What one of them takes in the file at the least.
        """
        number = self.u64()
        self._require(number * smallest_item_bytes)
        return number

    def visit_entries(self, count: int) -> None:
        """Account for metadata entries or tensors that will be read one by one."""
        self._entries_left -= count
        if self._entries_left < 0:
            raise self.malformed(f"more than {_MOST_ENTRIES} entries")

    def name(self) -> str:
        """Read a short string; bytes that are no UTF-8 become replacement characters."""
        length = self.u64()
        if length > _LONGEST_NAME_BYTES:
            self._require(length)
            raise self.malformed(f"a name of {length} bytes")
        return self._take(length).decode("utf-8", "replace")

    def scalar(self, kind: int) -> Scalar:
        """Read a number or truth value of the format's type `kind`."""
        layout = self._layout(kind)
        value: Scalar = layout.unpack(self._take(layout.size))[0]
        return value

    def skip_value(self, kind: int) -> None:
        """Pass over a value of the format's type `kind` without building it."""
        if kind == STRING:
            self._skip(self.count(1))
        elif kind != ARRAY:
            self._skip(self._layout(kind).size)
        elif (item_kind := self.u32()) == STRING:
            self._skip_strings()
        else:
            item_bytes = self._layout(item_kind).size
            self._skip(self.count(item_bytes) * item_bytes)

    def malformed(self, what: str) -> LegatoError:
        """Make the error for a header that breaks the format."""
        return LegatoError(f"{self._path} is not a sound GGUF file (its header has {what}); get another copy of it.")

    def _layout(self, kind: int) -> struct.Struct:
        layout = _SCALARS.get(kind)
        if layout is None:
            raise self.malformed(f"a value of the unknown type {kind}")
        return layout

    def _skip_strings(self) -> None:
        length = self.count(8)
        self._strings_left -= length
        if self._strings_left < 0:
            raise self.malformed(f"more than {_MOST_STRINGS} strings")
        # Vocabularies have hundreds of thousands of strings, so this loop is written for speed: the position is
        # checked before each read, and a short read at the end of the file is caught by the same check.
        read, seek, position, size = self._file.read, self._file.seek, self._position, self._size_bytes
        for _ in range(length):
            string_bytes = int.from_bytes(read(8), "little")
            position += 8 + string_bytes
            if position > size:
                raise self._cut_off()
            seek(string_bytes, os.SEEK_CUR)
        self._position = position

    def _take(self, length: int) -> bytes:
        self._require(length)
        data = self._file.read(length)
        if len(data) != length:
            raise self._cut_off()
        self._position += length
        return data

    def _skip(self, length: int) -> None:
        self._require(length)
        self._file.seek(length, os.SEEK_CUR)
        self._position += length

    def _require(self, length: int) -> None:
        if length > self._size_bytes - self._position:
            raise self._cut_off()

    def _cut_off(self) -> LegatoError:
        return LegatoError(
            f"{self._path} is cut off or damaged: its header does not fit into the file's {self._size_bytes} bytes; "
            "remove it and pull it again."
        )
