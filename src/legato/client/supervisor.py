"""The life of one worker: started, started again after its death, given up when it can't load its model."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from typing import Any

import msgspec

from legato.client.clock import ServerClock, on_server_clock
from legato.client.status import EngineStatus, Failed, Loading, NotReadyError, Ready, Stopped, describe
from legato.client.transport import Transport, WorkerLink
from legato.scheduling.costs import Coefficients
from legato.wire import messages
from legato.wire.messages import EngineSettings, FromWorker, ToWorker

logger = logging.getLogger(__name__)

BACKOFF_S = (0.2, 1.0, 5.0, 15.0, 30.0)
"""Pauses before the first, second, … restart in a row; the last one holds for all further ones."""
STEADY_S = 60.0
"""A worker that was ready for this long is steady: its end is the first in a row again."""
LOAD_ATTEMPTS = 3
"""Workers that may die in a row while loading, without a word, before the model counts as failed."""


class Supervisor:
    """Keeps one worker alive.

    `on_message` is given what workers say, with instants on the server's clock, `on_lost` how a worker ended, in words,
    and `on_failed` why there will be no other one, a sentence.
    """

    def __init__(
        self,
        settings: EngineSettings,
        transport: Transport,
        clock: ServerClock,
        *,
        on_message: Callable[[FromWorker], None],
        on_lost: Callable[[str], None],
        on_failed: Callable[[str], None],
    ) -> None:
        self.settings = settings
        """Those of the present worker and of the next one."""
        self.status: EngineStatus = Loading()
        self.link: WorkerLink | None = None
        """The present worker; None between two of them."""
        self._transport = transport
        self._clock = clock
        self._on_message = on_message
        self._on_lost = on_lost
        self._on_failed = on_failed
        self._changes: list[ToWorker] = []
        """What a worker that is being started is to be told then."""
        self._ready_since_s = math.inf
        """When the present worker had its model loaded; infinity until then."""
        self._settled = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    # Life

    def start(self) -> None:
        """Begin to load the model."""
        self._task = asyncio.create_task(self._supervise_or_fail())

    def refuse_new(self) -> None:
        """Say that the engine stops; the worker goes on."""
        if not isinstance(self.status, Failed):
            self._become(Stopped())

    async def close(self) -> None:
        """End the worker at once, and start no other one."""
        self._become(Stopped())
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self.link is not None:
            await self.link.stop()
            self.link = None

    async def settled(self) -> EngineStatus:
        """Wait until the model is ready, has failed, or is to be stopped."""
        while isinstance(self.status, Loading):
            await self._settled.wait()
        return self.status

    def ready(self) -> Ready:
        """The status of an engine that answers.

        Raises:
            NotReadyError: No model is ready.
        """
        if not isinstance(self.status, Ready):
            raise NotReadyError(describe(self.status))
        return self.status

    def _become(self, status: EngineStatus) -> None:
        self.status = status
        if isinstance(status, Loading):
            self._settled.clear()
        else:
            self._settled.set()

    async def _supervise_or_fail(self) -> None:
        try:
            await self._supervise()
        except Exception as error:
            logger.exception("the engine can't be supervised")
            self._fail(f"The engine worker can't be run: {error}.")

    async def _supervise(self) -> None:
        deaths = failed_loads = 0
        while True:
            how = await self._run_worker()
            if isinstance(self.status, Failed):
                return
            ready_s = self._clock.now() - self._ready_since_s
            deaths = 1 if ready_s > STEADY_S else deaths + 1
            failed_loads = 0 if ready_s >= 0 else failed_loads + 1
            logger.warning("%s; %s", how, "it had not finished loading" if failed_loads else "restarting")
            if failed_loads >= LOAD_ATTEMPTS:
                times = f"{failed_loads} times in a row"
                self._fail(f"The model could not be loaded: {how}, {times}; `legato doctor` may know why.")
                return
            if not isinstance(self.status, Stopped):
                self._become(Loading(reason=how))
            await self._clock.sleep(BACKOFF_S[min(deaths, len(BACKOFF_S)) - 1])

    async def _run_worker(self) -> str:
        """Start a worker, wait for its end, and say how it ended."""
        self._ready_since_s = math.inf
        self._changes.clear()
        self.link = await self._transport.start(self.settings, self._receive)
        for change in self._changes:
            self.send(change)
        how = await self.link.wait()
        self.link = None
        self._on_lost(how)
        return how

    def _fail(self, reason: str) -> None:
        self._become(Failed(reason))
        self._on_failed(reason)

    # Messages

    def send(self, message: ToWorker) -> None:
        """Send a message to the present worker; it goes nowhere while there is none."""
        if self.link is not None:
            self.link.send(message)

    def change(self, message: ToWorker, **settings: Any) -> None:
        """Change settings of later workers, and tell the present one, or that which is being started, by a message."""
        self.settings = msgspec.structs.replace(self.settings, **settings)
        if self.link is None:
            self._changes.append(message)
        self.send(message)

    def _receive(self, message: FromWorker) -> None:
        match message:
            case messages.Report() if self.link is not None:
                message = on_server_clock(message, self.link.clock.offset_s)
            case messages.Loading(share=share):
                if isinstance(self.status, Loading):
                    self._become(Loading(share, self.status.reason))
            case Ready():
                self._ready_since_s = self._clock.now()
                self._remember(message.model.costs)
                if not isinstance(self.status, Stopped):
                    self._become(message)
            case messages.LoadFailed(reason=reason):
                self._fail(reason)
            case messages.LearnedCosts(costs=costs):
                self._remember(costs)
        self._on_message(message)

    def _remember(self, costs: Coefficients) -> None:
        """The next worker need not calibrate, nor learn again what steps cost."""
        self.settings = msgspec.structs.replace(self.settings, costs=costs)
