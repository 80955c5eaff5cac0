"""Whose prompt is read next."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from legato.scheduling.sequence import Sequence
from legato.scheduling.turns import MOST_OWED_S, NOBODY, Turns

TURN_S = 0.08
TOKENS_A_TURN = 10


def prompt(i: int, tokens: int, client: str | None = None, arrived_s: float | None = None) -> Sequence:
    return Sequence(i, tokens, 1, client=client, arrived_s=float(i) if arrived_s is None else arrived_s, slot=i)


class Account:
    """The account as it stands now."""

    def __init__(self) -> None:
        self.turns: Turns = NOBODY


def read(account: Account, prompts: list[Sequence], steps: int) -> list[int]:
    """Give so many turns; whose they were. Prompts that are prefilled to their end are taken from the list."""
    order: list[int] = []
    for _ in range(steps):
        if not prompts:
            break
        (first, *_), turns = account.turns.order(prompts)
        account.turns = turns.after(first, TURN_S)
        first.computed_tokens += min(TOKENS_A_TURN, first.prefill_left)
        order.append(first.id)
        if not first.prefill_left:
            prompts.remove(first)
    return order


def test_a_short_question_overtakes_a_long_prompt() -> None:
    assert read(Account(), [prompt(1, 1000), prompt(2, 25)], 5) == [2, 2, 2, 1, 1]


def test_prompts_of_about_the_same_length_are_read_one_after_another() -> None:
    assert read(Account(), [prompt(1, 50), prompt(2, 40)], 9) == [1] * 5 + [2] * 4


@given(st.lists(st.integers(1, 300), min_size=1, max_size=20))
def test_a_long_prompt_gets_a_quarter_whatever_shorter_ones_come(lengths: list[int]) -> None:
    turns, book = Account(), prompt(0, 1000)
    given_s = total_s = 0.0
    coming = iter(range(1, 10_000))
    others: list[Sequence] = []
    while book.prefill_left:
        if not others:
            others = [prompt(n := next(coming), lengths[n % len(lengths)])]
        everybody = [book, *others]
        (turn,) = read(turns, everybody, 1)
        others = [s for s in everybody if s is not book]
        total_s += TURN_S
        given_s += TURN_S * (turn == 0)
        assert given_s >= total_s / 4 - MOST_OWED_S - TURN_S


def test_clients_share_evenly_however_many_prompts_each_has() -> None:
    prompts = [prompt(1, 10_000, "ana"), *(prompt(i, 10_000, "ben") for i in range(2, 8))]
    turns = Counter("ana" if i == 1 else "ben" for i in read(Account(), prompts, 400))
    assert abs(turns["ana"] - turns["ben"]) <= 1


def test_who_was_away_is_owed_nothing() -> None:
    turns, ana = Account(), prompt(1, 100_000, "ana")
    read(turns, [ana], 500)
    order = read(turns, [ana, prompt(2, 100_000, "ben")], 100)
    assert abs(order.count(1) - order.count(2)) <= 1


def test_a_question_of_another_client_is_next() -> None:
    turns, ana = Account(), prompt(1, 5000, "ana")
    read(turns, [ana], 50)
    assert 2 in read(turns, [ana, prompt(2, 5, "ben")], 2)
    assert 3 in read(turns, [ana, prompt(3, 5, "cleo")], 2)


def test_asking_whose_turn_it_is_changes_nothing() -> None:
    account, prompts = Account(), [prompt(1, 1000, "ana"), prompt(2, 500, "ben"), prompt(3, 20, "ben")]
    read(account, prompts, 7)
    before = account.turns
    assert account.turns.order(prompts[:1]) != account.turns.order(prompts)
    assert account.turns == before
    assert [s.id for s in account.turns.order(prompts)[0]] == [s.id for s in account.turns.order(prompts)[0]]
