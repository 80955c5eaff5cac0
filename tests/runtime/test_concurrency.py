"""What a request answers does not depend on what else is running."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any

import openai
import pytest

from tests.support.asking import MODEL
from tests.support.server import LegatoProcess

ANSWER_TOKENS = 56
TOLERANCE = 0.2
"""Kernels may add in another order for other batch shapes: a prompt read token by token has other log-probabilities,
by 0.1 here. Where two candidates are closer than this, either may be chosen; anywhere else it must be the same one."""

LONG = "The committee met on Monday and wrote down what had been said about the new bridge over the river. " * 45
PROMPTS = [
    "The capital of France is",
    "Once upon a time there was a little girl who",
    "def fibonacci(n):\n",
    LONG + "In short,",
    "The five largest cities of Europe are " + "London, Paris, Madrid, Berlin, " * 10,
    "1, 2, 3, 4, 5, 6,",
    "Dear Sir or Madam,\n\n" + "I am writing to you about my order. " * 20,
    "Water boils at",
]
LONG_PROMPT = 3
STARTS_AFTER = [0, 1, 2, 3, 3, 6, 9, 12]
"""Tokens of the first stream after which each request is sent: the long prompt is read while others are written."""


@dataclass
class Choice:
    """A chosen token, and how likely the likeliest ones were."""

    token: str
    top: list[tuple[str, float]]
    at_s: float = field(compare=False)
    """When it came."""

    def lead(self, other: str) -> float:
        """How much likelier the chosen token was than another one; infinitely if that was not among the likeliest."""
        return abs(self.top[0][1] - dict(self.top).get(other, float("-inf")))


async def stream(client: openai.AsyncOpenAI, prompt: str, on_token: Any = None) -> list[Choice]:
    chosen: list[Choice] = []
    chunks = await client.completions.create(
        model=MODEL,
        prompt=prompt,
        max_tokens=ANSWER_TOKENS,
        temperature=0,
        logprobs=5,
        stream=True,
        extra_body={"ignore_eos": True},
    )
    async for chunk in chunks:
        found = chunk.choices[0].logprobs
        for token, top in zip(found.tokens, found.top_logprobs, strict=True) if found else ():
            chosen.append(Choice(token, sorted(top.items(), key=lambda entry: -entry[1]), time.monotonic()))
            if on_token:
                on_token(len(chosen))
    return chosen


async def alone(server: LegatoProcess) -> list[list[Choice]]:
    async with server.async_openai() as client:
        return [await stream(client, prompt) for prompt in PROMPTS]


async def together(server: LegatoProcess) -> list[list[Choice]]:
    """All at once; each is sent when the first has written so many tokens."""
    written = 0
    progress = asyncio.Condition()
    notices: set[asyncio.Task[None]] = set()

    async def tell() -> None:
        async with progress:
            progress.notify_all()

    def on_token(count: int) -> None:
        nonlocal written
        written = count
        notices.add(asyncio.create_task(tell()))

    async def later(index: int) -> list[Choice]:
        async with progress:
            await progress.wait_for(lambda: written >= STARTS_AFTER[index])
        return await stream(client, PROMPTS[index], on_token if index == 0 else None)

    async with server.async_openai() as client:
        return await asyncio.gather(*(later(index) for index in range(len(PROMPTS))))


@pytest.fixture(scope="module")
def expected(server: LegatoProcess) -> list[list[Choice]]:
    return asyncio.run(alone(server))


@pytest.fixture(scope="module")
def found(server: LegatoProcess) -> list[list[Choice]]:
    return asyncio.run(together(server))


def first_difference(one: list[Choice], other: list[Choice]) -> int | None:
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=True)) if a.token != b.token), None)


def test_eight_streams_at_once_answer_as_each_does_alone(
    expected: list[list[Choice]], found: list[list[Choice]]
) -> None:
    for prompt, one, other in zip(PROMPTS, expected, found, strict=True):
        assert len(one) == len(other) == ANSWER_TOKENS
        place = first_difference(one, other)
        if place is not None:
            lead = one[place].lead(other[place].token)
            assert lead < TOLERANCE, f"{prompt[:30]!r} differs at token {place}, a clear choice by {lead:.3f}"


def test_logprobs_beside_others_are_those_alone_within_rounding(
    expected: list[list[Choice]], found: list[list[Choice]]
) -> None:
    for one, other in zip(expected, found, strict=True):
        place = first_difference(one, other)
        for a, b in list(zip(one, other, strict=True))[:place]:
            assert b.top[0][1] == pytest.approx(a.top[0][1], abs=TOLERANCE)


def test_answers_were_written_while_the_long_prompt_was_read(found: list[list[Choice]]) -> None:
    """Or the comparison would show nothing."""
    first_of_long = found[LONG_PROMPT][0].at_s
    started_before = [found[i] for i, after in enumerate(STARTS_AFTER) if after < STARTS_AFTER[LONG_PROMPT]]
    for choices in started_before:
        assert sum(choice.at_s < first_of_long for choice in choices) > ANSWER_TOKENS // 2
    short = [choices for i, choices in enumerate(found) if i != LONG_PROMPT]
    at_once = [sum(one[0].at_s <= choices[0].at_s < one[-1].at_s for one in short) for choices in short]
    assert max(at_once) >= 3


def test_an_answer_alone_repeats_exactly(server: LegatoProcess, expected: list[list[Choice]]) -> None:
    async def again() -> list[Choice]:
        async with server.async_openai() as client:
            return await stream(client, PROMPTS[0])

    assert asyncio.run(again()) == expected[0]
