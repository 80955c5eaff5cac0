"""Reading a long prompt is interrupted for everybody else, and what comes of it is the same."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.support.asking import MODEL
from tests.support.server import LegatoProcess

BOOK = "It was a dark night, and the rain fell on the roofs of the old town by the river. " * 30
"""More than 500 tokens: some seconds."""


@pytest.fixture(scope="module")
def steady(model_path: Path) -> Iterator[LegatoProcess]:
    """A server of its own: its steps are looked at, and prompts are read again and again."""
    with LegatoProcess("smollm2", "--parallel", "3", "--ctx", "4096", "--cache-scope", "off") as server:
        server.wait_ready()
        yield server


def steps(server: LegatoProcess, since: float) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    after: int | None = 0
    while after is not None:
        page = httpx.get(f"{server.url}/api/steps", params={"after": after, "limit": 1000}).json()
        found += page["steps"]
        after = page["next"]
    return [step for step in found if step["begun_at"] >= since]


async def answer(client: openai.AsyncOpenAI, prompt: str, tokens: int, **more: Any) -> str:
    result = await client.completions.create(
        model=MODEL, prompt=prompt, max_tokens=tokens, temperature=0, extra_body={"ignore_eos": True, **more}
    )
    return result.choices[0].text


def test_it_is_on_where_it_is_possible(steady: LegatoProcess) -> None:
    assert httpx.get(f"{steady.url}/api/settings").json()["fixed"]["interruptible"] is True


def test_answers_and_questions_go_on_while_a_book_is_read(steady: LegatoProcess) -> None:
    since = time.time()
    ended: list[str] = []

    async def ask(name: str, prompt: str, tokens: int, after_s: float) -> str:
        await asyncio.sleep(after_s)
        async with steady.async_openai() as client:
            text = await answer(client, prompt, tokens)
        ended.append(name)
        return text

    async def all_of_them() -> list[str]:
        return await asyncio.gather(
            # The book's answer is the longest, so that it ends last on fast machines too.
            ask("chat", "Once upon a time", 40, 0),
            ask("book", BOOK, 60, 0.3),
            ask("question", "2 + 2 =", 4, 0.8),
        )

    together = asyncio.run(all_of_them())
    assert ended[-1] == "book"
    reading = [step for step in steps(steady, since) if step["chunks"]]
    slices = [step for step in reading if step["predicted_ms"] is None]
    assert len(slices) > 5, "calls were interrupted"
    alone = [asyncio.run(ask("alone", prompt, tokens, 0)) for prompt, tokens in (("2 + 2 =", 4), (BOOK, 8))]
    assert together[2] == alone[0]
    assert together[1].startswith(alone[1])


def test_each_token_of_a_book_is_read_once(steady: LegatoProcess) -> None:
    since = time.time()

    async def both() -> tuple[str, Any]:
        async with steady.async_openai() as client:
            chat = asyncio.create_task(answer(client, "Once upon a time", 30))
            book = await client.completions.create(model=MODEL, prompt=BOOK, max_tokens=2, temperature=0)
            return await chat, book

    _, book = asyncio.run(both())
    chunks = [c for step in steps(steady, since) for c in step["chunks"] if c["request"] == book.id]
    end = 0
    for chunk in chunks:
        assert chunk["start"] == end
        end += chunk["tokens"]
    assert end == book.usage.prompt_tokens


def test_who_goes_away_while_reading_leaves_no_trace(steady: LegatoProcess) -> None:
    async def leave() -> None:
        async with steady.async_openai() as client:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(answer(client, BOOK, 400), 1.0)

    async def again() -> str:
        async with steady.async_openai() as client:
            return await answer(client, BOOK, 8)

    expected = asyncio.run(again())
    asyncio.run(leave())
    asyncio.run(leave())
    assert asyncio.run(again()) == expected
    deadline = time.monotonic() + 10
    while httpx.get(f"{steady.url}/api/status").json()["running"] and time.monotonic() < deadline:
        time.sleep(0.05)
    assert httpx.get(f"{steady.url}/api/status").json()["running"] == 0


def test_background_reading_gives_way_and_is_not_lost(steady: LegatoProcess) -> None:
    async def run() -> tuple[list[str], str]:
        order: list[str] = []
        async with steady.async_openai() as client:

            async def note(name: str, prompt: str, tokens: int, after_s: float, **more: Any) -> str:
                await asyncio.sleep(after_s)
                text = await answer(client, prompt, tokens, **more)
                order.append(name)
                return text

            texts = await asyncio.gather(
                note("job", BOOK, 8, 0, service_tier="flex"), note("book", BOOK + "In short,", 4, 0.5)
            )
            alone = await answer(client, BOOK, 8)
        assert texts[0] == alone
        return order, alone

    order, _ = asyncio.run(run())
    assert order == ["book", "job"]


def test_a_policy_may_take_over_in_the_middle(steady: LegatoProcess) -> None:
    async def run() -> str:
        async with steady.async_openai() as client:
            book = asyncio.create_task(answer(client, BOOK, 8))
            for policy in ("chunked", "whole", "adaptive"):
                await asyncio.sleep(0.7)
                await asyncio.to_thread(httpx.patch, f"{steady.url}/api/settings", json={"policy": policy})
            return await book

    async def alone() -> str:
        async with steady.async_openai() as client:
            return await answer(client, BOOK, 8)

    assert asyncio.run(run()) == asyncio.run(alone())
