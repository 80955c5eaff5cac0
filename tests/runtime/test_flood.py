"""Two hundred requests of every kind, half of whose clients go away at any moment, leave the server as it was."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Any

import openai

from tests.support.asking import ANSWER, MODEL, answer, user
from tests.support.server import LegatoProcess
from tests.support.streams import endless

REQUESTS = 200
AT_ONCE = 50
LONG = "The weather report for the coast is as follows. " * 12

Kind = Callable[[openai.AsyncOpenAI, int], Awaitable[Any]]


async def chat_stream(client: openai.AsyncOpenAI, seed: int) -> None:
    stream = await client.chat.completions.create(
        model=MODEL, messages=user("Tell me a joke."), max_tokens=12, seed=seed, stream=True
    )
    finishes = [chunk.choices[0].finish_reason async for chunk in stream]
    assert finishes[-1] in ("stop", "length")


async def chat_plain(client: openai.AsyncOpenAI, seed: int) -> None:
    result = await client.chat.completions.create(model=MODEL, messages=user("Hi"), max_tokens=8, seed=seed)
    assert result.choices[0].finish_reason in ("stop", "length")


async def text_stream(client: openai.AsyncOpenAI, seed: int) -> None:
    stream = await client.completions.create(
        model=MODEL, prompt="Once upon", max_tokens=12, seed=seed, stream=True, stop=["the ", "\n"]
    )
    assert [chunk async for chunk in stream][-1].choices[0].finish_reason in ("stop", "length")


async def several(client: openai.AsyncOpenAI, seed: int) -> None:
    result = await client.completions.create(model=MODEL, prompt="a b c", n=2, max_tokens=4, seed=seed)
    assert [choice.index for choice in result.choices] == [0, 1]


async def long_prompt(client: openai.AsyncOpenAI, seed: int) -> None:
    result = await client.completions.create(model=MODEL, prompt=LONG, max_tokens=4, seed=seed)
    assert result.usage.prompt_tokens > 100


async def with_logprobs(client: openai.AsyncOpenAI, seed: int) -> None:
    result = await client.completions.create(model=MODEL, prompt="x = ", max_tokens=6, logprobs=5, seed=seed)
    assert len(result.choices[0].logprobs.tokens) == result.usage.completion_tokens


async def wrong(client: openai.AsyncOpenAI, seed: int) -> None:
    try:
        await client.completions.create(model=MODEL, prompt="", max_tokens=1, seed=seed)
    except openai.BadRequestError:
        return
    raise AssertionError("an empty prompt was answered")


async def models(client: openai.AsyncOpenAI, _seed: int) -> None:
    assert [model.id async for model in client.models.list()] == [MODEL]


KINDS: list[Kind] = [chat_stream, chat_plain, text_stream, several, long_prompt, with_logprobs, wrong, models]


async def flood(server: LegatoProcess, chance: random.Random) -> Counter[str]:
    outcomes: Counter[str] = Counter()
    places = asyncio.Semaphore(AT_ONCE)

    async def one(number: int, client: openai.AsyncOpenAI) -> None:
        async with places:
            task = asyncio.ensure_future(KINDS[number % len(KINDS)](client, number))
            if number // len(KINDS) % 2:
                await asyncio.wait((task,), timeout=chance.uniform(0, 0.5))
                task.cancel()
            try:
                await task
                outcomes["answered"] += 1
            except openai.RateLimitError:
                # Those who have gone count until their going is noticed.
                outcomes["refused"] += 1
            except asyncio.CancelledError:
                outcomes["cancelled"] += 1

    async with server.async_openai() as client:
        await asyncio.gather(*(one(number, client) for number in range(REQUESTS)))
    return outcomes


def test_a_flood_leaves_the_server_as_it_was(server: LegatoProcess) -> None:
    worker = server.worker()
    before = len(server.output())
    outcomes = asyncio.run(flood(server, random.Random(1)))
    assert outcomes.total() == REQUESTS
    assert outcomes["answered"] >= REQUESTS // 3
    assert outcomes["refused"] <= REQUESTS // 10
    assert outcomes["cancelled"] >= 20
    assert server.health()[0] == 200
    assert server.worker() == worker
    assert answer(server.openai(), "chat", stream=False) == (ANSWER, "stop")
    assert "Traceback" not in server.output()[before:]
    with ExitStack() as stack:
        for _ in range(8):
            # Each is read as far as its first token while the others run: all sequences are free.
            stack.enter_context(endless(server.openai()))
