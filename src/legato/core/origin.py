"""Who asked for what, through which API, and how that ended."""

from __future__ import annotations

from typing import Literal

import msgspec

EndReason = Literal["stop", "length", "cancelled", "failed"]
"""Why an answer ended: the model or a stop string, no more tokens allowed, the client went away, or an error."""
Endpoint = Literal["chat", "completions"]
"""Which API a request came through."""
ServiceTier = Literal["default", "flex"]
"""How a request is served: like others, or as background work, which gets what others leave."""


class Origin(msgspec.Struct, frozen=True):
    """Who asked for what."""

    id: str
    """As in the answer's body; `ID-1` and so on for further choices of one request."""
    endpoint: Endpoint
    client: str | None = None
    """Name of the API key that sent it; None without one."""
    service_tier: ServiceTier = "default"
