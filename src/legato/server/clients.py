"""What the names of API keys stand for: how a client's requests are served, and what it may do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from legato.core.origin import ServiceTier
from legato.server.access import is_loopback
from legato.server.api_error import ApiError
from legato.settings import Settings, key_gap_target_ms


@dataclass(frozen=True, slots=True)
class Clients:
    """The classes of API keys, by their names."""

    admins: frozenset[str] = frozenset()
    """Those that may change settings."""
    background: frozenset[str] = frozenset()
    """Those whose requests are background work, whatever they ask for."""
    gap_targets_s: Mapping[str, float] = field(default_factory=dict)
    """The gap targets of those that have one of their own, s."""
    has_keys: bool = False
    """Whether a key is needed at all."""
    on_loopback: bool = True
    """Whether only this machine can reach the server."""

    @classmethod
    def of(cls, settings: Settings) -> Clients:
        """As the settings name them."""
        targets = dict(map(key_gap_target_ms, settings.gap_targets))
        return cls(
            admins=frozenset(settings.admins),
            background=frozenset(settings.background_clients),
            gap_targets_s={name: target_ms / 1000 for name, target_ms in targets.items()},
            has_keys=bool(settings.api_keys),
            on_loopback=is_loopback(settings.host),
        )

    def service_tier(self, client: str | None, asked: ServiceTier) -> ServiceTier:
        """How a request is served: as it asks, but what a background client sends is always background work."""
        return "flex" if client in self.background else asked

    def gap_target_s(self, client: str | None, asked_ms: float | None) -> float | None:
        """The gap target of a request, s: its own, else its key's; None leaves it to the server's."""
        if asked_ms is not None:
            return asked_ms / 1000
        return self.gap_targets_s.get(client) if client is not None else None

    def is_admin(self, client: str | None) -> bool:
        """Whether the sender of a key of that name may change settings and what is remembered."""
        return client in self.admins if self.has_keys else self.on_loopback

    def check_admin(self, client: str | None) -> None:
        """Refuse whoever may not change settings or what is remembered.

        Raises:
            ApiError: The key is no admin's; or no key is needed, and others than this machine can reach the server.
        """
        if self.is_admin(client):
            return
        message = (
            "This API key may not change settings or what is remembered; start the server with --admin NAME for "
            "the key that may, and --api-key NAME=KEY if it has no name yet."
            if self.has_keys
            else "Others can reach this server without a key, so that its settings can't be changed; start it with "
            "--api-key NAME=KEY and --admin NAME."
        )
        raise ApiError(403, message, code="not_admin")
