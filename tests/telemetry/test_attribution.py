"""Who is charged for a wait: hand-made calls of the engine, and any others for what must always hold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legato.core.calls import Call, PrefillChunk
from legato.core.causes import CAUSES, Cause
from legato.telemetry.attribution import Attribution, Stretch

ANA, BEN, CAI = 1, 2, 3
NAMES = {ANA: "ana", BEN: "ben", CAI: "cai"}
DECODE_S = 0.01
CHUNK_S = 0.2
LOOP_S = 0.001


class Engine:
    """Makes calls one after another, with a little time for the loop before each."""

    def __init__(self, *running: int) -> None:
        self.now_s = 100.0
        self.attribution = Attribution()
        for request in running:
            self.admit(request)

    def admit(self, request: int) -> None:
        self.attribution.admit(request, NAMES[request], self.now_s)

    def decode(self, *requests: int, took_s: float = DECODE_S) -> None:
        self._call(took_s, list(requests), [])

    def read(self, request: int, tokens: int = 64, took_s: float = CHUNK_S, start: int = 0) -> None:
        self._call(took_s, [], [PrefillChunk(request, start, tokens)])

    def joined(self, decoded: list[int], chunks: list[PrefillChunk], took_s: float) -> None:
        self._call(took_s, decoded, chunks)

    def _call(self, took_s: float, decoded: list[int], chunks: list[PrefillChunk]) -> None:
        begun_s = self.now_s + LOOP_S
        self.now_s = begun_s + took_s
        self.attribution.call(Call(begun_s, self.now_s, decoded, chunks))

    def stretch(self, request: int) -> Stretch:
        stretch = self.attribution.stretch(request, self.now_s)
        assert stretch is not None
        return stretch


def whole(stretch: Stretch) -> float:
    return stretch.causes.total_ms / 1000


def cause_of(stretch: Stretch) -> Cause:
    return stretch.causes.largest


def test_an_answer_alone_waits_for_its_own_decode() -> None:
    engine = Engine(ANA)
    engine.decode(ANA)
    engine.stretch(ANA)
    engine.decode(ANA)
    stretch = engine.stretch(ANA)
    assert stretch.causes.own_decode_ms == pytest.approx(DECODE_S * 1000)
    assert stretch.causes.engine_ms == pytest.approx(LOOP_S * 1000)
    assert whole(stretch) == pytest.approx(DECODE_S + LOOP_S, abs=1e-5)


def test_a_chunk_of_another_prompt_is_charged_to_it_by_name() -> None:
    engine = Engine(ANA, BEN)
    engine.decode(ANA)
    engine.stretch(ANA)
    engine.read(BEN, tokens=64)
    engine.decode(ANA)
    stretch = engine.stretch(ANA)
    assert stretch.causes.others_prefill_ms == pytest.approx(CHUNK_S * 1000)
    assert [(blame.request, blame.tokens) for blame in stretch.causes.blamed] == [("ben", 64)]
    assert stretch.causes.blamed[0].ms == pytest.approx(CHUNK_S * 1000)
    assert cause_of(stretch) == "others_prefill"


def test_what_came_before_the_gap_is_not_blamed() -> None:
    engine = Engine(ANA, BEN)
    engine.read(BEN)
    engine.decode(ANA)
    engine.stretch(ANA)
    engine.decode(ANA)
    assert engine.stretch(ANA).causes.blamed == []


def test_two_prompts_share_the_blame_by_what_they_took() -> None:
    engine = Engine(ANA, BEN, CAI)
    engine.decode(ANA)
    engine.stretch(ANA)
    engine.read(BEN, tokens=64, took_s=0.1)
    engine.read(CAI, tokens=32, took_s=0.3)
    engine.decode(ANA)
    stretch = engine.stretch(ANA)
    assert [(blame.request, blame.tokens) for blame in stretch.causes.blamed] == [("cai", 32), ("ben", 64)]
    assert sum(blame.ms for blame in stretch.causes.blamed) == pytest.approx(stretch.causes.others_prefill_ms)


def test_of_two_prompts_each_waits_for_its_own_and_for_the_other() -> None:
    engine = Engine(BEN, CAI)
    for _ in range(3):
        engine.read(BEN, took_s=0.1)
        engine.read(CAI, took_s=0.2)
    stretch = engine.stretch(BEN)
    assert stretch.causes.own_prefill_ms == pytest.approx(0.3 * 1000)
    assert stretch.causes.others_prefill_ms == pytest.approx(0.6 * 1000)
    assert [blame.request for blame in stretch.causes.blamed] == ["cai"]


def test_in_a_full_batch_the_longer_call_is_the_others() -> None:
    engine = Engine(ANA, BEN, CAI)
    for _ in range(5):
        engine.decode(ANA)
    engine.stretch(ANA)
    engine.decode(ANA, BEN, CAI, took_s=0.2)
    stretch = engine.stretch(ANA)
    assert stretch.causes.own_decode_ms == pytest.approx(DECODE_S * 1000)
    assert stretch.causes.others_decode_ms == pytest.approx((0.2 - DECODE_S) * 1000)
    assert cause_of(stretch) == "others_decode"


def test_a_batch_that_nobody_was_seen_without_is_shared_evenly() -> None:
    engine = Engine(ANA, BEN)
    engine.decode(ANA, BEN, took_s=0.2)
    assert engine.stretch(ANA).causes.own_decode_ms == pytest.approx(100)


def test_a_call_that_decodes_and_reads_is_split() -> None:
    engine = Engine(ANA, BEN)
    engine.decode(ANA)
    engine.stretch(ANA)
    engine.joined([ANA], [PrefillChunk(BEN, 0, 512)], took_s=0.5)
    stretch = engine.stretch(ANA)
    assert stretch.causes.own_decode_ms == pytest.approx(DECODE_S * 1000)
    assert stretch.causes.others_prefill_ms == pytest.approx((0.5 - DECODE_S) * 1000)


def test_while_a_prompt_is_read_others_answers_slow_it() -> None:
    engine = Engine(ANA, BEN)
    engine.read(BEN)
    engine.decode(ANA)
    stretch = engine.stretch(BEN)
    assert stretch.causes.own_prefill_ms == pytest.approx(CHUNK_S * 1000)
    assert stretch.causes.others_decode_ms == pytest.approx(DECODE_S * 1000)


def test_a_slow_client_is_delivery() -> None:
    engine = Engine(ANA)
    engine.decode(ANA)
    parts = engine.stretch(ANA).delivered(0.4)
    assert parts.delivery_ms == pytest.approx(400)
    assert parts.largest == "delivery"


@pytest.mark.parametrize(("decode_s", "cause"), [(0.4, "own_decode"), (0.2, "others_prefill")])
def test_the_larger_part_is_the_cause(decode_s: float, cause: Cause) -> None:
    engine = Engine(ANA, BEN)
    engine.read(BEN, took_s=0.3)
    engine.decode(ANA, took_s=decode_s)
    assert cause_of(engine.stretch(ANA)) == cause


def test_what_is_not_known_is_not_charged() -> None:
    engine = Engine(ANA)
    assert engine.attribution.stretch(BEN, engine.now_s) is None
    engine.attribution.forget(ANA)
    assert engine.attribution.stretch(ANA, engine.now_s) is None


def test_a_new_worker_owes_nothing_for_the_time_before_it() -> None:
    engine = Engine(ANA)
    engine.decode(ANA)
    engine.attribution.reset()
    engine.now_s += 60
    engine.admit(ANA)
    engine.decode(ANA)
    assert whole(engine.stretch(ANA)) == pytest.approx(DECODE_S + LOOP_S, abs=1e-5)


def test_idle_time_before_an_admission_is_nobodys() -> None:
    engine = Engine(ANA)
    engine.decode(ANA)
    engine.now_s += 60
    engine.admit(BEN)
    engine.read(BEN)
    assert whole(engine.stretch(BEN)) == pytest.approx(CHUNK_S + LOOP_S, abs=1e-5)


durations = st.floats(0.0001, 2)
requests = st.sampled_from([ANA, BEN, CAI])
calls = st.tuples(
    durations, st.lists(requests, unique=True), st.lists(st.tuples(requests, st.integers(1, 512)), max_size=3)
)


@given(st.lists(calls, min_size=1, max_size=30), st.lists(st.integers(0, 29), max_size=5))
def test_the_parts_of_any_stretch_add_up_to_it(
    made: list[tuple[float, list[int], list[tuple[int, int]]]], asked_after: list[int]
) -> None:
    engine = Engine(ANA, BEN, CAI)
    since = dict.fromkeys((ANA, BEN, CAI), engine.now_s)
    for number, (took_s, decoded, chunks) in enumerate(made):
        if decoded or chunks:
            engine.joined(decoded, [PrefillChunk(request, 0, tokens) for request, tokens in chunks], took_s)
        for request in (ANA, BEN, CAI) if number in asked_after or number == len(made) - 1 else ():
            stretch = engine.stretch(request)
            causes = stretch.causes
            assert all(causes.of(cause) >= 0 for cause in CAUSES)
            assert whole(stretch) == pytest.approx(engine.now_s - since[request], abs=1e-6)
            assert sum(blame.ms for blame in causes.blamed) == pytest.approx(causes.others_prefill_ms, abs=1e-3)
            since[request] = engine.now_s


# Waiting for KV cells again


def test_what_goes_on_while_a_prompt_waits_again_is_charged_to_nobody() -> None:
    engine = Engine(ANA, BEN)
    begun_s = engine.now_s
    engine.read(BEN)
    engine.attribution.pause(BEN, engine.now_s)
    paused_s = engine.now_s
    for _ in range(3):
        engine.read(ANA, tokens=100)
        engine.decode(ANA)
    resumed_s = engine.now_s
    engine.attribution.resume(BEN, engine.now_s)
    engine.decode(ANA)
    engine.read(ANA, tokens=7)
    engine.read(BEN)
    stretch = engine.stretch(BEN)
    assert whole(stretch) == pytest.approx(engine.now_s - begun_s - (resumed_s - paused_s), abs=1e-5)
    assert stretch.causes.own_prefill_ms == pytest.approx(2 * CHUNK_S * 1000)
    assert stretch.causes.others_decode_ms == pytest.approx(DECODE_S * 1000)
    assert stretch.causes.others_prefill_ms == pytest.approx(CHUNK_S * 1000)
    assert [(blame.request, blame.tokens) for blame in stretch.causes.blamed] == [("ana", 7)]
    assert sum(blame.ms for blame in stretch.causes.blamed) == pytest.approx(CHUNK_S * 1000)


def test_an_idle_wait_for_cells_is_charged_to_nobody_either() -> None:
    engine = Engine(BEN)
    engine.read(BEN)
    engine.attribution.pause(BEN, engine.now_s)
    engine.now_s += 5.0
    engine.attribution.resume(BEN, engine.now_s)
    engine.read(BEN)
    stretch = engine.stretch(BEN)
    assert whole(stretch) == pytest.approx(2 * (CHUNK_S + LOOP_S), abs=1e-5)


def test_what_was_waited_for_between_several_waits_for_cells_adds_up() -> None:
    engine = Engine(ANA, BEN)
    for tokens in (5, 6, 7):
        engine.read(ANA, tokens=tokens)
        engine.attribution.pause(BEN, engine.now_s)
        engine.read(ANA, tokens=100)
        engine.attribution.resume(BEN, engine.now_s)
    engine.read(BEN)
    stretch = engine.stretch(BEN)
    assert whole(stretch) == pytest.approx(4 * (CHUNK_S + LOOP_S), abs=1e-5)
    assert stretch.causes.own_prefill_ms == pytest.approx(CHUNK_S * 1000)
    assert stretch.causes.others_prefill_ms == pytest.approx(3 * CHUNK_S * 1000)
    assert [(blame.request, blame.tokens) for blame in stretch.causes.blamed] == [("ana", 18)]
    engine.read(BEN)
    assert whole(engine.stretch(BEN)) == pytest.approx(CHUNK_S + LOOP_S, abs=1e-5)


def test_pausing_whom_nobody_knows_or_resuming_whom_nobody_paused_does_nothing() -> None:
    engine = Engine(ANA)
    engine.attribution.pause(BEN, engine.now_s)
    engine.attribution.resume(BEN, engine.now_s)
    engine.attribution.resume(ANA, engine.now_s)
    engine.decode(ANA)
    assert whole(engine.stretch(ANA)) == pytest.approx(DECODE_S + LOOP_S, abs=1e-5)
