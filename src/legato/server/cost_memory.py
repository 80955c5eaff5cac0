"""What calls cost on this machine, kept for the next start."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from legato.errors import LegatoError
from legato.scheduling.costs import Coefficients

logger = logging.getLogger(__name__)


class CostMemory:
    """Remembers what calls cost, without holding the event loop up.

    `save` keeps costs, in a thread, and raises LegatoError if it can't; those `known` are kept already.
    """

    def __init__(self, save: Callable[[Coefficients], None], known: Coefficients | None) -> None:
        self._save = save
        self._newest = known
        self._saving: asyncio.Task[None] | None = None

    def remember(self, costs: Coefficients) -> None:
        """Save in a thread; of what comes while that goes on only the newest is saved. Call it in the event loop."""
        if costs == self._newest:
            return
        self._newest = costs
        if self._saving is None or self._saving.done():
            self._saving = asyncio.create_task(self._save_newest())

    async def close(self) -> None:
        """Wait until everything is saved."""
        if self._saving is not None:
            await self._saving

    async def _save_newest(self) -> None:
        saved = None
        while (costs := self._newest) is not None and costs is not saved:
            try:
                await asyncio.to_thread(self._save, costs)
            except LegatoError as error:
                logger.warning("what calls cost is not remembered: %s", error)
            saved = costs
