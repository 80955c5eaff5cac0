"""Sessions of people who have shown an API key to the dashboard: the key itself is sent once, and kept nowhere."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field

COOKIE = "legato_session"
"""Name of the cookie that stands for the key."""
LASTS_S = 30 * 86_400.0
"""How long a session lasts after it was used last."""
MOST_SESSIONS = 1_000
"""Sessions that are remembered; beyond that the oldest end."""


@dataclass(slots=True)
class Sessions:
    """Who is logged in. A restart ends all sessions."""

    _by_token: dict[str, tuple[str | None, float]] = field(default_factory=dict)
    """The name of the key, and when the session was used last, on the monotonic clock."""

    def begin(self, client: str | None) -> str:
        """Log in whoever has shown a key of that name, or without one; returns what the cookie holds."""
        token = secrets.token_urlsafe(32)
        self._by_token[token] = client, time.monotonic()
        if len(self._by_token) > MOST_SESSIONS:
            del self._by_token[next(iter(self._by_token))]
        return token

    def end(self, token: str) -> None:
        """Log somebody out; nothing happens if the session has ended."""
        self._by_token.pop(token, None)

    def client(self, token: str) -> tuple[bool, str | None]:
        """Whether there is such a session, and the name of its key.

        The token is long and random, so that looking it up tells nobody anything.
        """
        found = self._by_token.get(token)
        if found is None or time.monotonic() - found[1] > LASTS_S:
            return False, None
        # Put last again: the oldest in use stay.
        self._by_token[token] = self._by_token.pop(token)[0], time.monotonic()
        return True, found[0]
