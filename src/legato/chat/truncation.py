"""Long conversations: which of the oldest turns are dropped so that the rest fits into the context.

A turn is a user message with all that follows it up to the next user message. What stands before the first of them
counts as one too, such as a greeting. System messages at the start and the last turn are always kept; turns are dropped
whole, and the oldest first.

If each new turn dropped one more old turn, the prompt would change right behind the system messages every time, and all
of it would have to be read again. So turns are dropped in coarse steps: the tokens to drop are rounded up to a multiple
of a quarter of the context, then to whole turns. Over the conversation's next turns the very same ones are dropped,
and the kept prompt only grows, as prefix caches like it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Window:
    """What a conversation and its answer have to fit into.

    Room for the answer is kept: as many tokens as it may have, but at most a quarter of the context; an eighth where it
    has no limit.
    """

    context_tokens: int
    answer_limit: int | None = None
    """Most tokens of the answer, None for as many as fit."""

    @property
    def prompt_limit(self) -> int:
        """Most tokens of a prompt that leave room for the answer."""
        context = self.context_tokens
        room = context // 8 if self.answer_limit is None else min(self.answer_limit, context // 4)
        return context - max(1, room)

    @property
    def step_tokens(self) -> int:
        """The tokens to drop are a multiple of this."""
        return max(1, self.context_tokens // 4)

    def tokens_to_drop(self, prompt_tokens: int) -> int:
        """How many tokens a prompt of that many should lose at least; 0 if it fits."""
        excess = max(0, prompt_tokens - self.prompt_limit)
        return -(-excess // self.step_tokens) * self.step_tokens


def turn_starts(messages: Sequence[Mapping[str, Any]]) -> list[int]:
    """Where each turn begins: indexes of messages; those before the first one are the system messages at the start."""
    head = next((i for i, message in enumerate(messages) if message["role"] != "system"), len(messages))
    return [i for i in range(head, len(messages)) if i == head or messages[i]["role"] == "user"]


def turns_to_drop(turns: int, count: Callable[[int], int], window: Window) -> int:
    """How many of the oldest turns to drop: the fewest with which the tokens to drop are gone, but never the last one.

    Where only the last turn is left, the prompt may still be longer than the window wants it, or than the context.
    `count` tells the tokens of the prompt without so many of the oldest turns. It is called about log2(`turns`) times,
    with numbers from 0 to `turns` - 2.
    """
    prompt_tokens = count(0)
    wanted = window.tokens_to_drop(prompt_tokens)
    if not wanted or turns < 2:
        return 0
    return 1 + bisect_left(range(1, turns - 1), wanted, key=lambda dropped: prompt_tokens - count(dropped))
