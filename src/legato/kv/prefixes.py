"""A prefix tree over token sequences: whose beginning does a prompt share, and how far."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from legato.core.tokens import Tokens, common_prefix


class _Node:
    """A stretch of tokens that its entries share, after those of the nodes above it."""

    def __init__(self, tokens: Tokens, above: _Node | None) -> None:
        self.below: dict[int, _Node] = {}
        """By their first token."""
        self.entry: str | None = None
        """The entry that ends here."""
        self.hold(tokens, above)

    def hold(self, tokens: Tokens, above: _Node | None) -> None:
        """Hold these tokens, under that node."""
        self.tokens, self.above = tokens, above
        self.data = tokens.tobytes()
        """The tokens once more: bytes are compared ten times faster than arrays."""
        if above is not None:
            above.below[int(tokens[0])] = self


class PrefixTree:
    """Entries by their tokens (a radix tree, as in SGLang's RadixAttention; Zheng et al., 2024).

    Every leaf is an entry's end, so that any node shares its tokens with at least one entry.
    """

    def __init__(self) -> None:
        self._root = _Node(np.empty(0, np.int32), None)
        self._ends: dict[str, _Node] = {}

    def insert(self, entry: str, tokens: Tokens) -> None:
        """Add an entry.

        Raises:
            ValueError: It is there already, or one of the same tokens, or it has none.
        """
        if entry in self._ends or not len(tokens):
            raise ValueError(f"entry {entry} is there already or empty")
        node, rest = self._root, tokens
        while len(rest):
            child = node.below.get(int(rest[0]))
            if child is None:
                node = _Node(rest, node)
                break
            shared = common_prefix(child.tokens, rest)
            if shared < len(child.tokens):
                upper = _Node(child.tokens[:shared], node)
                child.hold(child.tokens[shared:], upper)
                child = upper
            node, rest = child, rest[shared:]
        if node.entry is not None:
            raise ValueError(f"entry {node.entry} has the tokens of {entry}")
        node.entry = entry
        self._ends[entry] = node

    def remove(self, entry: str) -> None:
        """Take an entry out; nothing happens if there is none."""
        node = self._ends.pop(entry, None)
        if node is None:
            return
        node.entry = None
        while node.above is not None and node.entry is None and len(node.below) < 2:
            above = node.above
            if node.below:  # one stretch again
                (child,) = node.below.values()
                child.hold(np.concatenate([node.tokens, child.tokens]), above)
                break
            del above.below[int(node.tokens[0])]
            node = above

    def longest(self, tokens: Tokens) -> tuple[int, list[str]]:
        """The longest prefix that any entry shares, in tokens, and all entries that do, in no certain order."""
        node, depth, data = self._root, 0, tokens.tobytes()
        while depth < len(tokens):
            child = node.below.get(int(tokens[depth]))
            if child is None:
                break
            node = child
            if not data.startswith(child.data, depth * tokens.itemsize):
                depth += common_prefix(child.tokens, tokens[depth:])
                break
            depth += len(child.tokens)
        return (depth, list(_entries(node))) if depth else (0, [])

    def beginnings(self, tokens: Tokens) -> list[tuple[int, str]]:
        """The entries that are prefixes of a sequence, with their lengths; the longest first."""
        found: list[tuple[int, str]] = []
        node, depth, data = self._root, 0, tokens.tobytes()
        while True:
            if node.entry is not None:
                found.append((depth, node.entry))
            child = node.below.get(int(tokens[depth])) if depth < len(tokens) else None
            if child is None or not data.startswith(child.data, depth * tokens.itemsize):
                break
            node, depth = child, depth + len(child.tokens)
        return found[::-1]


def _entries(node: _Node) -> Iterator[str]:
    level = [node]
    while level:
        yield from (n.entry for n in level if n.entry is not None)
        level = [child for n in level for child in n.below.values()]
