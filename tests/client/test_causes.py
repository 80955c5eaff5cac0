"""Waits that were made on purpose, in a simulation: all of their time is charged to who caused them."""

from __future__ import annotations

from typing import Any

import pytest

from legato.client.clock import ServerClock
from legato.client.meter import Meter
from legato.client.request_stream import RequestStream
from legato.core.causes import CauseTimes
from legato.core.origin import Origin
from legato.core.sampling import SamplingParameters
from legato.core.timings import Timings
from legato.scheduling.costs import Coefficients
from legato.simulate import Simulation
from legato.telemetry.timeline import Timeline
from legato.wire.messages import Report, Submit

COSTS = Coefficients(
    decode_call_s=0.010,
    decode_sequence_s=0.002,
    decode_depth_s=0.0,
    prefill_call_s=0.0,
    prefill_token_s=0.001,
    prefill_pair_s=0.0,
)
"""A token of one answer alone takes 12 ms, each further answer 2 ms more, a prompt's token 1 ms."""


class Metered:
    """A simulation whose reports are metered as a server meters them; tokens leave at once."""

    def __init__(self, **options: Any) -> None:
        options = {"policy": "chunked", "chunk": 64, "gap_target_s": 0.02, "sequences": 8} | options
        self._gap_target_s = options["gap_target_s"]
        self.simulation = Simulation(costs=COSTS, on_report=self._take, **options)
        self._meter = Meter(ServerClock(now=self.simulation.clock.now_s), lambda _call: None)
        self._streams: dict[int, RequestStream] = {}
        self.ended: dict[str, Timeline] = {}
        """The timelines of requests that have ended, by name."""

    def ask(
        self, name: str, prompt_tokens: int, answer_tokens: int, *, at_s: float = 0.0, tier: Any = "default"
    ) -> None:
        number = len(self.simulation.asks)
        background = tier == "flex"
        self.simulation.ask(prompt_tokens=prompt_tokens, answer_tokens=answer_tokens, at_s=at_s, background=background)
        submit = Submit(number, b"", answer_tokens, SamplingParameters(), background=background)
        timeline = Timeline(at_s, prompt_tokens=prompt_tokens, gap_target_s=self._gap_target_s)
        origin = Origin(name, "completions", service_tier=tier)
        self._streams[number] = RequestStream(submit, origin, timeline, lambda _number: None)

    def run(self) -> None:
        self.simulation.run()

    def timings(self, name: str) -> Timings:
        return self.ended[name].timings()

    def gaps(self, name: str) -> CauseTimes:
        """Where the gaps of an answer went."""
        parts = self.timings(name).decode_parts
        assert parts is not None
        return parts

    def prefill(self, name: str) -> CauseTimes:
        """Where the time to the first token went."""
        parts = self.timings(name).prefill_parts
        assert parts is not None
        return parts

    def _take(self, report: Report) -> None:
        self._meter.take(report, self._streams)
        for number, *_ in report.tokens:
            self._streams[number].timeline.add_token(report.at_s, self._meter.stretch(number, report))
        for number, reason, _ in report.ended:
            stream = self._streams.pop(number)
            self._meter.end(stream, reason)
            stream.timeline.ended_s = report.at_s
            self.ended[stream.origin.id] = stream.timeline


def test_a_prompt_beside_a_running_answer_is_blamed_for_its_stalls() -> None:
    metered = Metered()
    metered.ask("chat", 10, 100)
    metered.ask("book", 640, 1, at_s=0.3)
    metered.run()
    stalls = metered.ended["chat"].stalls
    assert len(stalls) == 10, "one for each chunk"
    for stall in stalls:
        assert stall.cause == "others_prefill"
        assert stall.parts.others_prefill_ms == pytest.approx(64)
        assert stall.parts.own_decode_ms == pytest.approx(12)
        assert stall.parts.total_ms == pytest.approx(stall.gap_ms) == pytest.approx(76)
        assert [blame.request for blame in stall.parts.blamed] == ["book"]
    (blame,) = metered.gaps("chat").blamed
    assert (blame.request, blame.tokens, blame.ms) == ("book", 640, pytest.approx(640))


