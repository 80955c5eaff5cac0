"""Reading prompts and writing answers with the engine's parts, in the fewest words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from legato.core.tokens import Tokens
from legato.engine.batch import Batch
from legato.engine.context import Context
from legato.engine.vocabulary import Vocabulary

SEQUENCES = 4
CELLS = 512
"""Of each sequence."""
BATCH_TOKENS = 512

Logits = NDArray[np.float32]


def tokens_of(vocabulary: Vocabulary, text: str) -> Tokens:
    return vocabulary.tokenize(text, add_bos=vocabulary.adds_bos, parse_special=True)


def read_row(context: Context, sequence: int, prompt: Tokens, chunk: int = BATCH_TOKENS) -> int:
    """Read a prompt on in chunks; the row of its last token in the latest batch."""
    batch = Batch(chunk)
    row = -1
    for start in range(0, len(prompt), chunk):
        batch.clear()
        part = prompt[start : start + chunk]
        row = batch.add(sequence, part, context.length(sequence), want_logits=start + len(part) == len(prompt))
        context.evaluate(batch)
    return row


def read(context: Context, sequence: int, prompt: Tokens, chunk: int = BATCH_TOKENS) -> Logits:
    """Read a prompt on in chunks; the logits of its last token."""
    return context.logits(read_row(context, sequence, prompt, chunk)).copy()


def decode(context: Context, inputs: dict[int, int]) -> dict[int, Logits]:
    """Compute the next token of each sequence in one call; the logits behind it, by sequence."""
    batch = Batch(SEQUENCES)
    rows = {
        sequence: batch.add_one(sequence, inputs[sequence], context.length(sequence)) for sequence in sorted(inputs)
    }
    context.evaluate(batch)
    return {sequence: context.logits(row).copy() for sequence, row in rows.items()}


def write_greedily(context: Context, logits: dict[int, Logits], count: int) -> dict[int, tuple[list[int], Logits]]:
    """Answer in several sequences side by side.

    Args:
        context: That has read the prompts.
        logits: Of each prompt's last token, by sequence.
        count: How many tokens.

    Returns:
        By sequence, its tokens, and the logits that each of them was chosen from, shape [count, vocabulary].
    """
    tokens: dict[int, list[int]] = {sequence: [] for sequence in logits}
    seen: dict[int, list[Logits]] = {sequence: [] for sequence in logits}
    for _ in range(count):
        for sequence, latest in logits.items():
            seen[sequence].append(latest)
            tokens[sequence].append(int(latest.argmax()))
        logits = decode(context, {sequence: tokens[sequence][-1] for sequence in logits})
    return {sequence: (tokens[sequence], np.array(seen[sequence])) for sequence in tokens}


def follow(context: Context, sequence: int, logits: Logits, answer: Sequence[int]) -> Logits:
    """Compute a given answer token by token; the logits that each of its tokens was given with."""
    return np.array([logits, *(decode(context, {sequence: token})[sequence] for token in answer[:-1])])
