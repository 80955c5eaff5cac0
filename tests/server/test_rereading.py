"""Why a prompt was read again: told to whom it concerns, and never in an answer's way."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from legato.core.timings import Reread
from legato.core.tokens import Tokens
from legato.server import rereading
from legato.server.rereading import Rereading

RULES = list(range(100, 400))


def numbered_words(tokens: Tokens) -> str:
    return "".join(f"w{token} " for token in tokens.tolist())


@pytest.fixture
def memory() -> Rereading:
    return Rereading(numbered_words)


def ask(memory: Rereading, prompt: list[int], client: str | None = None, cached: int = 0) -> Reread | None:
    return asyncio.run(memory.explain(np.array(prompt, dtype=np.int32), client, cached))


def test_a_change_is_told_with_its_words(memory: Rereading) -> None:
    assert ask(memory, [1, *RULES]) is None
    assert ask(memory, [2, *RULES]) == Reread("number", 0, len(RULES), 0.0, "w1 ", "w2 ")


def test_the_prompts_of_others_are_not_compared(memory: Rereading) -> None:
    ask(memory, [1, *RULES], "ana")
    assert ask(memory, [2, *RULES], "ben") is None
    assert ask(memory, [2, *RULES], None) is None
    assert ask(memory, [2, *RULES], "ana") is not None


def test_what_was_remembered_is_nothing_to_explain(memory: Rereading) -> None:
    ask(memory, [1, *RULES])
    assert ask(memory, [2, *RULES], cached=len(RULES) - 10) is None


def test_long_words_are_cut(memory: Rereading) -> None:
    ask(memory, [*range(1000, 1100), *RULES])
    reread = ask(memory, [*range(2000, 2100), *RULES])
    assert reread is not None
    assert reread.now is not None
    assert len(reread.now) == rereading.MOST_WORDS
    assert reread.now.endswith("…")


@pytest.mark.parametrize(
    ("most_tokens", "sent", "was"),
    [
        (1000, [1, 2], "w2 "),  # the newest
        (700, [1, 2, 3, 4], "w4 "),  # the oldest make room
        (302, [1, 2], "w2 "),
        (300, [1], None),  # too long itself
    ],
)
def test_as_much_is_kept_as_there_is_room_for(most_tokens: int, sent: list[int], was: str | None) -> None:
    memory = Rereading(numbered_words, most_tokens)
    for first in sent:
        ask(memory, [first, *RULES])
    reread = ask(memory, [9, *RULES])
    assert (reread and reread.was) == was


def test_whose_prompts_make_room() -> None:
    memory = Rereading(numbered_words, 700)
    ask(memory, [1, *RULES], "ana")
    ask(memory, list(range(1000)), "ben")  # too long itself
    ask(memory, [1, *RULES], "ben")
    ask(memory, [1, *RULES, 500], "ben")  # in the place of the one that it continues
    assert ask(memory, [1, *RULES, 501], "ana") is None
    assert ask(memory, [2, *RULES], "ana") is not None
    ask(memory, [3, *RULES], "ben")
    ask(memory, [4, *RULES], "ben")
    assert ask(memory, [5, *RULES], "ana") is None


def test_a_failure_is_no_answer_s_failure() -> None:
    def fail(_tokens: Tokens) -> str:
        raise RuntimeError("no")

    memory = Rereading(fail)
    ask(memory, [1, *RULES])
    assert ask(memory, [2, *RULES]) is None
