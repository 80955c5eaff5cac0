"""What can go wrong between this computer and the hub, in sentences."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, cast

from huggingface_hub.errors import (
    DisabledRepoError,
    GatedRepoError,
    HfHubHTTPError,
    OfflineModeIsEnabled,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from legato.errors import LegatoError

# The base of all errors of the HTTP library that the hub's client is made with: httpx in its release 1, httpx2 in
# its release 2.
HttpError: Final = cast("type[Exception]", HfHubHTTPError.__bases__[0])

# Answers that another attempt may change.
_PASSING_STATUSES: Final = frozenset({408, 429, 500, 502, 503, 504})


@contextmanager
def hub_failures(repository: str, endpoint: str) -> Iterator[None]:
    """Turn the hub's and the network's errors inside the block into a sentence.

    Args:
        repository: `owner/repo`, what the block is about.
        endpoint: The hub's address.

    Raises:
        LegatoError: In place of the errors of huggingface_hub and of its HTTP library.
    """
    try:
        yield
    except (HttpError, OfflineModeIsEnabled) as error:
        raise LegatoError(_sentence(error, repository, endpoint)) from error


def is_passing(error: Exception) -> bool:
    """Say whether another attempt may succeed: the connection broke, or the hub is busy."""
    status = _status(error)
    if status is not None:
        return status in _PASSING_STATUSES
    return _is_a(error, "TransportError") and not _is_a(error, "UnsupportedProtocol")


def _sentence(error: Exception, repository: str, endpoint: str) -> str:
    if isinstance(error, OfflineModeIsEnabled):
        return f"HF_HUB_OFFLINE is set and {repository} is not in the store; unset it to pull the model once."
    if isinstance(error, GatedRepoError):
        return (
            f"{repository} is gated: accept its terms at {endpoint}/{repository}, then set HF_TOKEN to an access "
            "token of the account that did."
        )
    if isinstance(error, RepositoryNotFoundError):
        return f"{endpoint} has no repository {repository}, or it is private and HF_TOKEN does not open it."
    if isinstance(error, DisabledRepoError):
        return f"{repository} has been disabled on {endpoint}; choose another repository."
    if isinstance(error, RemoteEntryNotFoundError | RevisionNotFoundError):
        return f"{repository} on {endpoint} lists a file that it does not have; try again later."
    status = _status(error)
    return _network_sentence(error, endpoint) if status is None else _status_sentence(status, repository, endpoint)


def _status_sentence(status: int, repository: str, endpoint: str) -> str:
    if status in {401, 403}:
        return (
            f"{endpoint} refused access to {repository} (status {status}); check the token in HF_TOKEN and what it "
            "is allowed to read."
        )
    if status in _PASSING_STATUSES:
        return f"{endpoint} is too busy or has a fault (status {status}); try again later."
    return f"{endpoint} answered status {status} to the request for {repository}; check HF_ENDPOINT and the name."


def _network_sentence(error: Exception, endpoint: str) -> str:
    if _is_a(error, "TimeoutException"):
        return f"{endpoint} did not answer in time; check the network connection and try again."
    reason = str(error).strip().rstrip(".") or type(error).__name__
    return f"{endpoint} cannot be reached ({reason}); check the network connection and HF_ENDPOINT."


def _status(error: Exception) -> int | None:
    return error.response.status_code if isinstance(error, HfHubHTTPError) else None


def _is_a(error: Exception, name: str) -> bool:
    """Compare by name: httpx and httpx2 have the same classes, and only one of them is installed."""
    return any(kind.__name__ == name for kind in type(error).__mro__)
