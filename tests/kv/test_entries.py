"""What is remembered, and which of it is kept within the budgets."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from legato.core.tokens import Tokens
from legato.kv.entries import Entries, Entry, Place

PLENTY = 10**9

changes = st.lists(
    st.tuples(
        st.sampled_from(["add", "use", "drop", "shrink", "pin", "unpin", "busy", "idle"]),
        st.integers(0, 9),
        st.sampled_from(["memory", "disk"]),
    ),
    max_size=60,
)
"""What is done, with which entry, where."""


def array(*tokens: int) -> Tokens:
    return np.array(tokens, dtype=np.int32)


def entry(
    number: int, *, size: int = 100, prefill_s: float = 1.0, scope: str = "", tokens: Tokens | None = None
) -> Entry:
    """An entry that shares its tokens with no other one, if they are not given."""
    return Entry(str(number), scope, array(number) if tokens is None else tokens, size, prefill_s, 0.0)


def numbers(entries: Sequence[Entry]) -> list[int]:
    return [int(one.id) for one in entries]


def in_memory(entries: Entries) -> set[int]:
    return {int(one.id) for one in entries if "memory" in one.places}


@given(
    changes=changes,
    budgets=st.fixed_dictionaries({"memory": st.integers(0, 500), "disk": st.integers(0, 500)}),
    sizes=st.lists(st.integers(1, 200), min_size=10, max_size=10),
    prefill_s=st.lists(st.floats(0.01, 100), min_size=10, max_size=10),
)
def test_budgets_are_kept_whatever_happens(
    changes: list[tuple[str, int, Place]],
    budgets: dict[Place, int],
    sizes: list[int],
    prefill_s: list[float],
) -> None:
    entries = Entries(budgets)
    busy: set[str] = set()
    places: dict[int, set[Place]] = {}
    for what, number, place in changes:
        known = entries.get(str(number))
        if what == "add":
            entries.add(entry(number, size=sizes[number], prefill_s=prefill_s[number]), place)
            places.setdefault(number, set()).add(place)
        elif what == "busy":
            busy.add(str(number))
        elif what == "idle":
            busy.discard(str(number))
        elif what == "shrink":
            before = {n for n, where in places.items() if place in where}
            staying = {n for n in before if entries.get(str(n)).pinned or str(n) in busy}  # type: ignore[union-attr]
            gone = numbers(entries.shrink(place, busy))
            assert not staying & set(gone)
            assert set(gone) <= before
            for n in gone:
                places[n].discard(place)
            used = sum(sizes[n] for n in before - set(gone))
            assert used <= budgets[place] or before - set(gone) == staying
            # Nothing went that had room: without the last one the budget would not have been kept.
            assert not gone or used + sizes[gone[-1]] > budgets[place]
        elif known is not None and what == "use":
            entries.use(known, 1.0)
        elif known is not None and what == "drop":
            entries.drop(known, place)
            places[number].discard(place)
        elif known is not None:
            known.pinned = what == "pin"
        places = {n: where for n, where in places.items() if where}
        assert {int(one.id): one.places for one in entries} == places
        assert len(entries) == len(places)
        for name in budgets:
            assert entries.used_bytes(name) == sum(sizes[n] for n, where in places.items() if name in where)
        for n in range(10):
            assert entries.covers(array(n), "") == (n in places)


def test_what_is_used_often_outlives_what_never_was() -> None:
    entries = Entries({"memory": 500, "disk": 0})
    used = entries.add(entry(0), "memory")
    for _ in range(3):
        entries.use(used, 1.0)
    for number in range(1, 6):  # the sixth is one too many
        entries.add(entry(number), "memory")
    assert numbers(entries.shrink("memory")) == [1]
    assert used.hits == 3


def test_what_saves_most_reading_for_its_bytes_is_kept() -> None:
    entries = Entries({"memory": 250, "disk": 0})
    entries.add(entry(0, size=100, prefill_s=3.0), "memory")
    entries.add(entry(1, size=100, prefill_s=1.0), "memory")
    entries.add(entry(2, size=100, prefill_s=2.0), "memory")
    assert numbers(entries.shrink("memory")) == [1]


def test_what_is_no_longer_used_sinks_below_what_is() -> None:
    entries = Entries({"memory": 300, "disk": 0})
    once = entries.add(entry(0), "memory")
    for _ in range(20):
        entries.use(once, 1.0)
    lasted = 0
    for number in range(1, 200):
        entries.use(entries.add(entry(number), "memory"), 1.0)
        entries.shrink("memory")
        if 0 not in in_memory(entries):
            break
        lasted += 1
    assert 5 < lasted < 100  # for long after its use, and not for ever
    assert entries.get("0") is None


def test_an_entry_is_worth_something_in_each_place_where_it_is() -> None:
    entries = Entries({"memory": 100, "disk": 1000})
    both = entries.add(entry(0), "memory")
    entries.add(both, "disk")
    entries.use(entries.add(entry(1), "memory"), 1.0)
    assert numbers(entries.shrink("memory")) == [0]
    assert both.places == set(both.worth) == {"disk"}
    assert entries.get("0") is both
    assert (entries.used_bytes("memory"), entries.used_bytes("disk")) == (100, 100)


def test_pinned_and_busy_ones_stay_though_the_budget_is_exceeded() -> None:
    entries = Entries({"memory": 0, "disk": 0})
    entries.add(entry(0), "memory").pinned = True
    entries.add(entry(1), "memory")
    entries.add(entry(2), "memory")
    assert numbers(entries.shrink("memory", busy=["1"])) == [2]
    assert numbers(entries.shrink("memory")) == [1]
    assert in_memory(entries) == {0}


def test_an_entry_without_any_place_is_gone() -> None:
    entries = Entries({"memory": PLENTY, "disk": PLENTY})
    one = entries.add(entry(0, tokens=array(1, 2, 3)), "memory")
    entries.add(one, "disk")
    entries.drop(one, "memory")
    assert entries.longest(array(1, 2, 9), "") == (2, [one])
    assert entries.beginnings(array(1, 2, 3, 4), "") == [(3, one)]
    entries.drop(one, "disk")
    entries.drop(one, "disk")
    assert entries.longest(array(1, 2, 9), "") == (0, [])
    assert entries.beginnings(array(1, 2, 3, 4), "") == []
    assert entries.get("0") is None
    assert (entries.used_bytes("memory"), entries.used_bytes("disk")) == (0, 0)


def test_dropping_what_was_replaced_leaves_the_new_one() -> None:
    entries = Entries({"memory": PLENTY, "disk": PLENTY})
    old = entries.add(entry(0), "memory")
    entries.drop(old, "memory")
    new = entries.add(entry(0), "memory")
    entries.drop(old, "memory")
    assert entries.get("0") is new
    assert entries.used_bytes("memory") == 100


def test_what_is_known_stays_the_same_entry() -> None:
    entries = Entries({"memory": PLENTY, "disk": PLENTY})
    first = entries.add(entry(0), "memory")
    entries.use(first, 5.0)
    assert entries.add(entry(0), "disk") is first
    assert entries.add(entry(0), "memory") is first
    assert (first.hits, first.used_s, first.places) == (1, 5.0, {"memory", "disk"})
    assert entries.used_bytes("memory") == 100
    assert list(entries) == [first]


def test_scopes_are_apart() -> None:
    entries = Entries({"memory": PLENTY, "disk": PLENTY})
    ana = entries.add(entry(0, scope="ana", tokens=array(1, 2, 3)), "memory")
    ben = entries.add(entry(1, scope="ben", tokens=array(1, 2, 3)), "memory")
    assert entries.longest(array(1, 2, 3), "ana") == (3, [ana])
    assert entries.beginnings(array(1, 2, 3), "ben") == [(3, ben)]
    assert entries.covers(array(1, 2), "ana")
    assert not entries.covers(array(1, 2), "")
    entries.drop(ana, "memory")
    assert entries.longest(array(1, 2, 3), "ana") == (0, [])
    assert entries.longest(array(1, 2, 3), "ben") == (3, [ben])


def test_an_entry_covers_its_prefixes_and_itself_and_no_more() -> None:
    entries = Entries({"memory": PLENTY, "disk": PLENTY})
    entries.add(entry(0, tokens=array(1, 2, 3)), "disk")
    assert entries.covers(array(1, 2), "")
    assert entries.covers(array(1, 2, 3), "")
    assert not entries.covers(array(1, 2, 3, 4), "")
    assert not entries.covers(array(1, 3), "")
