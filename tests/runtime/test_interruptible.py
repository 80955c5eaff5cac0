"""Interruptible prefill by llama.cpp itself: what comes of it is the same as without.

Who goes on meanwhile, in which order and how soon, is tested on a virtual clock in test_interruption.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.support.asking import MODEL, ask, completion
from tests.support.server import LegatoProcess
from tests.support.streams import endless
from tests.support.waiting import wait_until

BOOK = "It was a dark night, and the rain fell on the roofs of the old town by the river. " * 30
"""More than 500 tokens: some seconds."""
GREEDY: dict[str, Any] = {"temperature": 0, "extra_body": {"ignore_eos": True}}


@pytest.fixture(scope="module")
def steady(model_path: Path) -> Iterator[LegatoProcess]:
    """A server of its own: its steps are looked at, and prompts are read again and again."""
    with LegatoProcess("smollm2", "--parallel", "3", "--ctx", "4096", "--cache-scope", "off") as server:
        server.wait_ready()
        yield server


@pytest.fixture(scope="module")
def answer_of_the_book(steady: LegatoProcess) -> str:
    """What it is by itself."""
    return completion(steady.openai(), BOOK, max_tokens=8, **GREEDY)


def steps(server: LegatoProcess, since: float) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    after: int | None = 0
    while after is not None:
        page = httpx.get(f"{server.url}/api/steps", params={"after": after, "limit": 1000}).json()
        found += page["steps"]
        after = page["next"]
    return [step for step in found if step["begun_at"] >= since]


@contextmanager
def in_background(job: Callable[[], Any]) -> Iterator[Future[Any]]:
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(job)


def read_tokens(server: LegatoProcess, at_least: int = 1, *, least_prompt: int = 100) -> bool:
    """Whether a long prompt is being read, and so many tokens of it are."""
    running = server.get("/api/requests").json()["running"]
    return any(
        r["phase"] == "prefill" and r["prompt_tokens"] > least_prompt and r["read_tokens"] >= at_least for r in running
    )


def test_it_is_on_where_it_is_possible(steady: LegatoProcess) -> None:
    assert httpx.get(f"{steady.url}/api/settings").json()["fixed"]["interruptible"] is True


def test_what_others_ask_meanwhile_changes_no_answer(steady: LegatoProcess, answer_of_the_book: str) -> None:
    since = time.time()
    client = steady.openai()
    with (
        endless(client, "Once upon a time"),
        in_background(lambda: ask(client, "completions", BOOK, max_tokens=8, **GREEDY)) as reading,
    ):
        wait_until(lambda: read_tokens(steady), "the book is being read")
        question = completion(client, "2 + 2 =", max_tokens=4, **GREEDY)
        book = reading.result()
    assert book.choices[0].text == answer_of_the_book
    assert question == completion(client, "2 + 2 =", max_tokens=4, **GREEDY)
    own = [step for step in steps(steady, since) if any(c["request"] == book.id for c in step["chunks"])]
    assert any(step["predicted_ms"] is None for step in own), "its calls were interrupted"
    end = 0
    for chunk in (c for step in own for c in step["chunks"] if c["request"] == book.id):
        assert chunk["start"] == end, "each token is read once"
        end += chunk["tokens"]
    assert end == book.usage.prompt_tokens


def test_who_goes_away_while_reading_leaves_no_trace(steady: LegatoProcess, answer_of_the_book: str) -> None:
    for _ in range(2):
        with in_background(lambda: leave_when(lambda: read_tokens(steady), steady)) as leaving:
            leaving.result()
        wait_until(lambda: not steady.get("/api/status").json()["running"], "whoever has gone has ended")
    assert completion(steady.openai(), BOOK, max_tokens=8, **GREEDY) == answer_of_the_book


def leave_when(condition: Callable[[], bool], server: LegatoProcess) -> None:
    """Ask about the book, and go away when the condition holds."""
    body = {"model": MODEL, "prompt": BOOK, "max_tokens": 400, "stream": True, "ignore_eos": True}
    with httpx.stream("POST", f"{server.url}/v1/completions", json=body, timeout=60) as response:
        assert response.status_code == 200
        wait_until(condition, "the book is being read")


def test_background_reading_gives_way_and_is_not_lost(steady: LegatoProcess, answer_of_the_book: str) -> None:
    client, order = steady.openai(), []

    def note(name: str, prompt: str, tokens: int, **more: Any) -> str:
        options = {**GREEDY, "extra_body": GREEDY["extra_body"] | more}
        text = completion(client, prompt, max_tokens=tokens, **options)
        order.append(name)
        return text

    with in_background(lambda: note("job", BOOK, 60, service_tier="flex")) as job:
        wait_until(lambda: read_tokens(steady), "the job is being read")
        note("book", BOOK + "In short,", 4)
        assert job.result().startswith(answer_of_the_book)
    assert order == ["book", "job"]


def test_a_policy_may_take_over_in_the_middle(steady: LegatoProcess, answer_of_the_book: str) -> None:
    client: openai.OpenAI = steady.openai()
    with in_background(lambda: completion(client, BOOK, max_tokens=8, **GREEDY)) as reading:
        for policy, tokens in (("chunked", 1), ("whole", 100), ("adaptive", 200)):
            wait_until(lambda tokens=tokens: reading.done() or read_tokens(steady, tokens), "it is read so far")
            httpx.patch(f"{steady.url}/api/settings", json={"policy": policy}).raise_for_status()
        assert reading.result() == answer_of_the_book
