"""Why a prompt was read again: told to whom it concerns, and never in an answer's way."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from legato.core.timings import Reread
from legato.core.tokens import Tokens
from legato.server import rereading
from legato.server.rereading import Rereading


class Words:
    """A vocabulary of numbered words."""

    def text(self, tokens: Tokens) -> str:
        return "".join(f"w{token} " for token in tokens.tolist())


RULES = list(range(100, 400))


def ask(found: Rereading, prompt: list[int], client: str | None = None, cached: int = 0) -> Reread | None:
    return asyncio.run(found.explain(np.array(prompt, dtype=np.int32), client, cached))


def made() -> Rereading:
    return Rereading(Words())  # type: ignore[arg-type]


def test_a_change_is_told_with_its_words() -> None:
    found = made()
    assert ask(found, [1, *RULES]) is None
    reread = ask(found, [2, *RULES])
    assert reread is not None
    assert (reread.kind, reread.at_token, reread.lost_tokens) == ("number", 0, len(RULES))
    assert (reread.was, reread.now) == ("w1 ", "w2 ")


def test_the_prompts_of_others_are_not_compared() -> None:
    found = made()
    ask(found, [1, *RULES], "ana")
    assert ask(found, [2, *RULES], "ben") is None
    assert ask(found, [2, *RULES], None) is None
    assert ask(found, [2, *RULES], "ana") is not None


def test_what_was_remembered_is_nothing_to_explain() -> None:
    found = made()
    ask(found, [1, *RULES])
    assert ask(found, [2, *RULES], cached=len(RULES) - 10) is None


def test_long_words_are_cut() -> None:
    found = made()
    ask(found, [*range(1000, 1100), *RULES])
    reread = ask(found, [*range(2000, 2100), *RULES])
    assert reread is not None
    assert reread.now is not None
    assert len(reread.now) == rereading.MOST_WORDS
    assert reread.now.endswith("…")


def test_a_failure_is_no_answer_s_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_anything: Any, **_more: Any) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(rereading, "find_change", fail)
    assert ask(made(), [1, *RULES]) is None
