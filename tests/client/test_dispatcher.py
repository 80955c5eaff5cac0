"""Requests that are queued, cancelled, given to the next worker, and ended once."""

from __future__ import annotations

import asyncio

import pytest

from legato.client.dispatcher import QueueFullError
from legato.client.request_stream import Ended, PromptRead, Token
from legato.core.answers import Logprobs
from legato.core.calls import Call, PrefillChunk
from legato.wire.messages import Cancel, LoadFailed, Report, Submit
from tests.client.fake_transport import SIGKILL, Stage, ends, events_so_far, play
from tests.support.errors import is_sentence

# The queue: two at once, and two that wait


def test_more_requests_than_may_wait_are_refused_with_a_time() -> None:
    async def script(stage: Stage) -> None:
        for _ in range(4):
            stage.submit()
        with pytest.raises(QueueFullError, match="2 requests are waiting already") as refused:
            stage.submit()
        assert is_sentence(str(refused.value))
        # Two places, and two before it that take 5 s each, as far as anybody knows.
        assert refused.value.retry_after_s == pytest.approx(5.0)
        assert len(stage.worker.take(Submit)) == len(stage.client.requests) == 4

    play(script)


def test_the_time_follows_what_requests_take() -> None:
    async def script(stage: Stage) -> None:
        stage.submit()
        stage.worker.tell(Report(stage.clock.now_s, admitted=[1]))
        stage.clock.now_s += 15
        stage.worker.tell(Report(stage.clock.now_s, ended=[(1, "stop", "")]))
        for _ in range(4):
            stage.submit()
        with pytest.raises(QueueFullError) as refused:
            stage.submit()
        assert refused.value.retry_after_s == pytest.approx(7.0)  # 5 s and a fifth of the 10 s more

    play(script)


def test_whoever_waits_knows_behind_whom() -> None:
    async def script(stage: Stage) -> None:
        assert stage.submit(name="first").timeline.behind == []
        assert stage.submit(name="second").timeline.behind == []
        assert stage.submit(name="third").timeline.behind == ["first", "second"]

    play(script)


def test_background_work_knows_whom_it_waits_for_even_where_there_is_a_place() -> None:
    async def script(stage: Stage) -> None:
        stage.submit(name="first")
        second = stage.submit(name="second")
        assert second.timeline.behind == []
        second.cancel()
        assert stage.submit(name="third", tier="flex").timeline.behind == ["first"]

    play(script)


def test_idle_is_when_there_are_no_requests() -> None:
    async def script(stage: Stage) -> None:
        await stage.client.dispatcher.idle()
        request = stage.submit()
        waiting = asyncio.create_task(stage.client.dispatcher.idle())
        await asyncio.sleep(0)
        assert not waiting.done()
        request.cancel()
        await waiting

    play(script)


# Events


def test_what_a_report_brings_reaches_its_requests_in_order() -> None:
    async def script(stage: Stage) -> None:
        request = stage.submit()
        logprobs = Logprobs(-0.5, [(7, -0.5)])
        stage.worker.tell(Report(1.0, admitted=[1]))
        stage.worker.tell(
            Report(1.2, tokens=[(1, 7, logprobs), (99, 8, None)], call=Call(1.0, 1.2, [], [PrefillChunk(1, 0, 3)]))
        )
        stage.worker.tell(Report(1.3, ended=[(1, "length", ""), (99, "stop", "")]))
        read, token, end = [event async for event in request]
        assert read == PromptRead()
        assert isinstance(token, Token)
        assert (token.token, token.logprobs, end) == (7, logprobs, Ended("length"))
        assert stage.client.requests == []

    play(script)


def test_reports_of_those_who_have_ended_are_nothing() -> None:
    async def script(stage: Stage) -> None:
        request = stage.submit()
        request.cancel()
        stage.worker.tell(Report(1.0, admitted=[1], preempted=[1], raised=[(1, 0.2)], tokens=[(1, 7, None)]))
        assert stage.client.requests == events_so_far(request) == []

    play(script)


def test_a_request_that_is_left_is_cancelled_once() -> None:
    async def script(stage: Stage) -> None:
        with stage.submit() as request:
            pass
        request.cancel()
        assert stage.worker.take(Cancel) == [Cancel(1)]
        assert ends(request) == []

    play(script)


def test_requests_that_are_ended_are_cancelled_and_told_why() -> None:
    async def script(stage: Stage) -> None:
        requests = [stage.submit(), stage.submit()]
        stage.client.dispatcher.end_all("It is over.")
        assert [ends(request) for request in requests] == [[Ended("failed", "It is over.")]] * 2
        assert stage.worker.take(Cancel) == [Cancel(1), Cancel(2)]

    play(script)


# Deaths


def test_what_a_dead_worker_had_begun_ends_once_and_what_was_queued_is_given_to_the_next() -> None:
    async def script(stage: Stage) -> None:
        answering, reading, queued = stage.submit(), stage.submit(), stage.submit()
        stage.worker.tell(Report(1.0, admitted=[1, 2]))
        stage.worker.tell(Report(1.1, tokens=[(1, 7, None)]))
        stage.clock.now_s += 7
        second = await stage.replace_worker()
        stage.client.dispatcher.end_all("It is over.")
        error = f"The engine stopped while answering: {SIGKILL}."
        assert ends(answering) == ends(reading) == [Ended("failed", error)]
        assert is_sentence(error)
        assert second.take(Submit) == [queued.submit]
        assert ends(queued) == [Ended("failed", "It is over.")]
        # The wait for the first worker's place, and then for the second one's model.
        assert queued.timeline.load_s == pytest.approx(stage.clock.pauses_s[0])

    play(script)


def test_a_request_is_given_to_two_workers_at_most() -> None:
    async def script(stage: Stage) -> None:
        request = stage.submit()
        await stage.replace_worker()
        assert ends(request) == []
        third = await stage.replace_worker()
        assert [end.reason for end in ends(request)] == ["failed"]
        assert third.take(Submit) == []

    play(script)


def test_a_request_that_was_cancelled_between_two_workers_is_given_to_none() -> None:
    async def script(stage: Stage) -> None:
        request = stage.submit()
        stage.worker.die()
        second = await stage.transport.next(2)
        request.cancel()
        second.ready()
        assert second.take(Submit) == []

    play(script)


def test_what_waits_for_a_model_that_fails_ends_with_its_reason() -> None:
    async def script(stage: Stage) -> None:
        request = stage.submit()
        stage.worker.die()
        (await stage.transport.next(2)).tell(LoadFailed("It is of an unknown kind."))
        assert ends(request) == [Ended("failed", "It is of an unknown kind.")]

    play(script)


def test_requests_go_to_workers_that_read_and_write() -> None:
    async def script(stage: Stage) -> None:
        stage.worker.role = "prefill"
        stage.submit()
        assert stage.worker.sent == []

    play(script)
