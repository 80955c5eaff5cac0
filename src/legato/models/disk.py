"""What can go wrong with files and with the store's disk, in sentences."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from legato.errors import LegatoError

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_FORBIDDEN: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_ELSEWHERE: Final = "or set LEGATO_MODELS_DIR to a folder"


@contextmanager
def disk_failures(root: Path) -> Iterator[None]:
    """Turn the errors of the disk that holds the model store `root` into a sentence.

    Raises:
        LegatoError: In place of an OSError.
    """
    try:
        yield
    except OSError as error:
        raise LegatoError(_sentence(error, root)) from error


def require_space(root: Path, needed_bytes: int) -> None:
    """Refuse a download that cannot fit before its first byte.

    Args:
        root: A folder on the disk in question; it exists.
        needed_bytes: What is still to come, in bytes.

    Raises:
        LegatoError: The disk has less room than that.
    """
    free_bytes = shutil.disk_usage(root).free
    if free_bytes < needed_bytes:
        raise LegatoError(
            f"The disk of the model store {root} has {readable_bytes(free_bytes)} free where "
            f"{readable_bytes(needed_bytes)} are needed; make room there, {_ELSEWHERE} on another disk."
        )


def readable_bytes(count: int) -> str:
    """Write a number of bytes as people read it, in decimal units: 98_362_432 is "98.4 MB"."""
    size = float(count)
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{count} bytes" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def bytes_under(folder: Path) -> int:
    """Add up the sizes of all files in a folder, links to files left out."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def no_such_file(path: Path) -> LegatoError:
    """Make the error for a path that leads to nothing."""
    return LegatoError(f"There is no file {path}; check the path for typing errors.")


def unreadable(path: Path, error: OSError) -> LegatoError:
    """Make the error for a file that cannot be read."""
    return LegatoError(f"{path} cannot be read ({_reason(error)}); make it readable or give another file.")


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def _sentence(error: OSError, root: Path) -> str:
    if error.errno in _FULL:
        return f"The disk of the model store {root} is full; make room there, {_ELSEWHERE} on another disk."
    reason = _reason(error)
    if error.errno in _FORBIDDEN:
        return f"The model store {root} cannot be changed ({reason}); make it writable, {_ELSEWHERE} that is."
    return f"The model store {root} cannot be used ({reason}); mend that, {_ELSEWHERE} that can."
