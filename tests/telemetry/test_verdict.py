"""What a person is told about a wait: the phase, its figures, whose prompt it was, and advice that the figures bear."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from legato.core.causes import CAUSES, Blame, CauseTimes
from legato.core.timings import ChunkRead, Stall, Timings
from legato.telemetry.advice import ADVICE
from legato.telemetry.breakdown import PHASES
from legato.telemetry.record import RequestRecord
from legato.telemetry.verdict import Verdict, verdict

QUICK = Timings(
    load_ms=0.0,
    queue_ms=2.0,
    prefill_ms=20.0,
    prefill_tokens=20,
    cached_tokens=0,
    prefill_tokens_per_second=1000.0,
    ttft_ms=22.0,
    decode_ms=30.0,
    decode_tokens=4,
    decode_tokens_per_second=100.0,
    itl_p50_ms=10.0,
    itl_p95_ms=10.0,
    itl_max_ms=10.0,
    total_ms=52.0,
)
NO_TOKEN: dict[str, Any] = {
    "prefill_tokens_per_second": None,
    "ttft_ms": None,
    "decode_ms": 0.0,
    "decode_tokens": 0,
    "decode_tokens_per_second": None,
    "itl_p50_ms": None,
    "itl_p95_ms": None,
    "itl_max_ms": None,
}


def a_record(*, end: Any = "stop", error: str = "", behind: tuple[str, ...] = (), **timings: Any) -> RequestRecord:
    """A quick request but for what is said here; the whole is made to fit the phases."""
    stalls = timings.pop("stall_list", [])
    tier = timings.pop("service_tier", "default")
    changed = dataclasses.replace(QUICK, **timings)
    total = changed.load_ms + changed.queue_ms + changed.prefill_ms + changed.decode_ms
    return RequestRecord(
        id="chatcmpl-mine",
        endpoint="chat",
        model="m",
        client=None,
        arrived_at=1_700_000_000.0,
        end=end,
        error=error,
        prompt_tokens=changed.prefill_tokens + changed.cached_tokens,
        timings=dataclasses.replace(changed, total_ms=total),
        behind=list(behind),
        stalls=stalls,
        service_tier=tier,
    )


def words(found: Verdict) -> str:
    return " ".join(found.sentences)


def test_a_long_prompt_read_at_full_speed() -> None:
    found = verdict(
        a_record(
            prefill_ms=5900.0,
            prefill_tokens=4812,
            prefill_tokens_per_second=815.0,
            decode_ms=200.0,
            decode_tokens_per_second=31.0,
            prefill_parts=CauseTimes(own_prefill_ms=5880.0, engine_ms=20.0),
        )
    )
    assert found.sentences == [
        "5.9 of 6.1 s went into reading 4,812 prompt tokens at 815 tokens/s; "
        "the answer's 31 tokens/s is a different phase.",
        "Its prompt was read at full speed: nobody slowed it.",
        ADVICE["shorter_prompt"],
    ]
    assert (found.dominant, found.ms) == ("prefill", 5900.0)
    assert found.share == pytest.approx(5900 / 6102)
    assert [cause.cause for cause in found.causes] == ["own_prefill", "engine"]


def test_a_load() -> None:
    found = verdict(a_record(load_ms=4200.0))
    assert found.dominant == "load"
    assert found.sentences == ["4.2 of 4.3 s went into waiting for the model to load.", ADVICE["keep_running"]]


def test_a_queue_names_who_was_ahead() -> None:
    found = verdict(a_record(queue_ms=9000.0, behind=("a", "b", "c", "d", "e")))
    assert found.dominant == "queue"
    assert "waiting in the queue behind 5 requests (a, b, c and 2 more)" in found.sentences[0]
    assert found.advice == ["more_at_once"]


def test_a_queue_behind_nobody_is_no_reason_for_more_at_once() -> None:
    found = verdict(a_record(queue_ms=9000.0))
    assert "taking the request in and waiting for a place" in found.sentences[0]
    assert found.advice == []


def test_a_prompt_slowed_by_others_says_by_whom_and_by_how_much() -> None:
    parts = CauseTimes(
        own_prefill_ms=1000.0,
        others_prefill_ms=3000.0,
        others_decode_ms=500.0,
        blamed=[Blame("long", 4812, 2900.0), Blame("short", 1, 100.0)],
    )
    found = verdict(a_record(prefill_ms=4500.0, prefill_tokens=1600, prefill_parts=parts))
    assert (
        "Its prompt alone took 1.0 s (1,600 tokens/s); 3.0 s more went into reading others' prompts: "
        "4,812 tokens of long (2.9 s) and 1 token of short (100 ms); 500 ms more went into writing others' answers."
    ) in found.sentences
    assert "full speed" not in words(found)
    assert found.blamed == parts.blamed
    assert "others_shorter_prompts" in found.advice


def test_what_was_cached_is_said() -> None:
    found = verdict(
        a_record(
            prefill_ms=3000.0,
            prefill_tokens=1000,
            cached_tokens=3000,
            prefill_parts=CauseTimes(own_prefill_ms=3000.0),
        )
    )
    assert "3,000 of 4,000 prompt tokens were remembered." in found.sentences
    assert found.advice == ["shorter_prompt"]


def test_writing_at_its_own_pace() -> None:
    found = verdict(
        a_record(
            decode_ms=8000.0,
            decode_tokens=250,
            decode_tokens_per_second=31.1,
            decode_parts=CauseTimes(own_decode_ms=7900.0, engine_ms=100.0),
        )
    )
    assert found.dominant == "decode"
    assert found.sentences == [
        "All 8.0 s went into writing 250 tokens at 31 tokens/s; the prompt's 1,000 tokens/s is a different phase.",
        "Its answer was written at its own pace: nobody slowed it.",
        ADVICE["smaller_model"],
    ]


def test_writing_slowed_by_other_answers() -> None:
    found = verdict(
        a_record(
            decode_ms=8000.0,
            decode_tokens=101,
            decode_parts=CauseTimes(own_decode_ms=2000.0, others_decode_ms=6000.0),
        )
    )
    assert (
        "Its answer alone took 2.0 s (50 tokens/s); 6.0 s more went into writing others' answers."
    ) in found.sentences
    assert found.advice == ["fewer_at_once"]


def stall(cause: Any, gap_ms: float, *blamed: Blame, at_ms: float = 3400.0) -> Stall:
    parts = CauseTimes(**{f"{cause}_ms": gap_ms}, blamed=list(blamed))
    return Stall(at_ms, gap_ms, cause, parts)


def test_a_stall_is_told_by_its_parts_whatever_its_cause_is_called() -> None:
    parts = CauseTimes(
        own_decode_ms=900.0, others_prefill_ms=11_800.0, engine_ms=3.0, blamed=[Blame("x", 64, 11_800.0)]
    )
    found = verdict(a_record(stalls=1, stalled_ms=12_703.0, stall_list=[Stall(5.0, 12_703.0, "own_decode", parts)]))
    assert "11.8 s for others' prompts (64 tokens of x)." in words(found)
    assert found.advice == ["smaller_chunk"]


def test_the_parts_of_a_stall_are_told_longest_first() -> None:
    parts = CauseTimes(own_decode_ms=300.0, others_decode_ms=700.0)
    found = verdict(a_record(stalls=1, stalled_ms=1000.0, stall_list=[Stall(5.0, 1000.0, "others_decode", parts)]))
    assert "700 ms for other answers' tokens and 300 ms for its own next token." in words(found)


def test_a_stall_without_parts_has_its_cause() -> None:
    found = verdict(a_record(stalls=1, stalled_ms=1000.0, stall_list=[Stall(5.0, 1000.0, "delivery", CauseTimes())]))
    assert "after its arrival: for delivery to the client." in words(found)


def test_stalls_name_the_longest_and_its_prompt() -> None:
    found = verdict(
        a_record(
            decode_ms=8000.0,
            decode_tokens=100,
            stalls=3,
            stalled_ms=4100.0,
            stall_list=[stall("others_prefill", 800.0), stall("others_prefill", 2100.0, Blame("x", 512, 2000.0))],
        )
    )
    assert (
        "3 gaps between tokens were longer than the target, 4.1 s together; the longest was 2.1 s long, "
        "3.4 s after its arrival: 2.1 s for others' prompts (512 tokens of x)."
    ) in found.sentences
    assert found.advice == ["smaller_chunk"]


def test_one_stall() -> None:
    found = verdict(a_record(stalls=1, stalled_ms=900.0, stall_list=[stall("engine", 900.0, at_ms=10.0)]))
    assert (
        "1 gap between tokens was longer than the target, 900 ms long, 10 ms after its arrival: "
        "900 ms for the engine's work between calls."
    ) in found.sentences
    assert found.advice == []


def test_stalls_that_were_only_counted() -> None:
    found = verdict(a_record(stalls=2, stalled_ms=900.0))
    assert "2 gaps between tokens were longer than the target, 900 ms together." in found.sentences


@pytest.mark.parametrize(
    ("cause", "tokens", "advice"),
    [
        ("others_prefill", 8, []),
        ("others_prefill", 64, ["smaller_chunk"]),
        ("others_prefill", 4812, ["adaptive_policy"]),
        ("own_decode", 4812, []),
        ("delivery", 64, []),
    ],
)
def test_chunks_are_advised_on_by_what_a_stall_waited_for(cause: Any, tokens: int, advice: list[str]) -> None:
    stalls = [stall(cause, 2000.0, Blame("x", tokens, 2000.0))]
    assert verdict(a_record(stalls=1, stalled_ms=2000.0, stall_list=stalls)).advice == advice


def test_a_slow_client() -> None:
    found = verdict(
        a_record(
            decode_ms=6000.0,
            decode_tokens=50,
            prefill_parts=CauseTimes(own_prefill_ms=30.0, delivery_ms=-10.0),
            decode_parts=CauseTimes(own_decode_ms=1000.0, delivery_ms=5000.0),
        )
    )
    assert (found.dominant, found.ms) == ("delivery", 5000.0)
    assert found.sentences[0].startswith("5.0 of 6.0 s went into delivery")
    assert "1.0 s went into writing 50 tokens" in found.sentences[1]
    assert found.advice == ["slow_client"]


def test_a_delay_that_was_made_good_is_none() -> None:
    found = verdict(a_record(decode_parts=CauseTimes(own_decode_ms=60.0, delivery_ms=-30.0)))
    assert found.dominant == "decode"
    assert all(cause.ms > 0 for cause in found.causes)


def test_the_engine_between_calls() -> None:
    found = verdict(a_record(decode_ms=1000.0, decode_parts=CauseTimes(own_decode_ms=500.0, engine_ms=500.0)))
    assert "500 ms went into the engine's own work between the model's calls." in found.sentences


# Background work and targets


WAITED = "It was background work and waited for others."


def test_background_work_that_waited_says_so() -> None:
    found = verdict(a_record(service_tier="flex", queue_ms=9000.0, behind=("a",)))
    assert WAITED in found.sentences
    assert found.advice == ["default_tier"]


def test_background_work_that_was_slowed_says_so() -> None:
    slowed = CauseTimes(own_decode_ms=100.0, others_prefill_ms=900.0)
    found = verdict(a_record(service_tier="flex", decode_ms=1000.0, decode_parts=slowed))
    assert WAITED in found.sentences
    assert found.advice == ["default_tier"]


def test_background_work_that_nobody_held_up_says_nothing() -> None:
    alone = CauseTimes(own_decode_ms=8000.0)
    found = verdict(a_record(service_tier="flex", decode_ms=8000.0, decode_parts=alone))
    assert "background" not in words(found)
    assert "default_tier" not in found.advice


def test_others_are_not_told_of_background_work() -> None:
    found = verdict(a_record(queue_ms=9000.0, behind=("a",)))
    assert "background" not in words(found)
    assert found.advice == ["more_at_once"]


@pytest.mark.parametrize(("preemptions", "said"), [(1, "once"), (2, "2 times"), (1234, "1,234 times")])
def test_giving_way_is_counted(preemptions: int, said: str) -> None:
    found = verdict(a_record(service_tier="flex", preemptions=preemptions))
    assert (f"It was background work and waited for others: it gave its place up to others {said}.") in found.sentences
    assert f"It gave its place up to others {said}." in verdict(a_record(preemptions=preemptions)).sentences


def test_a_target_that_could_not_be_kept_is_told_with_what_could() -> None:
    raised = {"gap_target_ms": 100.0, "raised_gap_target_ms": 140.0}
    found = verdict(a_record(**raised, raised_at_answers=8))
    assert (
        "Its target of 100 ms could not always be kept: one step of 8 answers took up to 140 ms, "
        "and meanwhile only longer gaps counted."
    ) in found.sentences
    assert "one step of 1 answer took" in words(verdict(a_record(**raised, raised_at_answers=1)))
    assert "one step took up to 140 ms" in words(verdict(a_record(**raised)))


def test_a_target_that_was_kept_needs_no_word() -> None:
    assert "target" not in words(verdict(a_record(gap_target_ms=100.0)))


def test_a_failure_comes_first_with_its_reason_and_without_advice() -> None:
    found = verdict(a_record(end="failed", error="The model's context\nis full.", load_ms=4000.0, **NO_TOKEN))
    assert found.sentences[0] == "It failed after 4.0 s: The model's context is full."
    assert found.sentences[1].startswith("All 4.0 s went into waiting for the model to load")
    assert found.advice == []
    assert verdict(a_record(end="failed", load_ms=4000.0)).sentences[0] == "It failed after 4.1 s."


def test_a_cancelled_answer() -> None:
    assert verdict(a_record(end="cancelled")).sentences[0] == (
        "The client went away after 52 ms, with 4 tokens of the answer written."
    )
    found = verdict(a_record(end="cancelled", prefill_ms=3000.0, prefill_tokens=2000, **NO_TOKEN))
    assert found.sentences[0] == "The client went away after 3.0 s, before the first token."
    assert "reading the prompt's 2,000 tokens, and no token of an answer came" in found.sentences[1]


def test_a_prompt_that_was_read_in_part() -> None:
    chunks = [ChunkRead(0.0, 100.0, 0, 512), ChunkRead(100.0, 100.0, 512, 512)]
    record = a_record(end="cancelled", prefill_ms=3000.0, prefill_tokens=2000, **NO_TOKEN)
    record = msgspec.structs.replace(record, chunks=chunks)
    assert "reading 1,024 of the prompt's 2,000 tokens" in verdict(record).sentences[1]


def test_a_short_prompt_that_takes_long_is_the_models_slowness() -> None:
    slow = {"prefill_ms": 5000.0, "prefill_parts": CauseTimes(own_prefill_ms=5000.0)}
    assert verdict(a_record(prefill_tokens=37, **slow)).advice == ["smaller_model"]
    assert verdict(a_record(prefill_tokens=370, **slow)).advice == ["shorter_prompt"]


def test_an_answer_of_one_token_has_no_pace() -> None:
    found = verdict(a_record(decode_tokens=1, decode_tokens_per_second=None, itl_max_ms=None))
    assert "The answer has one token, so that there is no pace of writing." in found.sentences
    assert "the time from the answer's only token to its end" in found.sentences[0]


def test_an_answer_of_no_token() -> None:
    assert "The answer has no token." in verdict(a_record(**NO_TOKEN)).sentences


def test_a_prompt_that_was_cached_whole() -> None:
    found = verdict(a_record(prefill_ms=40.0, prefill_tokens=0, cached_tokens=1, prefill_tokens_per_second=None))
    assert "all of which was cached" in found.sentences[0]
    assert "1 of 1 prompt token was remembered." in found.sentences


def test_no_time_at_all() -> None:
    found = verdict(a_record(queue_ms=0.0, prefill_ms=0.0, **NO_TOKEN))
    assert found.sentences[0] == "It took no time that can be measured."
    assert found.share == 0


def test_a_quick_answer_needs_no_advice() -> None:
    parts = {"prefill_parts": CauseTimes(own_prefill_ms=20.0), "decode_parts": CauseTimes(own_decode_ms=30.0)}
    assert verdict(a_record(**parts)).advice == []


def test_without_recorded_parts_nobody_is_blamed() -> None:
    found = verdict(a_record(decode_ms=9000.0, decode_tokens=100))
    assert found.advice == []
    assert found.causes == []
    assert "nobody" not in words(found)


def test_more_and_fewer_at_once_exclude_each_other() -> None:
    slowed = CauseTimes(own_decode_ms=1000.0, others_decode_ms=6000.0)
    found = verdict(a_record(queue_ms=5000.0, behind=("a",), decode_ms=7000.0, decode_parts=slowed))
    assert "fewer_at_once" in found.advice
    assert "more_at_once" not in found.advice


times = st.floats(0, 1e7)
counts = st.integers(0, 10**6)
# Names and errors may hold anything; here not the words that are looked for below.
names = st.text(alphabet="xyz", min_size=1, max_size=12)
blames = st.lists(st.builds(Blame, names, counts, times), max_size=4)
some_parts = st.builds(CauseTimes, times, times, times, times, times, st.floats(-1e6, 1e7), blames)
some_timings = st.builds(
    Timings,
    **dict.fromkeys(("load_ms", "queue_ms", "prefill_ms", "decode_ms", "total_ms", "stalled_ms"), times),
    **dict.fromkeys(("prefill_tokens", "cached_tokens", "decode_tokens", "stalls"), counts),
    **dict.fromkeys(("prefill_tokens_per_second", "decode_tokens_per_second", "ttft_ms"), st.none() | times),
    **dict.fromkeys(("itl_p50_ms", "itl_p95_ms", "itl_max_ms"), st.none() | times),
    **dict.fromkeys(("prefill_parts", "decode_parts"), st.none() | some_parts),
    **dict.fromkeys(("gap_target_ms", "raised_gap_target_ms"), st.none() | times),
    **dict.fromkeys(("raised_at_answers", "preemptions"), counts),
)
records = st.builds(
    RequestRecord,
    id=names,
    endpoint=st.sampled_from(["chat", "completions"]),
    model=names,
    client=st.none() | names,
    arrived_at=times,
    end=st.sampled_from(["stop", "length", "cancelled", "failed"]),
    error=st.text(alphabet="xyz \n.", max_size=400),
    prompt_tokens=counts,
    timings=some_timings,
    behind=st.lists(st.text(alphabet="xyz", min_size=1), max_size=5),
    stalls=st.lists(st.builds(Stall, times, times, st.sampled_from(CAUSES), some_parts), max_size=3),
    service_tier=st.sampled_from(["default", "flex"]),
)


@given(records)
def test_whatever_was_recorded_is_told_in_whole_sentences(record: RequestRecord) -> None:
    found = verdict(record)
    assert found.sentences
    assert all(sentence.endswith(".") for sentence in found.sentences)
    text = words(found)
    assert not re.search(r"\bnan\b|\binf\b|-\d", text), text


@given(records)
def test_figures_are_in_their_range(record: RequestRecord) -> None:
    found = verdict(record)
    assert found.dominant in PHASES
    assert 0 <= found.share <= 1
    assert found.ms >= 0
    assert all(cause.ms > 0 and 0 <= cause.share <= 1 for cause in found.causes)
    assert [cause.ms for cause in found.causes] == sorted((cause.ms for cause in found.causes), reverse=True)
    assert len(set(found.advice)) == len(found.advice)
    assert len({blame.request for blame in found.blamed}) == len(found.blamed)


@given(records)
def test_it_goes_through_json(record: RequestRecord) -> None:
    found = verdict(record)
    assert msgspec.json.decode(msgspec.json.encode(found), type=Verdict) == found


@given(records)
def test_a_record_is_left_as_it_was(record: RequestRecord) -> None:
    before = msgspec.json.encode(record)
    verdict(record)
    assert msgspec.json.encode(record) == before
