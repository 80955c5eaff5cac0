"""What open dashboards are told: everything once, whenever they come, and nothing while nobody watches."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from legato.client.client import EngineClient
from legato.client.request_stream import RequestStream
from legato.core.calls import Call, PrefillChunk
from legato.core.origin import Origin
from legato.core.sampling import SamplingParameters
from legato.server import broadcast
from legato.server.broadcast import Broadcast
from legato.server.service import Service
from legato.telemetry.timeline import Timeline
from legato.wire.messages import Submit
from tests.server.models import make_app

Event = tuple[str, Any]


def made() -> tuple[Broadcast, Service]:
    """A broadcast of a server whose model is never loaded."""
    app = make_app()
    return app.state.broadcast, app.state.service


def call(service: Service) -> None:
    """The engine has made a call."""
    now_s = time.monotonic()
    service.recorder.call(Call(now_s - 0.01, now_s, [], [PrefillChunk(1, 0, 16)]))


def end(service: Service, name: str) -> None:
    """A request has ended."""
    now_s = time.monotonic()
    service.recorder.ended(Origin(name, "chat"), Timeline(now_s - 1, ended_s=now_s), "stop")


def parsed(data: bytes) -> Event:
    kind, body = data.decode().strip().split("\n")
    return kind.removeprefix("event: "), json.loads(body.removeprefix("data: "))


async def next_of(events: AsyncIterator[bytes], kind: str) -> Any:
    """The next event of a kind; fail if it does not come."""
    async with asyncio.timeout(5):
        async for data in events:
            found, body = parsed(data)
            if found == kind:
                return body
    raise AssertionError(f"the events ended without one of kind {kind}")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look for news a hundred times a second."""
    monkeypatch.setattr(broadcast, "TICK_S", 0.01)


def test_a_page_begins_with_what_there_is_and_then_gets_what_is_new() -> None:
    async def play() -> None:
        told, service = made()
        end(service, "before")
        call(service)
        page = told.watch({"client": "ana"})
        assert (await next_of(page, "hello"))["client"] == "ana"
        assert (await next_of(page, "status"))["state"] == "loading"
        assert [one["id"] for one in (await next_of(page, "ended"))["requests"]] == ["before"]
        assert [step["number"] for step in (await next_of(page, "steps"))["steps"]] == [1]
        call(service)
        assert [step["number"] for step in (await next_of(page, "steps"))["steps"]] == [2]
        end(service, "after")
        assert [one["id"] for one in (await next_of(page, "ended"))["requests"]] == ["after"]

    asyncio.run(play())


def test_whoever_comes_between_two_looks_is_told_everything_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls and ends that the first page was not told yet reach the second with the first."""

    async def play() -> None:
        told, service = made()
        first = told.watch({})
        await next_of(first, "steps")
        call(service)
        end(service, "new")
        second = told.watch({})
        begun = [await next_of(second, "ended"), await next_of(second, "steps")]
        assert begun == [{"requests": []}, {"steps": []}]
        for page in (first, second):
            assert [step["number"] for step in (await next_of(page, "steps"))["steps"]] == [1]
            assert [one["id"] for one in (await next_of(page, "ended"))["requests"]] == ["new"]

    asyncio.run(play())


def test_an_answer_that_is_silent_beyond_its_target_is_told_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the server knows: a page that waits for news cannot tell late news from a late token."""
    now_s = time.monotonic()

    def request(name: str, number: int, silent_s: float | None, target_s: float) -> RequestStream:
        times = [] if silent_s is None else [now_s - silent_s]
        timeline = Timeline(now_s - 60, admitted_s=now_s - 59, token_times_s=times, gap_target_s=target_s)
        submit = Submit(number, b"", 9, SamplingParameters())
        return RequestStream(submit, Origin(name, "chat"), timeline, lambda _: None)

    requests = [request("late", 1, 8, 5), request("in time", 2, 8, 50), request("reads", 3, None, 5)]
    monkeypatch.setattr(EngineClient, "requests", requests)

    async def play() -> None:
        told, _ = made()
        silent = await next_of(told.watch({}), "silent")
        assert list(silent) == ["late"]
        assert 8_000 <= silent["late"] < 60_000

    asyncio.run(play())


def test_nothing_is_done_while_nobody_watches() -> None:
    async def play() -> None:
        told, _ = made()
        page = told.watch({})
        await next_of(page, "steps")
        assert len(asyncio.all_tasks()) == 2  # this one, and the one that looks
        await page.aclose()
        async with asyncio.timeout(5):
            await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))

    asyncio.run(play())


def test_a_page_that_reads_nothing_is_let_go_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broadcast, "MOST_WAITING", 3)

    async def play() -> None:
        told, service = made()
        sleeping, reading = told.watch({}), told.watch({})
        for page in (sleeping, reading):
            await next_of(page, "steps")
        for number in range(2, 8):
            call(service)
            assert (await next_of(reading, "steps"))["steps"][-1]["number"] == number - 1
        left = [parsed(data) async for data in sleeping]
        assert len(left) <= 3

    asyncio.run(play())


def test_a_stopping_server_lets_all_pages_go() -> None:
    async def play() -> None:
        told, service = made()
        page = told.watch({})
        await next_of(page, "steps")
        service.engine.supervisor.refuse_new()
        async with asyncio.timeout(5):
            left = [parsed(data)[0] async for data in page]
        assert set(left) <= {"status", "steps"}

    asyncio.run(play())
