"""One process at a time changes a model in the store; the others wait for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from filelock import AcquireReturnProxy, FileLock, Timeout

from legato.errors import LegatoError


def pulling(folder: Path, name: str, say: Callable[[str], None]) -> AcquireReturnProxy:
    """Take the lock of a model for a `with` in which it is pulled; wait while somebody else holds it.

    The operating system frees the lock of a process that was killed.

    Args:
        folder: Where the locks lie.
        name: The model's catalogue name or repository.
        say: Takes a line that says what is waited for.
    """
    lock = _lock(folder, name)
    try:
        return lock.acquire(timeout=0)
    except Timeout:
        say(f"Another process is pulling {name}; waiting for it to finish")
        return lock.acquire()


def removing(folder: Path, name: str) -> AcquireReturnProxy:
    """Take the lock of a model for a `with` in which it is removed.

    Raises:
        LegatoError: Somebody is pulling it.
    """
    try:
        return _lock(folder, name).acquire(timeout=0)
    except Timeout:
        raise LegatoError(f"{name} is being pulled by another process; stop that one or wait for it.") from None


def _lock(folder: Path, name: str) -> FileLock:
    folder.mkdir(parents=True, exist_ok=True)
    return FileLock(folder / (name.replace("/", "--") + ".lock"))
