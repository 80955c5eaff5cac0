"""The life of workers: what follows on their deaths, in which pauses, and what is said meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from legato.client.status import EngineStatus, Failed, Loading, Ready, Stopped, describe
from legato.client.supervisor import BACKOFF_S, STEADY_S
from legato.wire import messages
from tests.client.fake_transport import COSTS, SIGKILL, FakeTransport, Stage, play
from tests.server.models import model_info
from tests.support.errors import is_sentence


async def let_die_while_loading(stage: Stage, times: int) -> None:
    for _ in range(times):
        worker = await stage.transport.next(len(stage.transport.links) + 1)
        worker.die()


def test_a_worker_that_dies_is_followed_by_another_one() -> None:
    async def script(stage: Stage) -> None:
        first = stage.worker
        first.die()
        second = await stage.transport.next(2)
        assert stage.status == Loading(0.0, SIGKILL)
        second.ready()
        assert isinstance(stage.status, Ready)
        assert second is not first
        assert len(stage.transport.links) == 2

    play(script)


def test_pauses_grow_with_each_death_in_a_row() -> None:
    async def script(stage: Stage) -> None:
        for _ in range(len(BACKOFF_S) + 2):
            await stage.replace_worker()
        assert stage.clock.pauses_s == [*BACKOFF_S, BACKOFF_S[-1], BACKOFF_S[-1]]

    play(script)


@pytest.mark.parametrize(("ready_s", "pause_s"), [(STEADY_S, BACKOFF_S[2]), (STEADY_S + 0.1, BACKOFF_S[0])])
def test_the_death_of_a_steady_worker_is_the_first_in_a_row_again(ready_s: float, pause_s: float) -> None:
    async def script(stage: Stage) -> None:
        await stage.replace_worker()
        await stage.replace_worker()
        stage.clock.now_s += ready_s
        await stage.replace_worker()
        assert stage.clock.pauses_s[-1] == pause_s

    play(script)


def test_the_share_of_a_load_is_told_with_why_it_is_another_one() -> None:
    async def script(stage: Stage) -> None:
        stage.client.supervisor.start()
        worker = await stage.transport.next()
        assert stage.status == Loading(0.0)
        worker.tell(messages.Loading(0.5))
        assert stage.status == Loading(0.5)
        worker.die()
        (await stage.transport.next(2)).tell(messages.Loading(0.25))
        assert stage.status == Loading(0.25, SIGKILL)

    play(script, ready=False)


def test_whoever_waits_is_told_that_the_model_is_ready_however_many_workers_it_took() -> None:
    async def script(stage: Stage) -> None:
        stage.client.supervisor.start()
        await let_die_while_loading(stage, 1)
        (await stage.transport.next(2)).ready()
        assert await stage.client.supervisor.settled() == Ready(model_info(COSTS, parallel=2), 0.1)

    play(script, ready=False)


# Models that cannot be loaded


def test_a_model_that_the_worker_refuses_has_failed_for_good() -> None:
    async def script(stage: Stage) -> None:
        stage.client.supervisor.start()
        worker = await stage.transport.next()
        worker.tell(messages.LoadFailed("It is of an unknown kind."))
        worker.die()
        assert await stage.client.supervisor.settled() == Failed("It is of an unknown kind.")
        assert stage.client.supervisor._task is not None
        await stage.client.supervisor._task
        assert (len(stage.transport.links), stage.clock.pauses_s) == (1, [])
        assert stage.client.worker_pid is None

    play(script, ready=False)


def test_workers_that_die_again_and_again_before_they_are_ready_are_given_up() -> None:
    async def script(stage: Stage) -> None:
        stage.client.supervisor.start()
        await let_die_while_loading(stage, 3)
        status = await stage.client.supervisor.settled()
        assert isinstance(status, Failed)
        assert "SIGKILL, 3 times in a row" in status.reason
        assert is_sentence(status.reason)
        assert len(stage.transport.links) == 3

    play(script, ready=False)


def test_a_worker_that_was_ready_between_them_makes_the_count_begin_anew() -> None:
    async def script(stage: Stage) -> None:
        stage.client.supervisor.start()
        await let_die_while_loading(stage, 2)
        await stage.next_ready()
        stage.worker.die()
        await let_die_while_loading(stage, 2)
        await stage.next_ready()
        assert isinstance(stage.status, Ready)

    play(script, ready=False)


def test_a_worker_that_cannot_be_started_at_all_is_said_to_be_so(monkeypatch: pytest.MonkeyPatch) -> None:
    async def start(_transport: FakeTransport, _settings: Any, _on_message: Callable[..., None]) -> None:
        raise OSError("no memory")

    monkeypatch.setattr(FakeTransport, "start", start)

    async def script(stage: Stage) -> None:
        stage.client.supervisor.start()
        assert await stage.client.supervisor.settled() == Failed("The engine worker can't be run: no memory.")

    play(script, ready=False)


# Stopping


def test_an_engine_that_takes_nothing_new_still_gets_its_worker_back() -> None:
    """Requests that were taken are answered, while the server says that it is stopping."""

    async def script(stage: Stage) -> None:
        request = stage.submit()
        stage.client.supervisor.refuse_new()
        second = await stage.replace_worker()
        assert stage.status == Stopped()
        assert second.take(messages.Submit) == [request.submit]

    play(script)


def test_a_model_that_has_failed_stays_failed_when_the_server_stops() -> None:
    async def script(stage: Stage) -> None:
        stage.worker.tell(messages.LoadFailed("It is gone."))
        stage.client.supervisor.refuse_new()
        assert stage.status == Failed("It is gone.")

    play(script)


@pytest.mark.parametrize(
    "status", [Loading(0.5), Loading(0.5, SIGKILL), Failed("It is gone."), Stopped(), Ready(model_info(COSTS), 1.0)]
)
def test_every_status_is_told_in_a_sentence(status: EngineStatus) -> None:
    assert is_sentence(describe(status))
