"""What the server's side of the engine tells its worker, and what it makes of what that reports."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from legato.client.client import EngineClient
from legato.client.request_stream import RequestStream
from legato.core.calls import Call, PrefillChunk
from legato.core.timings import Timings
from legato.scheduling.costs import Coefficients
from legato.wire.messages import Configure, EngineSettings, LearnedCosts, Report, Submit
from tests.runtime.fake_worker import COSTS, FakeWorker, FakeWorkers, submit

SETTINGS = EngineSettings("model.gguf", policy="chunked", chunk=64, gap_target_s=0.1)


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> FakeWorkers:
    return FakeWorkers(monkeypatch)


def play(
    workers: FakeWorkers,
    script: Callable[[EngineClient, FakeWorker], Awaitable[None]],
    on_costs: Callable[[Coefficients], None] | None = None,
) -> None:
    """Run a script with a client whose first worker is ready."""

    async def run() -> None:
        options = {"on_costs": on_costs} if on_costs else {}
        client = EngineClient(SETTINGS, max_queue=8, **options)
        client.start()
        worker = await workers.next()
        worker.ready()
        try:
            await script(client, worker)
        finally:
            await client.close()

    asyncio.run(asyncio.wait_for(run(), 30))


# Submitting


def test_a_request_carries_its_client_its_target_and_its_tier(workers: FakeWorkers) -> None:
    async def script(client: EngineClient, worker: FakeWorker) -> None:
        submit(client)
        submit(client, gap_target_s=0.05, tier="flex")
        plain, own = worker.take(Submit)
        assert (plain.client, plain.gap_target_s, plain.background) == ("ana", None, False)
        assert (own.client, own.gap_target_s, own.background) == ("ana", 0.05, True)

    play(workers, script)


def test_background_work_knows_whom_it_waits_for_even_where_there_is_a_place(workers: FakeWorkers) -> None:
    async def script(client: EngineClient, _worker: FakeWorker) -> None:
        submit(client, name="first")
        assert submit(client, name="second").timeline.behind == []
        client.cancel(2)
        assert submit(client, name="third", tier="flex").timeline.behind == ["first"]

    play(workers, script)


# Changing settings


def test_a_change_is_sent_and_remembered_for_the_next_worker(workers: FakeWorkers) -> None:
    async def script(client: EngineClient, worker: FakeWorker) -> None:
        client.configure(policy="adaptive", chunk=None, gap_target_s=0.05)
        assert worker.take(Configure) == [Configure("adaptive", None, 0.05)]
        worker.die()
        second = await workers.next(2)
        settings = second.settings
        assert (settings.policy, settings.chunk, settings.gap_target_s) == ("adaptive", None, 0.05)
        assert settings.model_path == "model.gguf"
        assert second.take(Configure) == []
        assert client.settings == settings

    play(workers, script)


def test_a_change_while_a_worker_starts_reaches_it(workers: FakeWorkers) -> None:
    async def run() -> None:
        client = EngineClient(SETTINGS, max_queue=8)
        workers.while_spawning = lambda: client.configure(policy="whole", chunk=32, gap_target_s=0.2)
        client.start()
        worker = await workers.next()
        assert worker.settings == SETTINGS
        assert worker.take(Configure) == [Configure("whole", 32, 0.2)]
        await client.close()

    asyncio.run(asyncio.wait_for(run(), 30))


def test_a_change_before_there_is_a_worker_is_in_its_settings(workers: FakeWorkers) -> None:
    async def run() -> None:
        client = EngineClient(SETTINGS, max_queue=8)
        client.configure(policy="whole", chunk=None, gap_target_s=0.2)
        client.start()
        worker = await workers.next()
        assert (worker.settings.policy, worker.settings.gap_target_s) == ("whole", 0.2)
        assert worker.sent == []
        await client.close()

    asyncio.run(asyncio.wait_for(run(), 30))


def test_a_new_gap_target_is_that_of_running_answers_without_one_of_their_own(workers: FakeWorkers) -> None:
    async def script(client: EngineClient, _worker: FakeWorker) -> None:
        plain, own = submit(client), submit(client, gap_target_s=0.3)
        client.configure(policy="chunked", chunk=64, gap_target_s=0.05)
        later = submit(client)
        assert [r.timeline.gap_target_s for r in (plain, own, later)] == [0.05, 0.3, 0.05]

    play(workers, script)


# Costs


def test_learned_costs_are_told_and_remembered_for_the_next_worker(workers: FakeWorkers) -> None:
    told: list[Coefficients] = []

    async def script(_client: EngineClient, worker: FakeWorker) -> None:
        assert worker.settings.costs is None
        worker.tell(LearnedCosts(COSTS))
        assert told == [COSTS]
        worker.die()
        assert (await workers.next(2)).settings.costs == COSTS

    play(workers, script, told.append)


def test_nobody_need_care_for_costs(workers: FakeWorkers) -> None:
    async def script(_client: EngineClient, worker: FakeWorker) -> None:
        worker.tell(LearnedCosts(COSTS))

    play(workers, script)


# Reports


class Engine:
    """Reports of one request beside another one, at instants of our own, as tokens leave at once."""

    def __init__(self, worker: FakeWorker, mine: RequestStream, other: RequestStream) -> None:
        self.now_s = time.monotonic() + 1.0
        self.mine, self.other = mine, other
        self._tell = worker.tell

    def border(self, *, wait_s: float = 0.0, **events: list[int]) -> None:
        self.now_s += wait_s
        self._tell(Report(self.now_s, **events))  # type: ignore[arg-type]

    def read(self, request: RequestStream, start: int, tokens: int, *, last: bool = False) -> None:
        begun_s, self.now_s = self.now_s, self.now_s + 0.2
        number = request.submit.id
        call = Call(begun_s, self.now_s, [], [PrefillChunk(number, start, tokens)])
        self._tell(Report(self.now_s, tokens=[(number, 7, None)] if last else [], call=call))
        if last:
            self._leave(request)

    def decode(self, request: RequestStream, took_s: float = 0.01) -> None:
        begun_s, self.now_s = self.now_s, self.now_s + took_s
        number = request.submit.id
        self._tell(Report(self.now_s, tokens=[(number, 7, None)], call=Call(begun_s, self.now_s, [number])))
        self._leave(request)

    def _leave(self, request: RequestStream) -> None:
        while not request._events.empty():
            event = request._events.get_nowait()
            if hasattr(event, "stretch"):
                request.timeline.add_token(self.now_s, event.stretch)

    def end(self, request: RequestStream) -> Timings:
        request.timeline.ended_s = self.now_s
        return request.timeline.timings()


def whole(parts: object) -> float:
    total: float = parts.total_ms  # type: ignore[attr-defined]
    return total


def test_preempted_before_its_first_token_it_waits_in_the_queue(workers: FakeWorkers) -> None:
    async def script(client: EngineClient, worker: FakeWorker) -> None:
        mine, other = submit(client, tier="flex"), submit(client, name="other")
        engine = Engine(worker, mine, other)
        engine.border(admitted=[1])
        first_admitted_s = engine.now_s
        engine.read(mine, 0, 2)
        engine.border(preempted=[1], admitted=[2])
        assert (mine.running, mine.started, other.running) == (False, True, True)
        engine.read(other, 0, 3, last=True)
        for _ in range(4):
            engine.decode(other)
        engine.border(wait_s=1.0, admitted=[1])
        assert mine.running
        assert mine.timeline.admitted_s == first_admitted_s
        engine.read(mine, 0, 3, last=True)
        engine.decode(mine)
        timings = engine.end(mine)
        assert timings.preemptions == 1
        # Two reads of its own; 0.2 + 4 * 0.01 + 1 s of waiting are queue.
        assert timings.prefill_ms == pytest.approx(400)
        assert timings.queue_ms == pytest.approx((first_admitted_s - mine.timeline.arrived_s + 1.24) * 1000, abs=1)
        assert timings.prefill_parts is not None
        assert whole(timings.prefill_parts) == pytest.approx(timings.prefill_ms, abs=0.01)
        assert timings.prefill_parts.own_prefill_ms == pytest.approx(400)
        assert timings.prefill_parts.blamed == []
        parts = timings.load_ms + timings.queue_ms + timings.prefill_ms + timings.decode_ms
        assert parts == pytest.approx(timings.total_ms, abs=0.01)

    play(workers, script)


def test_preempted_after_its_first_token_it_waits_in_a_gap_that_names_who_had_its_place(workers: FakeWorkers) -> None:
    async def script(client: EngineClient, worker: FakeWorker) -> None:
        mine, other = submit(client, tier="flex"), submit(client, name="other")
        engine = Engine(worker, mine, other)
        engine.border(admitted=[1])
        engine.read(mine, 0, 3, last=True)
        engine.border(preempted=[1], admitted=[2])
        engine.read(other, 0, 3, last=True)
        engine.border(wait_s=1.0, admitted=[1])
        engine.read(mine, 0, 4, last=True)
        timings = engine.end(mine)
        assert (timings.preemptions, timings.stalls) == (1, 1)
        assert timings.prefill_ms == pytest.approx(200)
        assert timings.decode_ms == pytest.approx(1400)
        assert timings.decode_parts is not None
        assert whole(timings.decode_parts) == pytest.approx(1400, abs=0.01)
        assert timings.decode_parts.others_prefill_ms == pytest.approx(200)
        assert timings.decode_parts.own_prefill_ms == pytest.approx(200)
        assert [blame.request for blame in timings.decode_parts.blamed] == ["other"]

    play(workers, script)


def test_a_token_that_has_not_left_yet_is_a_first_token_all_the_same(workers: FakeWorkers) -> None:
    async def script(client: EngineClient, worker: FakeWorker) -> None:
        mine = submit(client, tier="flex")
        worker.tell(Report(100.0, admitted=[1]))
        worker.tell(Report(100.2, tokens=[(1, 7, None)], call=Call(100.0, 100.2, [], [PrefillChunk(1, 0, 3)])))
        worker.tell(Report(100.3, preempted=[1]))
        assert mine.answering
        worker.tell(Report(105.0, admitted=[1]))
        assert mine.timeline.requeued_s == 0

    play(workers, script)


def test_the_highest_target_that_was_possible_is_told_with_how_many_wrote(workers: FakeWorkers) -> None:
    async def script(client: EngineClient, worker: FakeWorker) -> None:
        mine, other = submit(client), submit(client)
        engine = Engine(worker, mine, other)
        engine.border(admitted=[1, 2])
        engine.read(mine, 0, 3, last=True)
        engine.read(other, 0, 3, last=True)
        worker.tell(Report(engine.now_s, raised=[(1, 0.14), (99, 1.0)]))
        worker.tell(Report(engine.now_s, raised=[(1, 0.12)]))
        assert mine.timeline.raised_gap_target_s == 0.12
        assert other.timeline.raised_gap_target_s == 0
        engine.now_s += 0.1
        engine.decode(mine, took_s=0.03)
        timings = engine.end(mine)
        # The gap has the other's reading in it, 0.2 s: a stall, whatever was raised.
        assert (timings.stalls, timings.raised_gap_target_ms, timings.raised_at_answers) == (1, 140, 2)

    play(workers, script)


def test_reports_of_those_who_have_ended_are_nothing(workers: FakeWorkers) -> None:
    async def script(client: EngineClient, worker: FakeWorker) -> None:
        submit(client)
        client.cancel(1)
        worker.tell(Report(1.0, admitted=[1], preempted=[1], raised=[(1, 0.2)], tokens=[(1, 7, None)]))
        assert client.active == 0

    play(workers, script)
