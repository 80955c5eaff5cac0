"""What an engine is doing, and what a person is told who asks for an answer meanwhile."""

from __future__ import annotations

from dataclasses import dataclass

from legato.errors import LegatoError
from legato.wire import messages


class NotReadyError(LegatoError):
    """No model is ready: it is being loaded, failed to load, or the server is stopping."""


@dataclass(frozen=True, slots=True)
class Loading:
    """The model is being loaded, for the first time or again after a crash."""

    share: float = 0.0
    """0 to 1."""
    reason: str | None = None
    """Why it is loaded again."""


Ready = messages.Ready
"""The model answers."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The model cannot be loaded; nothing is tried again."""

    reason: str


@dataclass(frozen=True, slots=True)
class Stopped:
    """The engine is stopping or has stopped."""


EngineStatus = Loading | Ready | Failed | Stopped


def describe(status: EngineStatus) -> str:
    """What a person is told who asks for an answer meanwhile: a sentence."""
    match status:
        case Loading(share=share, reason=None):
            return f"The model is being loaded ({share:.0%}); try again in a moment."
        case Loading(reason=reason):
            return f"The model is being loaded again after a failure: {reason}; try again in a moment."
        case Failed(reason=reason):
            return f"No model is ready: {reason}"
        case Stopped():
            return "The server is stopping and takes no new requests."
        case Ready():
            return "The model is ready."
