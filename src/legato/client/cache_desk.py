"""What the worker remembers of prompts: questions to it, and what it said last."""

from __future__ import annotations

import asyncio
import itertools

from legato.client.status import NotReadyError
from legato.client.supervisor import Supervisor
from legato.core.cache import CacheAction, CacheFigures
from legato.wire.messages import CacheCommand, CacheReply


class CacheDesk:
    """Asks a supervisor's worker, and keeps its figures."""

    def __init__(self, supervisor: Supervisor) -> None:
        self.figures: CacheFigures | None = None
        """How much is remembered, as the worker said last; None if it has not."""
        self._supervisor = supervisor
        self._numbers = itertools.count(1)
        self._asked: dict[int, asyncio.Future[CacheReply]] = {}

    async def ask(self, action: CacheAction, entry: str | None = None) -> CacheReply:
        """Ask what is remembered, after the action on an entry, or the beginning of its id; None for all.

        Raises:
            NotReadyError: No model is ready, or the worker ended before it answered.
        """
        self._supervisor.ready()
        number = next(self._numbers)
        answer: asyncio.Future[CacheReply] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        self._supervisor.send(CacheCommand(number, action, entry))
        return await answer

    def take(self, message: CacheFigures | CacheReply) -> None:
        """The worker told figures, alone or with an answer."""
        if isinstance(message, CacheFigures):
            self.figures = message
            return
        self.figures = message.figures
        if (asked := self._asked.pop(message.number, None)) is not None and not asked.done():
            asked.set_result(message)

    def forget(self) -> None:
        """The worker that was asked is gone."""
        self.figures = None
        for asked in self._asked.values():
            if not asked.done():
                asked.set_exception(NotReadyError("The engine stopped while it was asked; try again in a moment."))
        self._asked.clear()
