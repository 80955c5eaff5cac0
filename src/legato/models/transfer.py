"""One file from the hub to the disk, over as many connections as it takes.

huggingface_hub's own download throws away what it has when the process ends, and goes on after a broken connection
only from the last multiple of ten megabytes. Models are large and home connections break, so this keeps every byte.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from huggingface_hub import constants, get_session, hf_raise_for_status
from huggingface_hub.utils.tqdm import tqdm

from legato.errors import LegatoError
from legato.models.hub_failures import HttpError, is_passing
from legato.models.partial_file import PartialFile

# Attempts in a row that bring no byte before we give up, and the wait after the first of them, doubled each time.
_MOST_FAILURES: Final = 5
_FIRST_WAIT_S: Final = 0.5
_SHA256: Final = re.compile(r"[0-9a-f]{64}")

# The hub client's own progress bar, with a type. HF_HUB_DISABLE_PROGRESS_BARS hides it.
_progress_bar: Callable[..., Any] = tqdm


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file as the hub declares it."""

    name: str
    """Its name in the repository."""
    etag: str
    """The entity tag of its contents."""
    url: str
    """Where they are."""
    size_bytes: int

    @property
    def sha256(self) -> str | None:
        """Their SHA-256 in lower-case hexadecimal; None where the hub declares none.

        Large files have it as entity tag; git's own objects, which are small, have something else.
        """
        return self.etag if _SHA256.fullmatch(self.etag) else None


def download(remote: RemoteFile, destination: Path, headers: Mapping[str, str]) -> None:
    """Download a file, going on where an earlier download of it broke off.

    Args:
        remote: The file.
        destination: Where it goes, whole and checked; its folder exists.
        headers: What every request carries.

    Raises:
        LegatoError: The contents are not what the hub declared.
        Exception: HttpError where the hub or the network fails for good, OSError where the disk does.
    """
    with PartialFile(destination, remote.name) as partial:
        if partial.size_bytes > remote.size_bytes:
            partial.restart()
        with _progress_bar(
            desc=remote.name, total=remote.size_bytes, initial=partial.size_bytes,
            unit="B", unit_scale=True,
            # Shown on a terminal only.
            disable=None,
        ) as bar:  # fmt: skip
            failures = 0
            while partial.size_bytes < remote.size_bytes:
                before = partial.size_bytes
                error = _attempt(remote, partial, headers, bar)
                # Bytes came: the connection is fine again, and the next attempt may follow at once.
                failures = 0 if partial.size_bytes > before else failures + 1
                if failures >= _MOST_FAILURES:
                    raise error or LegatoError(f"The hub sends nothing for {remote.name}; try again later.")
                if failures:
                    time.sleep(_FIRST_WAIT_S * 2 ** (failures - 1))
        partial.finish(remote.size_bytes, remote.sha256)


def _attempt(remote: RemoteFile, partial: PartialFile, headers: Mapping[str, str], bar: Any) -> Exception | None:
    """Append what one connection brings; return the error that ended it where another attempt may help."""
    try:
        _append(remote, partial, headers, bar)
    except HttpError as error:
        if not is_passing(error):
            raise
        return error
    return None


def _append(remote: RemoteFile, partial: PartialFile, headers: Mapping[str, str], bar: Any) -> None:
    start = partial.size_bytes
    # Compressed contents could not be gone on with in the middle.
    ask = {**headers, "accept-encoding": "identity"} | ({"range": f"bytes={start}-"} if start else {})
    timeout_s = constants.HF_HUB_DOWNLOAD_TIMEOUT
    with get_session().stream("GET", remote.url, headers=ask, timeout=timeout_s, follow_redirects=True) as response:
        hf_raise_for_status(response)
        if start and response.status_code != HTTPStatus.PARTIAL_CONTENT:
            # The server sends the file from its beginning, whatever was asked.
            partial.restart()
            bar.update(-start)
        for chunk in response.iter_bytes():
            if partial.size_bytes + len(chunk) > remote.size_bytes:
                partial.discard(f"more than the declared {remote.size_bytes} bytes came")
            partial.append(chunk)
            bar.update(len(chunk))
