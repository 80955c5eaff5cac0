"""Which turns of a long conversation are dropped."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legato.chat.truncation import Window, turn_starts, turns_to_drop

windows = st.builds(Window, st.integers(16, 2000), st.none() | st.integers(1, 3000))
turn_sizes = st.lists(st.integers(1, 400), min_size=1, max_size=40)
heads = st.integers(0, 400)


def counter(head: int, sizes: list[int], calls: list[int] | None = None) -> Callable[[int], int]:
    """Counts tokens of a conversation whose turns have these sizes behind a head of system messages."""

    def count(dropped: int) -> int:
        if calls is not None:
            calls.append(dropped)
        return head + sum(sizes[dropped:])

    return count


def drop(head: int, sizes: list[int], window: Window) -> int:
    return turns_to_drop(len(sizes), counter(head, sizes), window)


def conversation(roles: str) -> list[dict[str, str]]:
    names = {"s": "system", "u": "user", "a": "assistant"}
    return [{"role": names[role], "content": "x"} for role in roles]


@pytest.mark.parametrize(
    ("roles", "starts"),
    [
        ("u", [0]),
        ("su", [1]),
        ("ssuauau", [2, 4, 6]),
        ("uauaa", [0, 2]),
        ("uuau", [0, 1, 3]),
        ("suausau", [1, 3, 6]),
        ("saua", [1, 2]),
        ("sa", [1]),
        ("s", []),
    ],
)
def test_a_turn_is_a_user_message_with_all_that_follows(roles: str, starts: list[int]) -> None:
    assert turn_starts(conversation(roles)) == starts


@given(st.text("sua", min_size=1, max_size=30))
def test_turns_begin_behind_the_first_system_messages_and_the_last_one_has_the_last_question(roles: str) -> None:
    starts = turn_starts(conversation(roles))
    head = len(roles) - len(roles.lstrip("s"))
    assert starts == sorted(set(starts))
    assert starts[:1] == ([head] if head < len(roles) else [])
    assert all(roles[start] == "u" for start in starts[1:])
    assert starts[-1:] == ([roles.rindex("u")] if "u" in roles else starts[:1])


@pytest.mark.parametrize(
    ("limit", "prompt"), [(1, 7999), (100, 7900), (2000, 6000), (2001, 6000), (10**9, 6000), (None, 7000)]
)
def test_room_is_kept_for_the_answer(limit: int | None, prompt: int) -> None:
    window = Window(8000, limit)
    assert window.prompt_limit == prompt
    assert window.tokens_to_drop(prompt) == 0
    assert window.tokens_to_drop(prompt + 1) == 2000
    assert window.tokens_to_drop(prompt + 2000) == 2000
    assert window.tokens_to_drop(prompt + 2001) == 4000


@given(st.integers(1, 16), st.none() | st.integers(1, 3000))
def test_a_tiny_context_has_room_for_one_token_of_answer(context: int, limit: int | None) -> None:
    window = Window(context, limit)
    assert 0 <= window.prompt_limit < context
    assert window.tokens_to_drop(context) >= 1


@given(heads, turn_sizes, windows)
def test_what_is_left_fits_whenever_it_can(head: int, sizes: list[int], window: Window) -> None:
    count = counter(head, sizes)
    dropped = drop(head, sizes, window)
    assert 0 <= dropped < len(sizes), "the last turn is kept"
    if count(len(sizes) - 1) <= window.prompt_limit:
        assert count(dropped) <= window.prompt_limit
    elif count(0) > window.prompt_limit:
        assert dropped == len(sizes) - 1, "nothing else could help"


@given(heads, turn_sizes, windows)
def test_nothing_is_dropped_from_what_fits(head: int, sizes: list[int], window: Window) -> None:
    dropped = drop(head, sizes, window)
    assert (dropped > 0) == (head + sum(sizes) > window.prompt_limit and len(sizes) > 1)


@given(heads, turn_sizes, windows)
def test_no_turn_is_dropped_beyond_the_step(head: int, sizes: list[int], window: Window) -> None:
    if dropped := drop(head, sizes, window):
        kept_with_one_more = counter(head, sizes)(dropped - 1)
        assert kept_with_one_more > window.prompt_limit - window.step_tokens


@given(heads, turn_sizes, windows)
def test_within_a_step_the_same_turns_are_dropped(head: int, sizes: list[int], window: Window) -> None:
    runs = [sizes[:length] for length in range(1, len(sizes) + 1)]
    for before, after in pairwise(runs):
        wanted = window.tokens_to_drop(head + sum(before))
        dropped = drop(head, before, window)
        # Where the last turn stood in the way, more must go once it is no longer the last.
        if window.tokens_to_drop(head + sum(after)) == wanted and sum(before[:dropped]) >= wanted:
            assert drop(head, after, window) == dropped
        assert drop(head, after, window) >= dropped, "no turn comes back"


def test_a_long_conversation_changes_its_first_kept_message_once_a_step() -> None:
    window = Window(8192)
    sizes = [100] * 500
    kept = [drop(300, sizes[:length], window) for length in range(1, 501)]
    steps = window.tokens_to_drop(300 + sum(sizes)) // window.step_tokens
    assert len(set(kept)) == 1 + steps
    assert steps < 25


@given(st.lists(st.integers(1, 400), min_size=1, max_size=7), windows)
def test_a_thousand_turns_are_counted_a_few_times(pattern: list[int], window: Window) -> None:
    sizes = (pattern * 1000)[:1000]
    calls: list[int] = []
    turns_to_drop(len(sizes), counter(50, sizes, calls), window)
    assert len(calls) <= 11
    assert set(calls) <= set(range(999))


@given(st.lists(st.integers(0, 3000), min_size=2, max_size=20), windows)
def test_whatever_a_template_writes_what_is_chosen_fits_or_is_the_last_turn(counts: list[int], window: Window) -> None:
    """Counts that do not fall with each turn, as odd templates may have it."""
    dropped = turns_to_drop(len(counts), counts.__getitem__, window)
    assert counts[dropped] <= window.prompt_limit or dropped == len(counts) - 1
