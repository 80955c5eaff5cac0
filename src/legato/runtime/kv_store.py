"""What the loop needs of a store of KV state: `legato.kv.manager` in the worker, maybe nothing in a simulation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from legato.core.cache import CacheAction, CacheEntry, CacheFigures, Restored
from legato.core.tokens import KvState
from legato.kv.sources import Lease, Restore
from legato.runtime.request import Request
from legato.scheduling.scheduler import Lender


class KvStore(Protocol):
    """Lends KV sequences, and remembers what was in them. It owns `awaits` of each request, and nothing else of it."""

    @property
    def lender(self) -> Lender[Request]:
        """Lends the sequences."""
        ...

    @property
    def remembers(self) -> bool:
        """Whether anything is kept after its request."""
        ...

    def begin(self, request: Request, lease: Lease, now_s: float) -> Restored | Restore | None:
        """A request has cells; returns what it goes on from, or what is to be moved in first, if anything is."""
        ...

    def between_steps(self, held_back: Iterable[Request], now_s: float) -> Iterable[tuple[int, Restore | None]]:
        """News of those whose beginnings could not be moved yet, by request: what they wait for now, if for anything.

        Each is to be taken in before the next is asked for: one may follow another.
        """
        ...

    def restore(self, request: Request, slot: int, now_s: float) -> Restored | Restore:
        """Put the beginning of a prompt into its cells; returns what is there, or what is to be moved later."""
        ...

    def let_go(self, request: Request) -> None:
        """A request waits for nothing any more."""
        ...

    def released(self, request: Request, slot: int, computed_tokens: int, now_s: float) -> None:
        """A request gave its cells up, with so many tokens in them that are sound."""
        ...

    def keep(self, request: Request, state: KvState) -> None:
        """Remember a state that had to leave its cells anyway."""
        ...

    def use_time(self, room_s: float) -> bool:
        """Do a bit of what can wait, in at most so many seconds; whether anything was done."""
        ...

    def use_idle_time(self) -> bool:
        """The same while nobody needs the engine; whether there is more to do, or to wait for."""
        ...

    def act(self, action: CacheAction, entry_name: str | None) -> bool:
        """Change what is remembered; whether there is such an entry, and only one."""
        ...

    def set_budgets(self, memory_bytes: int | None, disk_bytes: int | None) -> None:
        """Change how much may be remembered; None leaves it."""
        ...

    @property
    def listing(self) -> list[CacheEntry]:
        """What is remembered."""
        ...

    @property
    def figures(self) -> CacheFigures:
        """How much is remembered."""
        ...

    def figures_if_changed(self) -> CacheFigures | None:
        """Figures, if they are others than when this was asked last."""
        ...

    def close(self) -> None:
        """The engine stops."""
        ...
