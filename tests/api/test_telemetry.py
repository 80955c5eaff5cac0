"""What the meter says over HTTP, against what really happened."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx
import pytest

from tests.support.asking import ask, read
from tests.support.errors import error_of
from tests.support.server import LegatoProcess
from tests.support.streams import endless
from tests.support.waiting import wait_until

LONG = "All work and no play makes a dull day. " * 40


def requests(server: LegatoProcess, **query: Any) -> dict[str, Any]:
    return server.get("/api/requests", params=query).json()


def metric(server: LegatoProcess, line: str) -> float:
    """The value of a series, 0 if it is not there yet."""
    text = server.get("/metrics").text
    found = re.search(rf"^{re.escape(line)} (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else 0.0


# Requests


@pytest.mark.parametrize("api", ["chat", "completions"])
@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_is_found_by_the_id_in_its_body(server: LegatoProcess, api: Any, stream: bool) -> None:
    answer = ask(server.openai(), api, "Hi", max_tokens=4, stream=stream, extra_body={"ignore_eos": True})
    answer_id = next(iter(answer)).id if stream else answer.id
    if stream:
        read(answer)
    body = server.get(f"/api/requests/{answer_id}").json()
    found = body["request"]
    assert (found["id"], found["endpoint"], found["end"]) == (answer_id, api, "length")
    assert len(found["token_ms"]) == found["timings"]["decode_tokens"] == 4
    assert found["token_ms"][0] == pytest.approx(found["timings"]["ttft_ms"], abs=0.01)
    tokens_read = sum(chunk["tokens"] for chunk in found["chunks"])
    assert tokens_read + found["timings"]["cached_tokens"] == found["prompt_tokens"]
    assert body["verdict"]["sentences"]
    assert "Hi" not in json.dumps(body["request"])


def test_timings_in_the_record_are_those_of_the_answer(server: LegatoProcess) -> None:
    answer = ask(server.openai(), "chat", "Hi", max_tokens=4)
    assert server.get(f"/api/requests/{answer.id}").json()["request"]["timings"] == answer.model_extra["timings"]


def test_the_newest_come_first(server: LegatoProcess) -> None:
    ids = [ask(server.openai(), "completions", [42], max_tokens=1).id for _ in range(3)]
    assert [summary["id"] for summary in requests(server, limit=3)["requests"]] == ids[::-1]


def test_further_choices_are_requests_of_their_own(server: LegatoProcess) -> None:
    answer = ask(server.openai(), "completions", [42], n=2, max_tokens=1)
    assert {summary["id"] for summary in requests(server, limit=2)["requests"]} == {answer.id, f"{answer.id}-1"}


def test_filters_add_up(server: LegatoProcess) -> None:
    fast = ask(server.openai(), "completions", [42], max_tokens=1)
    slow = ask(server.openai(), "completions", [42], max_tokens=30, extra_body={"ignore_eos": True})
    between = (fast.model_extra["timings"]["total_ms"] + slow.model_extra["timings"]["total_ms"]) / 2
    found = [summary["id"] for summary in requests(server, slower_than_ms=between, end="length")["requests"]]
    assert slow.id in found
    assert fast.id not in found
    assert [s["id"] for s in requests(server, id=fast.id[:20])["requests"]] == [fast.id]
    assert requests(server, client="nobody")["requests"] == []


def test_one_that_runs_is_shown_with_its_phase(server: LegatoProcess) -> None:
    with endless(server.openai()) as chunks:
        answer_id = next(iter(chunks)).id
        (live,) = requests(server)["running"]
        assert (live["id"], live["phase"]) == (answer_id, "decode")
        assert requests(server, client="ana")["running"] == requests(server, id="x")["running"] == []
        assert live["read_tokens"] == live["prompt_tokens"]
        status = server.get("/api/status").json()
        assert (status["state"], status["running"], status["waiting"]) == ("ready", 1, 0)
        assert (status["policy"], status["gap_target_ms"]) == ("adaptive", 100)
        assert status["prediction_error_p50"] is None or status["prediction_error_p50"] >= 0
        assert 0 < status["kv_cells_used"] <= status["kv_cells"]
    # The server hears of the closed connection in a moment.
    wait_until(lambda: server.get(f"/api/requests/{answer_id}").status_code == 200, "the request has ended")
    record = server.get(f"/api/requests/{answer_id}").json()["request"]
    assert record["end"] == "cancelled"


def test_one_that_is_refused_is_no_request(server: LegatoProcess) -> None:
    before = requests(server, limit=1)["requests"]
    assert server.post("/v1/completions", {"prompt": "word " * 5000}).status_code == 400
    assert requests(server, limit=1)["requests"] == before


def test_an_unknown_one_is_a_404(server: LegatoProcess) -> None:
    reply = server.get("/api/requests/chatcmpl-nothing")
    assert reply.status_code == 404
    assert error_of(reply)["code"] == "request_not_found"


@pytest.mark.parametrize(
    "query", [{"limit": 0}, {"limit": 1001}, {"limit": "x"}, {"end": "early"}, {"slower_than_ms": -1}]
)
def test_a_wrong_query_is_refused(server: LegatoProcess, query: dict[str, Any]) -> None:
    reply = server.get("/api/requests", params=query)
    assert reply.status_code == 400
    assert next(iter(query)) in error_of(reply)["message"]


# Progress


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_progress_is_told_to_whoever_asks(server: LegatoProcess, api: Any) -> None:
    stream = ask(server.openai(), api, LONG, max_tokens=2, stream=True, stream_options={"include_progress": True})
    chunks = list(stream)
    told = [chunk.model_extra["prompt_progress"] for chunk in chunks if chunk.model_extra.get("prompt_progress")]
    assert len(told) >= 2
    assert [p["processed"] for p in told] == sorted({p["processed"] for p in told})
    assert told[-1]["processed"] == told[-1]["total"]
    assert told[-1]["left_ms"] == 0
    assert all(p["left_ms"] > 0 for p in told[:-1])
    texts = [number for number, chunk in enumerate(chunks) if chunk.choices and chunk.choices[0].finish_reason is None]
    last_told = max(number for number, chunk in enumerate(chunks) if chunk.model_extra.get("prompt_progress"))
    assert last_told < texts[-1]


def test_progress_is_not_told_to_others(server: LegatoProcess) -> None:
    chunks = list(ask(server.openai(), "chat", LONG, max_tokens=2, stream=True))
    assert not [chunk for chunk in chunks if "prompt_progress" in (chunk.model_extra or {})]


# Steps


def test_steps_say_what_each_call_did(server: LegatoProcess) -> None:
    last = server.get("/api/steps", params={"limit": 1000}).json()
    while last["next"]:
        last = server.get("/api/steps", params={"limit": 1000, "after": last["next"]}).json()
    seen = last["steps"][-1]["number"] if last["steps"] else 0
    answer = ask(server.openai(), "completions", [42] * 100, max_tokens=5, extra_body={"ignore_eos": True})
    steps = server.get("/api/steps", params={"after": seen}).json()["steps"]
    assert [step["number"] for step in steps] == list(range(seen + 1, seen + 1 + len(steps)))
    chunks = [chunk for step in steps for chunk in step["chunks"]]
    assert {chunk["request"] for chunk in chunks} == {answer.id}
    # Whatever the policy, one chunk begins where the one before ended.
    ends = [chunk["start"] + chunk["tokens"] for chunk in chunks]
    assert [chunk["start"] for chunk in chunks] == [0, *ends[:-1]]
    assert ends[-1] == 100
    assert all(step["predicted_ms"] is None or step["predicted_ms"] > 0 for step in steps)
    # The last chunk brings the first token.
    assert [step["decoded"] for step in steps if step["decoded"]] == [[answer.id]] * 4
    page = server.get("/api/steps", params={"after": seen, "limit": 2}).json()
    assert [step["number"] for step in page["steps"]] == [seen + 1, seen + 2]
    assert page["next"] == seen + 2


# Metrics


def test_metrics_count_what_was_done(server: LegatoProcess) -> None:
    names = (
        "legato_prompt_tokens_total",
        "legato_generated_tokens_total",
        'legato_requests_total{end="length"}',
        'legato_inter_token_latency_seconds_count{model="smollm2"}',
        'legato_ttft_seconds_count{model="smollm2"}',
    )
    before = [metric(server, name) for name in names]
    ask(server.openai(), "completions", [42] * 10, max_tokens=5, extra_body={"ignore_eos": True})
    after = [metric(server, name) for name in names]
    assert [b - a for a, b in zip(before, after, strict=True)] == [10, 5, 1, 4, 1]


def test_metrics_say_how_steps_are_planned_and_how_well_they_are_foreseen(server: LegatoProcess) -> None:
    assert metric(server, 'legato_policy_info{policy="adaptive"}') == 1
    assert metric(server, "legato_gap_target_seconds") == 0.1
    ask(server.openai(), "completions", [42] * 10, max_tokens=5, extra_body={"ignore_eos": True})
    assert metric(server, "legato_step_prediction_error_ratio_count") > 0


def test_gauges_show_the_present(server: LegatoProcess) -> None:
    assert metric(server, "legato_requests_running") == 0
    with endless(server.openai()) as chunks:
        next(iter(chunks))
        assert metric(server, "legato_requests_running") == 1
        assert metric(server, "legato_kv_cells_used") > 0


# Whose they are


def test_requests_carry_the_name_of_their_key_and_need_one(serve: Any) -> None:
    server = serve("smollm2", "--ctx", "256", "--parallel", "1", "--api-key", "ana=secret", "--api-key", "plain")
    for key in ("secret", "plain"):
        ask(server.openai(api_key=key), "completions", [42], max_tokens=1)
    headers = {"authorization": "Bearer plain"}
    found = server.get("/api/requests", headers=headers).json()["requests"]
    assert [summary["client"] for summary in found] == [None, "ana"]
    found = server.get("/api/requests", headers=headers, params={"client": "ana"}).json()["requests"]
    assert len(found) == 1
    for path in ("/metrics", "/api/requests", "/api/steps", "/api/status", f"/api/requests/{found[0]['id']}"):
        assert server.get(path).status_code == 401
    assert "secret" not in httpx.get(f"{server.url}/api/requests", headers=headers).text


def test_without_telemetry_the_phases_stay(serve: Any) -> None:
    server = serve("smollm2", "--ctx", "256", "--parallel", "1", "--no-telemetry")
    answer = ask(server.openai(), "completions", [42], max_tokens=4, extra_body={"ignore_eos": True})
    timings = answer.model_extra["timings"]
    assert timings["decode_tokens"] == 4
    assert timings["prefill_parts"] is None
    assert server.get("/api/steps").json()["steps"] == []
    # No history either: the list is of what is in memory, under the same conditions.
    assert requests(server)["requests"][0]["id"] == answer.id
    assert requests(server, model="smollm2", slower_than_ms=0)["requests"]
    for condition in ({"model": "other"}, {"client": "ana"}, {"end": "failed"}, {"slower_than_ms": 1e9}, {"id": "x"}):
        assert requests(server, **condition)["requests"] == []
    reply = server.get("/api/requests", params={"before": "1_1"})
    assert (reply.status_code, error_of(reply)["param"]) == (400, "before")
