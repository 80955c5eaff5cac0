"""Requests that are wrong: each is refused with the parameter's name, and harms nobody."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.support.asking import ANSWER, QUESTION, user
from tests.support.errors import error_of, is_sentence
from tests.support.server import LegatoProcess

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
VOCABULARY = 49_152
CONTEXT = 2048


@pytest.fixture(scope="module", autouse=True)
def _no_accidents(server: LegatoProcess) -> Iterator[None]:
    """What was refused must not have been an accident."""
    before = len(server.output())
    yield
    assert "Traceback" not in server.output()[before:]
    assert server.still_answers()


@pytest.fixture(autouse=True)
def _unharmed(server: LegatoProcess) -> Iterator[None]:
    worker = server.worker()
    yield
    assert server.worker() == worker
    assert server.post(TEXT, {"prompt": [42], "max_tokens": 1}).status_code == 200


@dataclass
class Case:
    """A body, merged into one that would be answered, and the parameter that its refusal must name."""

    body: dict[str, Any]
    param: str | None
    code: str | None = "invalid_value"
    path: str = CHAT

    def __str__(self) -> str:
        return json.dumps(self.body, default=str)[:60]

    def send(self, server: LegatoProcess) -> httpx.Response:
        right = {"messages": user("Hi")} if self.path == CHAT else {"prompt": "Hi"}
        return server.post(self.path, {**right, "max_tokens": 1, **self.body})


def both(body: dict[str, Any], param: str, code: str = "invalid_value") -> list[Case]:
    return [Case(body, param, code), Case(body, param, code, TEXT)]


NUMBERS = [
    *both({"max_tokens": -1}, "max_tokens"),
    *both({"max_tokens": 0}, "max_tokens"),
    *both({"max_tokens": 1.5}, "max_tokens"),
    *both({"n": 0}, "n"),
    *both({"n": -1}, "n"),
    *both({"n": 17}, "n"),
    *both({"n": 10**30}, "n"),
    *both({"temperature": -0.1}, "temperature"),
    *both({"temperature": 2.1}, "temperature"),
    *both({"temperature": 1e308}, "temperature"),
    *both({"temperature": 10**400}, "temperature"),
    *both({"top_p": 0}, "top_p"),
    *both({"top_p": 1.1}, "top_p"),
    *both({"top_p": -1}, "top_p"),
    *both({"top_k": -2}, "top_k"),
    *both({"top_k": 2**31}, "top_k"),
    *both({"min_p": -0.1}, "min_p"),
    *both({"min_p": 2}, "min_p"),
    *both({"typical_p": 0}, "typical_p"),
    *both({"repetition_penalty": 0}, "repetition_penalty"),
    *both({"repetition_penalty": 1e9}, "repetition_penalty"),
    *both({"presence_penalty": 2.1}, "presence_penalty"),
    *both({"frequency_penalty": -2.1}, "frequency_penalty"),
    *both({"seed": 1.5}, "seed"),
    *both({"gap_target_ms": 0.5}, "gap_target_ms"),
    *both({"gap_target_ms": 60_001}, "gap_target_ms"),
    Case({"max_completion_tokens": 0}, "max_completion_tokens"),
    Case({"logprobs": True, "top_logprobs": -1}, "top_logprobs"),
    Case({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    Case({"logprobs": -1}, "logprobs", path=TEXT),
    Case({"logprobs": 21}, "logprobs", path=TEXT),
]

TYPES = [
    *both({"model": 5}, "model"),
    *both({"stream": "yes"}, "stream"),
    *both({"stream": 1}, "stream"),
    *both({"stream": True, "stream_options": []}, "stream_options"),
    *both({"stream": True, "stream_options": {"include_usage": "yes"}}, "stream_options.include_usage"),
    *both({"stream": True, "stream_options": {"include_obfuscation": True}}, "stream_options.include_obfuscation"),
    *both({"max_tokens": "5"}, "max_tokens"),
    *both({"max_tokens": True}, "max_tokens"),
    *both({"max_tokens": [5]}, "max_tokens"),
    *both({"n": "2"}, "n"),
    *both({"seed": "7"}, "seed"),
    *both({"temperature": "0.5"}, "temperature"),
    *both({"temperature": {}}, "temperature"),
    *both({"top_p": []}, "top_p"),
    *both({"top_k": "40"}, "top_k"),
    *both({"ignore_eos": "no"}, "ignore_eos"),
    *both({"user": 7}, "user"),
    *both({"service_tier": 7}, "service_tier"),
    *both({"gap_target_ms": "50"}, "gap_target_ms"),
    Case({"logprobs": 5}, "logprobs"),
    Case({"logprobs": True, "top_logprobs": "5"}, "top_logprobs"),
    Case({"chat_template_kwargs": []}, "chat_template_kwargs"),
    Case({"continue_final_message": "yes"}, "continue_final_message"),
    Case({"logprobs": True}, "logprobs", path=TEXT),
    Case({"echo": "yes"}, "echo", path=TEXT),
]

STOPS = [
    *both({"stop": ""}, "stop[0]"),
    *both({"stop": ["ok", ""]}, "stop[1]"),
    *both({"stop": [1]}, "stop[0]"),
    *both({"stop": 1}, "stop"),
    *both({"stop": {}}, "stop"),
    *both({"stop": [str(n) for n in range(17)]}, "stop"),
    *both({"stop": "x" * 1001}, "stop[0]"),
]

BIASES = [
    *both({"logit_bias": []}, "logit_bias"),
    *both({"logit_bias": {"abc": 1}}, "logit_bias"),
    *both({"logit_bias": {"-1": 1}}, "logit_bias"),
    *both({"logit_bias": {"1.5": 1}}, "logit_bias"),
    *both({"logit_bias": {"": 1}}, "logit_bias"),
    *both({"logit_bias": {str(VOCABULARY): 1}}, "logit_bias"),
    *both({"logit_bias": {"9" * 30: 1}}, "logit_bias"),
    *both({"logit_bias": {"9" * 5000: 1}}, "logit_bias"),
    *both({"logit_bias": {"42": 101}}, "logit_bias[42]"),
    *both({"logit_bias": {"42": -101}}, "logit_bias[42]"),
    *both({"logit_bias": {"42": "1"}}, "logit_bias[42]"),
    *both({"logit_bias": {str(n): 1 for n in range(1025)}}, "logit_bias"),
]

COMBINATIONS = [
    *both({"stream_options": {"include_usage": True}}, "stream_options", "invalid_parameter_combination"),
    *both({"stream": False, "stream_options": {}}, "stream_options", "invalid_parameter_combination"),
    Case({"top_logprobs": 2}, "top_logprobs"),
    Case({"logprobs": False, "top_logprobs": 2}, "top_logprobs"),
    Case({"max_tokens": 5, "max_completion_tokens": 6}, "max_tokens"),
    Case({"echo": True, "logprobs": 1}, "echo", "unsupported_parameter", TEXT),
]

UNKNOWN = [
    *both({"max_token": 5}, "max_token", "unknown_parameter"),
    *both({"max-tokens": 5}, "max-tokens", "unknown_parameter"),
    *both({"überraschung": None}, "überraschung", "unknown_parameter"),
    *both(
        {"stream": True, "stream_options": {"include_time": True}},
        "stream_options.include_time",
        "unknown_parameter",
    ),
    Case({"prompt": "Hi"}, "prompt", "unknown_parameter"),
    Case({"echo": True}, "echo", "unknown_parameter"),
    Case({"messages": user("Hi")}, "messages", "unknown_parameter", TEXT),
    Case({"max_completion_tokens": 5}, "max_completion_tokens", "unknown_parameter", TEXT),
    Case({"top_logprobs": 5}, "top_logprobs", "unknown_parameter", TEXT),
]

FUNCTION = {"name": "f", "parameters": {"type": "object", "properties": {}}}
UNSUPPORTED = [
    Case({name: value}, name, "unsupported_parameter", path)
    for path, name, value in [
        (CHAT, "tools", [{"type": "function", "function": FUNCTION}]),
        (CHAT, "tool_choice", "required"),
        (CHAT, "tool_choice", {"type": "function", "function": {"name": "f"}}),
        (CHAT, "parallel_tool_calls", "maybe"),
        (CHAT, "functions", [FUNCTION]),
        (CHAT, "function_call", {"name": "f"}),
        (CHAT, "response_format", {"type": "json_object"}),
        (CHAT, "response_format", {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}),
        (CHAT, "modalities", ["text", "audio"]),
        (CHAT, "audio", {"voice": "alloy", "format": "mp3"}),
        (CHAT, "prediction", {"type": "content", "content": "x"}),
        (CHAT, "reasoning_effort", "high"),
        (CHAT, "verbosity", "low"),
        (CHAT, "web_search_options", {}),
        (CHAT, "service_tier", "priority"),
        (TEXT, "service_tier", "fast"),
        (CHAT, "store", True),
        (CHAT, "metadata", {"a": "b"}),
        (CHAT, "prompt_cache_retention", "24h"),
        (TEXT, "suffix", "the end"),
        (TEXT, "best_of", 2),
    ]
]

MESSAGES = [
    Case({"messages": value}, param)
    for value, param in [
        ([], "messages"),
        ("Hi", "messages"),
        ({}, "messages"),
        (None, "messages"),
        (["Hi"], "messages[0]"),
        ([None], "messages[0]"),
        ([{"content": "Hi"}], "messages[0].role"),
        ([{"role": "robot", "content": "Hi"}], "messages[0].role"),
        ([{"role": 5, "content": "Hi"}], "messages[0].role"),
        ([{"role": ["user"], "content": "Hi"}], "messages[0].role"),
        ([{"role": "tool", "content": "Hi", "tool_call_id": "x"}], "messages[0].role"),
        ([{"role": "user"}], "messages[0].content"),
        ([{"role": "user", "content": None}], "messages[0].content"),
        ([{"role": "user", "content": 5}], "messages[0].content"),
        ([{"role": "user", "content": {}}], "messages[0].content"),
        ([{"role": "user", "content": []}], "messages[0].content"),
        ([{"role": "user", "content": ["Hi"]}], "messages[0].content[0]"),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0].text"),
        ([{"role": "user", "content": [{"text": "Hi"}]}], "messages[0].content[0].type"),
        (
            [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
            "messages[0].content[0].type",
        ),
        ([{"role": "user", "content": "Hi", "colour": "red"}], "messages[0].colour"),
        ([{"role": "user", "content": "Hi", "name": 5}], "messages[0].name"),
        ([*user("Hi"), {"role": "assistant", "content": "a", "tool_calls": [{"id": "x"}]}], "messages[1].tool_calls"),
        ([*user("Hi"), {"role": "user", "content": "\ud800"}], "messages[1].content"),
        (user("Hi") * 10_001, "messages"),
    ]
]

PROMPTS = [
    Case({"prompt": value}, param, path=TEXT)
    for value, param in [
        ("", "prompt"),
        ([], "prompt"),
        ([[]], "prompt"),
        (["Hi", ""], "prompt"),
        (None, "prompt"),
        (5, "prompt"),
        (True, "prompt"),
        ({}, "prompt"),
        ([None], "prompt"),
        ([1.5], "prompt"),
        ([True], "prompt"),
        (["Hi", 5], "prompt"),
        ([[1], "Hi"], "prompt"),
        (["Hi"] * 65, "prompt"),
        ([-1], "prompt"),
        ([VOCABULARY], "prompt"),
        ([2**31], "prompt"),
        ([10**30], "prompt"),
        ([[1], [VOCABULARY]], "prompt"),
        ("\ud800", "prompt"),
    ]
]

CASES = [
    *NUMBERS, *TYPES, *STOPS, *BIASES, *COMBINATIONS, *UNKNOWN, *UNSUPPORTED, *MESSAGES, *PROMPTS,
    *both({"stop": "\udfff"}, "stop[0]"),
    *both({"user": "\ud83d"}, "user"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_wrong_parameter_is_refused_by_name(server: LegatoProcess, case: Case) -> None:
    reply = case.send(server)
    assert reply.status_code == 400, reply.text
    error = error_of(reply)
    assert (error["param"], error["code"]) == (case.param, case.code), error


def test_every_refusal_is_a_sentence(server: LegatoProcess) -> None:
    messages = {case.send(server).json()["error"]["message"] for case in CASES}
    assert [message for message in sorted(messages) if not is_sentence(message)] == []


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_a_missing_prompt_is_refused(server: LegatoProcess, path: str) -> None:
    error = error_of(server.post(path, {"max_tokens": 1}))
    assert error["param"] == {CHAT: "messages", TEXT: "prompt"}[path]


@pytest.mark.parametrize("path", [CHAT, TEXT])
@pytest.mark.parametrize("model", ["gpt-4o", "", "smollm2 ", "smol\x00", "../smollm2", "x" * 500])
def test_an_unknown_model_is_not_found(server: LegatoProcess, path: str, model: str) -> None:
    reply = Case({"model": model}, "model", path=path).send(server)
    assert reply.status_code == 404, reply.text
    error = error_of(reply)
    assert (error["param"], error["code"]) == ("model", "model_not_found")
    assert "smollm2" in error["message"]


@pytest.mark.parametrize(
    ("case", "tokens"),
    [
        (Case({"messages": user("word " * 3000)}, "messages"), None),
        (Case({"prompt": "word " * 3000}, "prompt", path=TEXT), None),
        (Case({"prompt": [42] * CONTEXT}, "prompt", path=TEXT), CONTEXT),
        (Case({"prompt": [[42], [42] * 2100]}, "prompt", path=TEXT), 2100),
    ],
    ids=["chat", "text", "tokens", "the second of two"],
)
def test_a_prompt_that_does_not_fit_is_refused_with_the_figures(
    server: LegatoProcess, case: Case, tokens: int | None
) -> None:
    reply = case.send(server)
    assert reply.status_code == 400
    error = error_of(reply)
    assert (error["param"], error["code"]) == (case.param, "context_length_exceeded")
    figures = [int(word) for word in error["message"].replace(",", " ").split() if word.isdecimal()]
    assert CONTEXT in figures
    assert max(figures) >= 3000 if tokens is None else tokens in figures


@pytest.mark.parametrize("limit", [2**31 - 1, 2**31, 2**32, 2**63, 10**30])
@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_an_absurd_limit_is_refused_or_means_as_many_as_fit(server: LegatoProcess, path: str, limit: int) -> None:
    prompt = {"messages": user(QUESTION)} if path == CHAT else {"prompt": "The capital of France is"}
    reply = server.post(path, {**prompt, "max_tokens": limit, "temperature": 0, "stop": ["."]})
    assert reply.status_code in (200, 400), reply.text
    if reply.status_code == 400:
        assert error_of(reply)["param"] == "max_tokens"


@pytest.mark.parametrize("penalty", ["presence_penalty", "frequency_penalty"])
def test_a_huge_limit_costs_no_memory(server: LegatoProcess, penalty: str) -> None:
    """Memory is for tokens that come, not for those that are allowed to."""
    worker = server.worker()
    before = worker.memory_info().vms
    body = {"max_tokens": 2**26, penalty: 0.5, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", f"{server.url}{TEXT}", json={"prompt": "Hi", **body}, timeout=60) as reply:
        if reply.status_code == 200:
            next(reply.iter_lines())
            assert worker.memory_info().vms - before < 100 * 2**20


NOT_A_NUMBER = ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"]


@pytest.mark.parametrize("value", NOT_A_NUMBER)
@pytest.mark.parametrize(
    "name", ["temperature", "top_p", "min_p", "typical_p", "repetition_penalty", "presence_penalty"]
)
def test_what_is_no_number_is_refused(server: LegatoProcess, name: str, value: str) -> None:
    reply = post_raw(server, f'{{"messages": [{{"role": "user", "content": "Hi"}}], "{name}": {value}}}')
    assert reply.status_code == 400
    assert error_of(reply)["param"] == name


@pytest.mark.parametrize("value", NOT_A_NUMBER)
@pytest.mark.parametrize("name", ["max_tokens", "n", "seed", "top_k"])
def test_what_is_no_whole_number_is_refused(server: LegatoProcess, name: str, value: str) -> None:
    reply = post_raw(server, f'{{"messages": [{{"role": "user", "content": "Hi"}}], "{name}": {value}}}')
    assert reply.status_code == 400
    assert error_of(reply)["param"] == name


@pytest.mark.parametrize("value", NOT_A_NUMBER)
def test_a_bias_that_is_no_number_is_refused(server: LegatoProcess, value: str) -> None:
    reply = post_raw(server, f'{{"messages": [{{"role": "user", "content": "Hi"}}], "logit_bias": {{"42": {value}}}}}')
    assert reply.status_code == 400
    assert error_of(reply)["param"] == "logit_bias[42]"


def post_raw(server: LegatoProcess, content: str | bytes, path: str = CHAT) -> httpx.Response:
    return httpx.post(
        f"{server.url}{path}", content=content, headers={"content-type": "application/json"}, timeout=60, verify=False
    )


BROKEN = {
    "nothing": b"",
    "half an object": b'{"messages": [',
    "two objects": b"{} {}",
    "a trailing comma": b'{"messages": [],}',
    "single quotes": b"{'messages': []}",
    "a bare word": b"hello",
    "a list": b"[]",
    "a text": b'"hello"',
    "a number": b"5",
    "null": b"null",
    "nesting": b"[" * 100_000,
    "nested objects": b'{"a":' * 100_000,
    "nesting in messages": b'{"messages":' + b"[" * 50_000 + b"]" * 50_000 + b"}",
    "broken UTF-8": b'{"messages": [{"role": "user", "content": "\xff\xfe"}]}',
    "half a character": b'{"messages": [{"role": "user", "content": "\xf0\x9f"}]}',
    "an encoded surrogate": b'{"messages": [{"role": "user", "content": "\xed\xa0\x80"}]}',
    "a surrogate for a name": b'{"messages": [{"role": "user", "content": "Hi"}], "\\ud800": 1}',
    "a surrogate for a key": b'{"messages": [{"role": "user", "content": "Hi", "\\ud800": 1}]}',
    "a surrogate for a role": b'{"messages": [{"role": "\\ud800", "content": "Hi"}]}',
    "a surrogate in a variable": b'{"messages": [], "chat_template_kwargs": {"\\ud800": "\\udc00"}, "n": 0}',
    "binary": bytes(range(256)),
    "gzip": b"\x1f\x8b\x08\x00\x00\x00\x00\x00",
    "control characters": b'{"messages": [{"role": "user", "content": "a\nb"}]}',
    "many digits": b'{"messages": [{"role": "user", "content": "Hi"}], "seed": ' + b"9" * 10_000 + b"}",
}  # fmt: skip


@pytest.mark.parametrize("path", [CHAT, TEXT])
@pytest.mark.parametrize("body", BROKEN.values(), ids=BROKEN)
def test_a_broken_body_is_refused(server: LegatoProcess, path: str, body: bytes) -> None:
    reply = post_raw(server, body, path)
    assert reply.status_code == 400, reply.text
    assert is_sentence(error_of(reply)["message"])


@pytest.mark.parametrize(
    "name", ["messages", "tools", "metadata", "chat_template_kwargs", "logit_bias", "stop", "model"]
)
@pytest.mark.parametrize("depth", [90, 900])
def test_nesting_that_json_takes_is_refused_or_ignored(server: LegatoProcess, name: str, depth: int) -> None:
    nested = '{"a":' * depth + "1" + "}" * depth
    messages = "" if name == "messages" else '"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1, '
    reply = post_raw(server, f'{{{messages}"{name}": {nested}}}')
    assert reply.status_code in (200, 400), reply.text
    if reply.status_code == 400:
        error_of(reply)


@pytest.mark.parametrize("path", [CHAT, TEXT])
@pytest.mark.parametrize("given", ["with its length", "without a length"])
def test_a_huge_body_is_refused(server: LegatoProcess, path: str, given: str) -> None:
    body = json.dumps({"messages": user("x" * (9 * 2**20))}).encode()
    content = body if given == "with its length" else iter([body[:5_000_000], body[5_000_000:]])
    headers = {"content-type": "application/json"}
    reply = httpx.post(f"{server.url}{path}", content=content, headers=headers, timeout=60, verify=False)
    assert reply.status_code == 413
    error = error_of(reply)
    assert error["code"] == "too_large"
    assert "8 MiB" in error["message"]


def test_a_body_of_just_under_the_limit_is_read(server: LegatoProcess) -> None:
    body = json.dumps({"prompt": "Hi", "max_tokens": 1}).encode()
    assert post_raw(server, body.ljust(8 * 2**20), TEXT).status_code == 200
    assert post_raw(server, body.ljust(8 * 2**20 + 1), TEXT).status_code == 413


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
def test_a_body_that_does_not_say_it_is_json_is_refused(server: LegatoProcess, kind: str | None) -> None:
    """Pages of other sites may send these kinds without asking first."""
    content = json.dumps({"messages": user(QUESTION)}).encode()
    request = httpx.Request("POST", f"{server.url}{CHAT}", content=content)
    if kind is not None:
        request.headers["content-type"] = kind
    with httpx.Client(timeout=60, verify=False) as client:
        reply = client.send(request)
    assert reply.status_code == 400
    assert "application/json" in error_of(reply)["message"]


def test_a_json_type_with_a_charset_is_taken(server: LegatoProcess) -> None:
    content = json.dumps({"messages": user(QUESTION), "temperature": 0}).encode()
    headers = {"content-type": "application/json; charset=utf-8"}
    reply = httpx.post(f"{server.url}{CHAT}", content=content, headers=headers, timeout=60, verify=False)
    assert reply.json()["choices"][0]["message"]["content"] == ANSWER
