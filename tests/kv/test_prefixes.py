"""The prefix tree, beside a plain dictionary of the same entries."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from legato.core.tokens import Tokens, common_prefix
from legato.kv.prefixes import PrefixTree, _Node

Plain = tuple[int, ...]

# Few tokens and short sequences, so that most of them share prefixes.
sequences = st.lists(st.integers(0, 2), min_size=1, max_size=8).map(tuple)
changes = st.lists(st.tuples(st.booleans(), sequences), max_size=40)
"""Sequences to insert or to remove."""


def array(tokens: Plain) -> Tokens:
    return np.array(tokens, dtype=np.int32)


def name(tokens: Plain) -> str:
    return "".join(map(str, tokens))


def shared(a: Plain, b: Plain) -> int:
    return next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def longest(entries: dict[str, Plain], tokens: Plain) -> tuple[int, set[str]]:
    most = max((shared(entry, tokens) for entry in entries.values()), default=0)
    return most, {name for name, entry in entries.items() if most and shared(entry, tokens) == most}


def beginnings(entries: dict[str, Plain], tokens: Plain) -> list[tuple[int, str]]:
    found = [(len(entry), name) for name, entry in entries.items() if tokens[: len(entry)] == entry]
    return sorted(found, reverse=True)


def filled(*entries: Plain) -> PrefixTree:
    tree = PrefixTree()
    for tokens in entries:
        tree.insert(name(tokens), array(tokens))
    return tree


def nodes(node: _Node) -> Iterator[_Node]:
    yield node
    for child in node.below.values():
        yield from nodes(child)


def assert_is_well_formed(tree: PrefixTree, entries: dict[str, Plain]) -> None:
    found: dict[str, Plain] = {}
    for node in nodes(tree._root):
        for first, child in node.below.items():
            assert child.above is node
            assert len(child.tokens)
            assert first == child.tokens[0]
        if node.above is None:
            assert node.entry is None
            continue
        assert node.entry is not None or len(node.below) > 1, "a leaf or a link that is no entry's end"
        if node.entry is not None:
            path: list[Tokens] = []
            upwards: _Node | None = node
            while upwards is not None:
                path.insert(0, upwards.tokens)
                upwards = upwards.above
            assert node.entry not in found
            found[node.entry] = tuple(int(token) for token in np.concatenate(path))
    assert found == entries


@given(changes=changes, asked=st.lists(sequences, min_size=1, max_size=5))
def test_it_finds_what_a_dictionary_finds(changes: list[tuple[bool, Plain]], asked: list[Plain]) -> None:
    tree, entries = PrefixTree(), dict[str, Plain]()
    for is_new, tokens in changes:
        if not is_new:
            tree.remove(name(tokens))
            entries.pop(name(tokens), None)
        elif name(tokens) not in entries:
            tree.insert(name(tokens), array(tokens))
            entries[name(tokens)] = tokens
        assert_is_well_formed(tree, entries)
    for tokens in [*asked, *entries.values()]:
        length, found = tree.longest(array(tokens))
        assert (length, set(found)) == longest(entries, tokens)
        assert len(found) == len(set(found))
        assert tree.beginnings(array(tokens)) == beginnings(entries, tokens)


@given(changes=changes, tokens=sequences)
def test_an_error_changes_nothing(changes: list[tuple[bool, Plain]], tokens: Plain) -> None:
    entries = {name(t): t for _, t in changes} | {name(tokens): tokens}
    tree = filled(*entries.values())
    with pytest.raises(ValueError, match="there already"):
        tree.insert(name(tokens), array((9, 9)))
    with pytest.raises(ValueError, match="has the tokens of"):
        tree.insert("another", array(tokens))
    with pytest.raises(ValueError, match="empty"):
        tree.insert("nothing", array(()))
    assert_is_well_formed(tree, entries)
    tree.remove("another")
    tree.remove("nothing")
    assert_is_well_formed(tree, entries)


def test_an_empty_tree_finds_nothing() -> None:
    tree = PrefixTree()
    tree.remove("nobody")
    assert tree.longest(array((1, 2))) == (0, [])
    assert tree.beginnings(array((1, 2))) == []
    assert_is_well_formed(tree, {})


def test_of_no_tokens_nothing_is_found() -> None:
    tree = filled((1, 2))
    assert tree.longest(array(())) == (0, [])
    assert tree.beginnings(array(())) == []


def test_a_prompt_may_end_within_an_entry_or_go_on_after_it() -> None:
    tree = filled((1, 2, 3))
    assert tree.longest(array((1, 2))) == (2, ["123"])
    assert tree.longest(array((1, 2, 3, 4))) == (3, ["123"])
    assert tree.beginnings(array((1, 2))) == []
    assert tree.beginnings(array((1, 2, 3, 4))) == [(3, "123")]


def test_entries_are_kept_though_those_that_they_continue_go() -> None:
    tree = filled((1,), (1, 2), (1, 2, 3))
    tree.remove("12")
    assert tree.beginnings(array((1, 2, 3))) == [(3, "123"), (1, "1")]
    tree.remove("1")
    assert tree.beginnings(array((1, 2, 3))) == [(3, "123")]


def test_negative_and_large_tokens_are_tokens_too() -> None:
    tree = PrefixTree()
    tree.insert("a", array((-(2**31), 2**31 - 1)))
    assert tree.longest(array((-(2**31), 0))) == (1, ["a"])


@given(a=st.lists(st.integers(0, 1)).map(tuple), b=st.lists(st.integers(0, 1)).map(tuple))
def test_what_two_sequences_share(a: Plain, b: Plain) -> None:
    assert common_prefix(array(a), array(b)) == shared(a, b)
