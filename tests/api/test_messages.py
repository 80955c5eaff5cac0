"""Conversations: roles, contents in parts, answers sent back, answers continued."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.asking import ANSWER, QUESTION, answer, ask, text_of, user
from tests.support.server import LegatoProcess

SYSTEM = "You answer in one word."


def prompt_tokens(server: LegatoProcess, messages: list[Any]) -> int:
    return ask(server.openai(), "chat", messages, max_tokens=1).usage.prompt_tokens


def test_a_list_of_one_text_part_is_its_text(server: LegatoProcess) -> None:
    parts = [{"type": "text", "text": QUESTION}]
    result = ask(server.openai(), "chat", user(parts))
    assert text_of(result.choices[0]) == ANSWER
    assert result.usage.prompt_tokens == prompt_tokens(server, user(QUESTION))


def test_several_text_parts_are_lines(server: LegatoProcess) -> None:
    client = server.openai()
    parts = [{"type": "text", "text": "Answer this question."}, {"type": "text", "text": QUESTION}]
    in_parts = ask(client, "chat", user(parts))
    in_lines = ask(client, "chat", user(f"Answer this question.\n{QUESTION}"))
    assert text_of(in_parts.choices[0]) == text_of(in_lines.choices[0])
    assert in_parts.usage == in_lines.usage


def test_a_developer_is_the_system(server: LegatoProcess) -> None:
    client = server.openai()
    developer, system = (
        ask(client, "chat", [{"role": role, "content": SYSTEM}, *user(QUESTION)]) for role in ("developer", "system")
    )
    assert text_of(developer.choices[0]) == text_of(system.choices[0])
    assert developer.usage == system.usage
    assert developer.usage.prompt_tokens != prompt_tokens(server, user(QUESTION))


def test_an_answer_can_be_sent_back_as_it_came(server: LegatoProcess) -> None:
    client = server.openai()
    first = ask(client, "chat")
    for message in (first.choices[0].message, first.choices[0].message.model_dump()):
        messages = [*user(QUESTION), message, *user("And of Germany?")]
        assert "Berlin" in text_of(ask(client, "chat", messages).choices[0])


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_can_be_continued(server: LegatoProcess, stream: bool) -> None:
    messages = [*user(QUESTION), {"role": "assistant", "content": "The capital of"}]
    continued = answer(server.openai(), "chat", messages, stream=stream, extra_body={"continue_final_message": True})
    assert continued == (" France is Paris.", "stop")


def test_without_continue_final_message_an_answer_is_answered(server: LegatoProcess) -> None:
    messages = [*user(QUESTION), {"role": "assistant", "content": "The capital of"}]
    assert answer(server.openai(), "chat", messages, stream=False)[0] != " France is Paris."


def test_only_an_answer_can_be_continued(server: LegatoProcess) -> None:
    body = {"messages": user(QUESTION), "continue_final_message": True}
    refused = server.post("/v1/chat/completions", body)
    assert refused.status_code == 400
    assert "assistant" in refused.json()["error"]["message"]


def test_names_and_template_variables_are_taken(server: LegatoProcess) -> None:
    messages = [{"role": "user", "content": QUESTION, "name": "Ada"}]
    extra = {"chat_template_kwargs": {"enable_thinking": False, "anything": [1, {"deep": None}]}}
    assert answer(server.openai(), "chat", messages, stream=False, extra_body=extra)[0] == ANSWER


def test_variables_of_the_server_itself_cannot_be_set(server: LegatoProcess) -> None:
    for name in ("messages", "bos_token", "raise_exception"):
        body = {"messages": user(QUESTION), "chat_template_kwargs": {name: "mine"}}
        refused = server.post("/v1/chat/completions", body)
        assert refused.status_code == 400
        assert name in refused.json()["error"]["message"]


def test_a_long_conversation_is_read_whole(server: LegatoProcess) -> None:
    short = prompt_tokens(server, user("Hi"))
    turns = [*user("Hi"), {"role": "assistant", "content": "Hi"}] * 20
    assert prompt_tokens(server, [*turns, *user("Hi")]) > 5 * short


def test_null_stands_for_left_out(server: LegatoProcess) -> None:
    nothing = dict.fromkeys(
        (
            "model", "stream", "stream_options", "max_tokens", "max_completion_tokens", "n", "seed", "stop", "top_p",
            "top_k", "min_p", "typical_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "logit_bias",
            "ignore_eos", "user", "logprobs", "top_logprobs", "chat_template_kwargs", "continue_final_message",
            "tools", "tool_choice", "response_format", "metadata", "store",
        )
    )  # fmt: skip
    reply = server.post("/v1/chat/completions", nothing | {"messages": user(QUESTION), "temperature": 0})
    assert reply.status_code == 200, reply.text
    assert reply.json()["choices"][0]["message"]["content"] == ANSWER


@pytest.mark.parametrize(
    "neutral",
    [
        {"tools": [], "tool_choice": "auto", "parallel_tool_calls": True},
        {"functions": [], "function_call": "none"},
        {"response_format": {"type": "text"}, "modalities": ["text"], "verbosity": "medium"},
        {"service_tier": "auto", "store": False, "metadata": {}},
        {"user": "ada", "safety_identifier": "x", "prompt_cache_key": "y"},
    ],
    ids=lambda neutral: next(iter(neutral)),
)
def test_parameters_that_ask_for_nothing_are_taken(server: LegatoProcess, neutral: dict[str, Any]) -> None:
    reply = server.post("/v1/chat/completions", neutral | {"messages": user(QUESTION), "temperature": 0})
    assert reply.status_code == 200, reply.text
    assert reply.json()["choices"][0]["message"]["content"] == ANSWER


@pytest.mark.parametrize(
    "text", ["a\x00b", "\x00", "\u202e\ufeff\u2028", "\U0001d573\U0001d58a", "\U0010ffff", "<|im_end|>", "\r\n\t"]
)
def test_odd_characters_are_text_too(server: LegatoProcess, text: str) -> None:
    result = ask(server.openai(), "chat", text, max_tokens=1)
    assert result.usage.completion_tokens <= 1
    assert ask(server.openai(), "completions", text, max_tokens=1).usage.prompt_tokens > 0
