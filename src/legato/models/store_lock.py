"""One process at a time changes a model in the store; the others wait for it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from legato.errors import LegatoError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@contextmanager
def pulling(folder: Path, name: str, say: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock of a model while it is pulled; wait while somebody else does.

    The operating system frees the lock of a process that was killed.

    Args:
        folder: Where the locks lie.
        name: The model's catalogue name or repository.
        say: Takes a line that says what is waited for.
    """
    lock = _lock(folder, name)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        say(f"Another process is pulling {name}; waiting for it to finish")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


@contextmanager
def removing(folder: Path, name: str) -> Iterator[None]:
    """Hold the lock of a model while it is removed.

    Args:
        folder: Where the locks lie.
        name: The model's catalogue name or repository.

    Raises:
        LegatoError: Somebody is pulling it.
    """
    lock = _lock(folder, name)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise LegatoError(f"{name} is being pulled by another process; stop that one or wait for it.") from None
    try:
        yield
    finally:
        lock.release()


def _lock(folder: Path, name: str) -> FileLock:
    folder.mkdir(parents=True, exist_ok=True)
    return FileLock(folder / (name.replace("/", "--") + ".lock"))
