"""Questions about what is remembered, and their answers."""

from __future__ import annotations

import asyncio

import pytest

from legato.client.status import NotReadyError
from legato.core.cache import CacheFigures
from legato.wire.messages import CacheCommand, CacheReply
from tests.client.fake_transport import Stage, play

FEW = CacheFigures(1, 10, 100, 1, 0, 0, 0)
MANY = CacheFigures(9, 90, 100, 9, 0, 0, 0)


async def asked(stage: Stage) -> asyncio.Task[CacheReply]:
    asking = asyncio.create_task(stage.client.cache.ask("remove", "abc"))
    await asyncio.sleep(0)
    return asking


def test_an_answer_reaches_who_asked_whatever_else_was_asked_meanwhile() -> None:
    async def script(stage: Stage) -> None:
        first, second = await asked(stage), await asked(stage)
        assert stage.worker.take(CacheCommand) == [CacheCommand(1, "remove", "abc"), CacheCommand(2, "remove", "abc")]
        stage.worker.tell(CacheReply(2, True, [], MANY))
        stage.worker.tell(CacheReply(1, False, [], FEW))
        assert [(await first).number, (await second).number] == [1, 2]

    play(script)


def test_the_latest_figures_are_kept_until_the_worker_is_gone() -> None:
    async def script(stage: Stage) -> None:
        assert stage.client.cache.figures is None
        stage.worker.tell(FEW)
        assert stage.client.cache.figures == FEW
        stage.worker.tell(CacheReply(1, True, [], MANY))
        assert stage.client.cache.figures == MANY
        await stage.replace_worker()
        assert stage.client.cache.figures is None

    play(script)


def test_whoever_asks_a_worker_that_dies_is_told_to_come_back() -> None:
    async def script(stage: Stage) -> None:
        asking = await asked(stage)
        await stage.replace_worker()
        with pytest.raises(NotReadyError, match="stopped while it was asked"):
            await asking

    play(script)


def test_whoever_asks_a_server_that_stops_is_told_so_before_its_worker_has_ended() -> None:
    async def script(stage: Stage) -> None:
        asking = await asked(stage)
        await stage.client.close()
        with pytest.raises(NotReadyError, match="stopped while it was asked"):
            await asking
        with pytest.raises(NotReadyError, match="stopping"):
            await stage.client.cache.ask("list")

    play(script)


def test_an_answer_that_nobody_waits_for_any_more_is_none() -> None:
    async def script(stage: Stage) -> None:
        asking = await asked(stage)
        asking.cancel()
        await asyncio.sleep(0)
        stage.worker.tell(CacheReply(1, True, [], FEW))

    play(script)
