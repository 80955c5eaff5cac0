"""A file that is still being written: hashed on the way in, and put in place whole or not at all."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from types import TracebackType
from typing import Final, NoReturn, Self

from legato.errors import LegatoError
from legato.files import sync_folder

_ENDING: Final = ".partial"


def partial_path(destination: Path) -> Path:
    """Say where the beginning of a file lies until the whole of it is at its destination."""
    return destination.with_name(destination.name + _ENDING)


class PartialFile:
    """The beginning of a download, next to the place where the whole file will be.

    What an earlier, interrupted download left is kept and hashed, so that the next one can go on behind it.
    """

    def __init__(self, destination: Path, label: str) -> None:
        self._destination = destination
        self._label = label
        self._path = partial_path(destination)
        # Not a `with`: the file lives as long as this object, whose own `with` closes it.
        self._file = self._path.open("a+b")
        self._file.seek(0)
        self._hash = hashlib.file_digest(self._file, "sha256")
        self.size_bytes = self._file.tell()
        """Bytes written so far, by this download and the ones before it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def append(self, chunk: bytes) -> None:
        """Write the next bytes of the file."""
        self._file.write(chunk)
        self._hash.update(chunk)
        self.size_bytes += len(chunk)

    def restart(self) -> None:
        """Forget everything written so far."""
        self._file.seek(0)
        self._file.truncate()
        self._hash = hashlib.sha256()
        self.size_bytes = 0

    def discard(self, reason: str) -> NoReturn:
        """Remove what has come, because it cannot become the file that was declared; the reason is half a sentence.

        Raises:
            LegatoError: Always.
        """
        self._path.unlink(missing_ok=True)
        raise LegatoError(f"The download of {self._label} was damaged ({reason}) and has been removed; pull it again.")

    def finish(self, size_bytes: int, sha256: str | None) -> None:
        """Check the file and put it in place.

        Args:
            size_bytes: The size it must have.
            sha256: The SHA-256 it must have, in lower-case hexadecimal; None where the source declares none.

        Raises:
            LegatoError: It is another file than the source declared; the bad one is gone.
        """
        if self.size_bytes != size_bytes:
            self.discard(f"it has {self.size_bytes} bytes where {size_bytes} were declared")
        if sha256 is not None and self._hash.hexdigest() != sha256:
            self.discard("its SHA-256 is not the declared one")
        self._file.flush()
        os.fsync(self._file.fileno())
        self._path.replace(self._destination)
        sync_folder(self._destination.parent)