def test_of_two_prompts_each_is_slowed_by_the_other() -> None:
    metered = Metered()
    metered.ask("one", 640, 1)
    metered.ask("two", 640, 1)
    metered.run()
    one, two = metered.prefill("one"), metered.prefill("two")
    assert (one.own_prefill_ms, two.own_prefill_ms) == (pytest.approx(640), pytest.approx(640))
    # They take turns: the first one has its last chunk before the other one's.
    assert (one.others_prefill_ms, two.others_prefill_ms) == (pytest.approx(576), pytest.approx(640))
    assert [blame.request for blame in one.blamed] == ["two"]
    assert [blame.request for blame in two.blamed] == ["one"]
    for name in ("one", "two"):
        assert metered.prefill(name).total_ms == pytest.approx(metered.timings(name).prefill_ms)


def test_in_a_full_batch_the_other_answers_are_the_cause() -> None:
    metered = Metered()
    metered.ask("before", 10, 20)
    for number in range(8):
        metered.ask(f"{number}", 10, 60, at_s=1.0)
    metered.run()
    for number in range(8):
        parts = metered.gaps(f"{number}")
        # Each token takes 26 ms beside seven others, and would take 12 alone.
        assert parts.own_decode_ms == pytest.approx(59 * 12)
        assert parts.others_decode_ms == pytest.approx(59 * 14, rel=0.1)
        assert parts.others_decode_ms + parts.others_prefill_ms + parts.own_decode_ms == pytest.approx(parts.total_ms)


def test_an_answer_alone_is_its_own_decode() -> None:
    metered = Metered()
    metered.ask("alone", 10, 60)
    metered.run()
    parts = metered.gaps("alone")
    assert parts.own_decode_ms == pytest.approx(59 * 12) == pytest.approx(parts.total_ms)
    assert metered.prefill("alone").own_prefill_ms == pytest.approx(metered.timings("alone").prefill_ms)
    assert metered.timings("alone").queue_ms == 0


def test_waiting_for_a_place_is_queue_and_nothing_else() -> None:
    metered = Metered(sequences=1)
    metered.ask("first", 10, 50)
    metered.ask("second", 10, 1, at_s=0.1)
    metered.run()
    first = metered.timings("first")
    assert metered.timings("second").queue_ms == pytest.approx(first.total_ms - 100)
    assert metered.prefill("second").total_ms == pytest.approx(10)


def test_background_work_that_gives_its_place_up_waits_in_its_gap() -> None:
    metered = Metered(sequences=1, policy="adaptive")
    metered.ask("job", 100, 40, tier="flex")
    metered.ask("chat", 10, 10, at_s=0.4)
    metered.run()
    job, chat = metered.timings("job"), metered.timings("chat")
    assert (job.preemptions, chat.preemptions) == (1, 0)
    assert job.load_ms + job.queue_ms + job.prefill_ms + job.decode_ms == pytest.approx(job.total_ms)
    assert job.itl_max_ms is not None
    assert job.itl_max_ms > chat.total_ms
    assert chat.queue_ms < 20


@pytest.mark.parametrize("interruptible", [False, True])
def test_whoever_reads_interruptibly_or_in_pieces_the_parts_add_up(interruptible: bool) -> None:
    metered = Metered(policy="adaptive", gap_target_s=0.1, interruptible=interruptible)
    metered.ask("chat", 10, 300)
    metered.ask("book", 3000, 20, at_s=0.5)
    metered.ask("question", 20, 5, at_s=1.0)
    metered.run()
    for name in ("chat", "book", "question"):
        timings = metered.timings(name)
        assert metered.prefill(name).total_ms == pytest.approx(timings.prefill_ms, abs=0.01)
        assert metered.gaps(name).total_ms == pytest.approx(timings.decode_ms, abs=0.01)
        assert metered.prefill(name).engine_ms == pytest.approx(0, abs=0.01)
    assert sum(chunk.tokens for chunk in metered.ended["book"].chunks) == 3000
    assert metered.prefill("book").own_prefill_ms == pytest.approx(3000, rel=0.01)
    assert metered.ended["chat"].stall_count == 0
