"""What is made of a worker's reports: timelines that come out the same whichever machine's clock they are told by."""

from __future__ import annotations

import pytest

from legato.client.request_stream import RequestStream, Token
from legato.core.calls import Call, PrefillChunk
from legato.core.causes import CauseTimes
from legato.core.timings import Timings
from legato.wire.messages import Report
from tests.client.fake_transport import Stage, events_so_far, play

# How much the worker's clock is behind the server's, s: 0 is that of a worker on the same machine.
everywhere = pytest.mark.parametrize("behind_s", [0.0, 1000.0, -1000.0])


class Engine:
    """Reports of requests at instants of our own; a second after the stage was set, and tokens leave at once."""

    def __init__(self, stage: Stage, behind_s: float = 0.0) -> None:
        stage.clock.now_s += 1.0
        self._clock = stage.clock
        self._behind_s = behind_s
        self._tell = stage.worker.tell
        if behind_s:
            stage.worker.clock.observe(self.now_s, self.now_s - behind_s, self.now_s)

    @property
    def now_s(self) -> float:
        """On the server's clock."""
        return self._clock.now_s

    def border(self, *, wait_s: float = 0.0, **events: list[int]) -> None:
        self._clock.now_s += wait_s
        self._tell(Report(self.now_s - self._behind_s, **events))  # type: ignore[arg-type]

    def read(self, request: RequestStream, start: int, tokens: int, *, last: bool = False) -> None:
        self._call(request, 0.2, [], [PrefillChunk(request.submit.id, start, tokens)], token=last)

    def decode(self, request: RequestStream, took_s: float = 0.01) -> None:
        self._call(request, took_s, [request.submit.id], [], token=True)

    def _call(
        self, request: RequestStream, took_s: float, decoded: list[int], chunks: list[PrefillChunk], *, token: bool
    ) -> None:
        begun_s = self.now_s - self._behind_s
        self._clock.now_s += took_s
        call = Call(begun_s, begun_s + took_s, decoded, chunks)
        self._tell(Report(call.ended_s, tokens=[(request.submit.id, 7, None)] if token else [], call=call))
        for event in events_so_far(request):
            if isinstance(event, Token):
                request.timeline.add_token(self.now_s, event.stretch)

    def end(self, request: RequestStream) -> Timings:
        self.border(ended=[(request.submit.id, "stop", "")])  # type: ignore[list-item]
        return request.timeline.timings()


def parts_of(timings: Timings) -> tuple[CauseTimes, CauseTimes]:
    """Where the time to the first token went, and that of the gaps."""
    assert timings.prefill_parts is not None
    assert timings.decode_parts is not None
    return timings.prefill_parts, timings.decode_parts


@everywhere
def test_an_answer_s_timeline_adds_up_and_names_who_delayed_it(behind_s: float) -> None:
    async def script(stage: Stage) -> None:
        mine, other = stage.submit(), stage.submit(name="other")
        engine = Engine(stage, behind_s)
        engine.border(admitted=[1])
        engine.read(mine, 0, 3, last=True)
        engine.border(wait_s=0.05, admitted=[2])
        engine.read(other, 0, 3, last=True)
        engine.decode(mine)
        timings = engine.end(mine)
        assert timings.queue_ms == pytest.approx(1000, abs=0.01)
        assert timings.prefill_ms == timings.ttft_ms - timings.queue_ms == pytest.approx(200, abs=0.01)  # type: ignore[operator]
        assert timings.decode_ms == pytest.approx(260, abs=0.01)
        assert timings.total_ms == pytest.approx(1460, abs=0.01)
        first, gaps = parts_of(timings)
        assert (first.own_prefill_ms, first.delivery_ms) == (pytest.approx(200, abs=0.01), pytest.approx(0, abs=0.01))
        assert gaps.others_prefill_ms == pytest.approx(200, abs=0.01)
        assert gaps.engine_ms == pytest.approx(50, abs=0.01)
        assert gaps.total_ms == pytest.approx(timings.decode_ms, abs=0.01)
        assert [blame.request for blame in gaps.blamed] == ["other"]
        assert [(chunk.start, chunk.tokens) for chunk in mine.timeline.chunks] == [(0, 3)]
        assert mine.timeline.chunks[0].at_ms == pytest.approx(1000, abs=0.01)

    play(script)


@pytest.mark.parametrize("behind_s", [0.0, 1000.0])
def test_calls_are_told_by_the_server_s_clock(behind_s: float) -> None:
    told: list[Call] = []

    async def script(stage: Stage) -> None:
        request = stage.submit()
        engine = Engine(stage, behind_s)
        engine.read(request, 0, 3)
        (call,) = told
        assert (call.begun_s, call.ended_s) == (pytest.approx(engine.now_s - 0.2), pytest.approx(engine.now_s))

    play(script, on_call=told.append)


