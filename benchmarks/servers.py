"""Servers under measurement: Legato and llama.cpp's own, on free loopback ports, ended with their context."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import httpx

ROOT = Path(__file__).parent.parent
PEER = ROOT / ".venv-peer"


@dataclass(frozen=True)
class Target:
    """A server and how it is started."""

    name: str
    command: list[str]
    environment: dict[str, str]


@dataclass(frozen=True)
class Running:
    """A server that is ready."""

    port: int
    pid: int
    ready_s: float
    """From start to ready."""
    log: IO[bytes]

    def output(self) -> str:
        """What it printed."""
        self.log.seek(0)
        return self.log.read().decode("utf-8", "replace")


def legato(name: str, model: Path, *options: str) -> Target:
    """Legato from this tree."""
    return Target(name, [sys.executable, "-m", "legato", "serve", str(model), *options, "--port"], {})


def llama_server(name: str, model: Path, *options: str) -> Target | None:
    """llama.cpp's own server in its native build; None if it is not built."""
    found = sorted(PEER.glob("lib/python*/site-packages/**/llama-server"))
    binaries = [path for path in found if path.is_file() and os.access(path, os.X_OK)]
    if not binaries:
        return None
    return Target(
        name,
        [str(binaries[0]), "-m", str(model), "--no-ui", *options, "--port"],
        {"LD_LIBRARY_PATH": os.pathsep.join(_library_folders())},
    )


def _library_folders() -> list[str]:
    """Folders with the peer's libraries under the names that the loader asks for, which its wheel leaves out."""
    folder = PEER / "libraries"
    folder.mkdir(exist_ok=True)
    for library in PEER.glob("lib/python*/site-packages/**/*.so*"):
        if not library.name.startswith("lib") or library.is_symlink():
            continue
        base = library.name.split(".so")[0] + ".so"
        for name in {base, f"{base}.0", library.name}:
            link = folder / name
            if not link.exists():
                link.unlink(missing_ok=True)
                link.symlink_to(library)
    return [str(folder)]


@contextmanager
def running(target: Target) -> Iterator[Running]:
    """Start a server, wait until it is ready, and end it afterwards.

    Raises:
        RuntimeError: It ended or was not ready in time; with what it printed.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryFile() as log:
        begun = time.perf_counter()
        process = subprocess.Popen(
            [*target.command, str(port)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, **target.environment},
        )
        server = Running(port, process.pid, 0.0, log)
        try:
            while not _is_ready(port):
                if process.poll() is not None or time.perf_counter() - begun > 120:
                    raise RuntimeError(f"{target.name} did not start: {server.output()[-2000:]}")
                time.sleep(0.01)
            yield Running(port, process.pid, time.perf_counter() - begun, log)
        finally:
            process.terminate()
            process.wait()


def _is_ready(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health", timeout=2).status_code == 200
    except httpx.TransportError:
        return False
