"""A prefix tree over token sequences: whose beginning does a prompt share, and how far."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from legato.core.tokens import Tokens, common_prefix


@dataclass(slots=True, eq=False)
class _Node:
    """A stretch of tokens that its entries share, after those of the nodes above it."""

    tokens: Tokens
    above: _Node | None
    below: dict[int, _Node] = field(default_factory=dict)
    """By their first token."""
    entry: str | None = None
    """The entry that ends here."""
    data: bytes = b""
    """The tokens once more: bytes are compared ten times faster than arrays."""

    def __post_init__(self) -> None:
        self.hold(self.tokens, self.above)

    def hold(self, tokens: Tokens, above: _Node | None) -> None:
        """Hold these tokens, under that node."""
        self.tokens, self.data, self.above = tokens, tokens.tobytes(), above


class PrefixTree:
    """Entries by their tokens (a radix tree, as in SGLang's RadixAttention; Zheng et al., 2024).

    Every leaf is an entry's end, so that any node shares its tokens with at least one entry.
    """

    def __init__(self) -> None:
        self._root: _Node | None = None
        self._ends: dict[str, _Node] = {}

    def __len__(self) -> int:
        """How many entries there are."""
        return len(self._ends)

    def __contains__(self, entry: str) -> bool:
        """Whether there is such an entry."""
        return entry in self._ends

    def insert(self, entry: str, tokens: Tokens) -> None:
        """Add an entry.

        Raises:
            ValueError: It is there already, or one of the same tokens, or it has none.
        """
        if entry in self._ends or not len(tokens):
            raise ValueError(f"entry {entry} is there already or empty")
        if self._root is None:
            self._root = _Node(tokens[:0], None)
        node, rest = self._root, tokens
        while len(rest):
            child = node.below.get(int(rest[0]))
            if child is None:
                child = node.below[int(rest[0])] = _Node(rest, node)
                node, rest = child, rest[len(rest) :]
                break
            shared = common_prefix(child.tokens, rest)
            if shared < len(child.tokens):
                child = self._split(child, shared)
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
                above.below[int(child.tokens[0])] = child
                break
            del above.below[int(node.tokens[0])]
            node = above

    def longest(self, tokens: Tokens) -> tuple[int, list[str]]:
        """The longest prefix that any entry shares, in tokens, and all entries that do, in no certain order."""
        if self._root is None or not self._ends:
            return 0, []
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
        while node is not None:
            if node.entry is not None:
                found.append((depth, node.entry))
            child = node.below.get(int(tokens[depth])) if depth < len(tokens) else None
            if child is None or not data.startswith(child.data, depth * tokens.itemsize):
                break
            node, depth = child, depth + len(child.tokens)
        return found[::-1]

    @staticmethod
    def _split(node: _Node, at: int) -> _Node:
        """Cut a node's stretch in two; returns the upper one."""
        assert node.above is not None, "the root has no tokens to cut"
        upper = _Node(node.tokens[:at], node.above)
        node.above.below[int(upper.tokens[0])] = upper
        node.hold(node.tokens[at:], upper)
        upper.below[int(node.tokens[0])] = node
        return upper


def _entries(node: _Node) -> Iterator[str]:
    level = [node]
    while level:
        yield from (n.entry for n in level if n.entry is not None)
        level = [child for n in level for child in n.below.values()]