@everywhere
def test_preempted_before_its_first_token_it_waits_in_the_queue(behind_s: float) -> None:
    async def script(stage: Stage) -> None:
        mine, other = stage.submit(tier="flex"), stage.submit(name="other")
        engine = Engine(stage, behind_s)
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
        # Two reads of its own; a second before it all, and 0.2 + 4 * 0.01 + 1 s of waiting are queue.
        assert timings.prefill_ms == pytest.approx(400)
        assert timings.queue_ms == pytest.approx(2240, abs=0.01)
        first, _ = parts_of(timings)
        assert first.total_ms == pytest.approx(timings.prefill_ms, abs=0.01)
        assert first.own_prefill_ms == pytest.approx(400)
        assert first.blamed == []
        parts = timings.load_ms + timings.queue_ms + timings.prefill_ms + timings.decode_ms
        assert parts == pytest.approx(timings.total_ms, abs=0.01)

    play(script)


@everywhere
def test_preempted_after_its_first_token_it_waits_in_a_gap_that_names_who_had_its_place(behind_s: float) -> None:
    async def script(stage: Stage) -> None:
        mine, other = stage.submit(tier="flex"), stage.submit(name="other")
        engine = Engine(stage, behind_s)
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
        _, gaps = parts_of(timings)
        assert gaps.total_ms == pytest.approx(1400, abs=0.01)
        assert gaps.others_prefill_ms == pytest.approx(200)
        assert gaps.own_prefill_ms == pytest.approx(200)
        assert [blame.request for blame in gaps.blamed] == ["other"]

    play(script)


def test_a_token_that_has_not_left_yet_is_a_first_token_all_the_same() -> None:
    async def script(stage: Stage) -> None:
        mine = stage.submit(tier="flex")
        stage.worker.tell(Report(100.0, admitted=[1]))
        stage.worker.tell(Report(100.2, tokens=[(1, 7, None)], call=Call(100.0, 100.2, [], [PrefillChunk(1, 0, 3)])))
        stage.worker.tell(Report(100.3, preempted=[1]))
        assert mine.answering
        stage.worker.tell(Report(105.0, admitted=[1]))
        assert mine.timeline.requeued_s == 0

    play(script)


def test_a_token_and_a_preemption_in_one_report_are_in_that_order() -> None:
    async def script(stage: Stage) -> None:
        mine = stage.submit(tier="flex")
        stage.worker.tell(Report(100.0, admitted=[1]))
        call = Call(100.0, 100.2, [], [PrefillChunk(1, 0, 3)])
        stage.worker.tell(Report(100.2, tokens=[(1, 7, None)], preempted=[1], call=call))
        stage.worker.tell(Report(105.0, admitted=[1]))
        assert mine.timeline.requeued_s == 0
        (token,) = (event for event in events_so_far(mine) if isinstance(event, Token))
        assert token.stretch is not None
        assert token.stretch.causes.own_prefill_ms == pytest.approx(200)

    play(script)


def test_where_calls_are_not_recorded_tokens_have_no_causes() -> None:
    async def script(stage: Stage) -> None:
        mine = stage.submit()
        stage.worker.tell(Report(100.0, admitted=[1]))
        stage.worker.tell(Report(100.2, tokens=[(1, 7, None)]))
        assert [event.stretch for event in events_so_far(mine) if isinstance(event, Token)] == [None]

    play(script)


def test_the_highest_target_that_was_possible_is_told_with_how_many_wrote() -> None:
    async def script(stage: Stage) -> None:
        mine, other = stage.submit(), stage.submit()
        engine = Engine(stage)
        engine.border(admitted=[1, 2])
        engine.read(mine, 0, 3, last=True)
        engine.read(other, 0, 3, last=True)
        stage.worker.tell(Report(engine.now_s, raised=[(1, 0.14), (99, 1.0)]))
        stage.worker.tell(Report(engine.now_s, raised=[(1, 0.12)]))
        assert mine.timeline.raised_gap_target_s == 0.12
        assert other.timeline.raised_gap_target_s == 0
        engine.border(wait_s=0.1)
        engine.decode(mine, took_s=0.03)
        timings = engine.end(mine)
        # The gap has the other's reading in it, 0.2 s: a stall, whatever was raised.
        assert (timings.stalls, timings.raised_gap_target_ms, timings.raised_at_answers) == (1, 140, 2)

    play(script)


def test_the_wait_for_a_worker_is_load_and_no_queue() -> None:
    async def script(stage: Stage) -> None:
        mine = stage.submit()
        stage.clock.now_s += 2.0
        stage.worker.die()
        second = await stage.transport.next(2)
        stage.clock.now_s += 3.0
        second.ready()
        second.tell(Report(stage.clock.now_s, admitted=[1], ended=[(1, "stop", "")]))
        timings = mine.timeline.timings()
        assert timings.load_ms == pytest.approx(3000 + stage.clock.pauses_s[0] * 1000)
        assert timings.queue_ms == pytest.approx(2000)

    play(script)
