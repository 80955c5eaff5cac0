"""What the engine says of an answer."""

from __future__ import annotations

from typing import Literal

import msgspec


class Logprobs(msgspec.Struct, frozen=True, array_like=True):
    """Natural logarithms of probabilities under the model alone."""

    chosen: float
    top: list[tuple[int, float]]
    """The likeliest tokens with theirs, likeliest first."""


EngineEnd = Literal["stop", "length", "failed"]
"""Why the engine ended a request: the model's end token, no more tokens allowed, or an error."""
