"""More requests than sequences: some wait, and too many are told to come back."""

from __future__ import annotations

import threading
from typing import Any

import openai
import pytest

from tests.support.asking import ANSWER, ask, read, text_of
from tests.support.errors import error_of
from tests.support.server import LegatoProcess
from tests.support.streams import endless, is_refused, opened
from tests.support.waiting import wait_until


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_when_the_queue_is_full_the_next_is_told_to_come_back(narrow: LegatoProcess, path: str) -> None:
    client = narrow.openai()
    with endless(client), opened(client, "Hi"):
        body: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}]}
        reply = narrow.post(path, body if "chat" in path else {"prompt": "Hi"})
        assert reply.status_code == 429
        assert error_of(reply)["code"] == "queue_full"
        assert int(reply.headers["retry-after"]) >= 1
        with pytest.raises(openai.RateLimitError):
            ask(client, "chat", stream=True)


def test_a_stream_that_waits_is_answered_later(narrow: LegatoProcess) -> None:
    client = narrow.openai()
    with endless(client) as running:
        queued = ask(client, "chat", stream=True)
        assert next(iter(queued)).choices[0].delta.role == "assistant"
        running.close()
        assert read(queued).text == ANSWER


def test_a_plain_request_waits_too(narrow: LegatoProcess) -> None:
    client = narrow.openai()
    answers: list[Any] = []
    # Whoever looks whether the queue is full may be in it for a moment; then this one comes back.
    patient = client.with_options(max_retries=5)
    thread = threading.Thread(target=lambda: answers.append(ask(patient, "chat")))
    with endless(client):
        thread.start()
        wait_until(lambda: is_refused(narrow), "the queue is full")
        assert not answers
    thread.join(timeout=60)
    assert text_of(answers[0].choices[0]) == ANSWER


def test_parts_of_a_request_are_taken_together_or_not_at_all(narrow: LegatoProcess) -> None:
    client = narrow.openai()
    for _ in range(3):
        with pytest.raises(openai.RateLimitError):
            ask(client, "completions", "Hi", n=3, max_tokens=1)
    # None of the refused parts holds a place: two fit, as before.
    result = ask(client, "completions", "Hi", n=2, max_tokens=1)
    assert len(result.choices) == 2


def test_retry_after_is_honoured_by_the_official_client(narrow: LegatoProcess) -> None:
    client = narrow.openai().with_options(max_retries=5)
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(read(ask(client, "chat", stream=True))))
    with endless(narrow.openai()), opened(narrow.openai(), "Hi"):
        thread.start()
        assert is_refused(narrow)
    thread.join(timeout=60)
    assert answers[0].text == ANSWER
