"""What an engine raises."""

from __future__ import annotations

from legato.errors import LegatoError


class EngineError(LegatoError):
    """A library call failed; the context is still usable, the sequences in the call are not."""


class AbortedError(EngineError):
    """An interruptible call was ended; parts of the batch may have reached the cells."""
