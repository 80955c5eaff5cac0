"""What is answered does not depend on chunk sizes or on what else is running.

Without FlashAttention the library gives the very same bits on the machines that this was tried on. That is not promised
for every CPU, so logits are compared within TOLERANCE, and tokens exactly.

FlashAttention's CPU kernel works in tiles of query rows and rounds differently for other batch shapes. There the logits
(whose standard deviation over the vocabulary is about 6) are compared within FLASH_TOLERANCE: measured were 0.25.
"""

from __future__ import annotations

import numpy as np
import pytest

from legato.engine.context import Context
from legato.engine.vocabulary import Vocabulary
from tests.engine.conftest import ContextFactory
from tests.engine.reading import Logits, decode, follow, read, tokens_of, write_greedily

TOLERANCE = 0.01
"""Largest difference of a logit."""
FLASH_TOLERANCE = 0.6
"""Root of the mean square of the differences."""
COUNT = 40

STORY = """<|im_start|>user
A lighthouse keeper wrote in his diary every night. He wrote of the weather, of the ships that passed, of the birds that
lost their way in the beam and fell on the rocks below. When the light was made automatic he stayed on, for nobody told
him to leave, and went on writing. Years later a boy who came to fish found the diary in a tin under the stairs, and
read in it, on the last page that was filled, his own name, and the date of that very day. Tell me what the boy did
next, in a story of three paragraphs, and give the story a title.<|im_end|>
<|im_start|>assistant
"""
OTHERS = {
    0: "Once upon a time there was a king who",
    2: "def fibonacci(n):\n",
    3: "The three most important facts about water are",
}

Answer = tuple[list[int], Logits]


@pytest.fixture(scope="module")
def alone(shared_context: Context, vocabulary: Vocabulary) -> Answer:
    """The answer to the story whose prompt is read at once, with nobody else around."""
    for sequence in range(shared_context.sequences):
        shared_context.remove(sequence)
    prompt = tokens_of(vocabulary, STORY)
    return write_greedily(shared_context, {1: read(shared_context, 1, prompt)}, COUNT)[1]


def assert_same(answer: Answer, alone: Answer) -> None:
    assert answer[0] == alone[0]
    assert np.abs(answer[1] - alone[1]).max() < TOLERANCE


@pytest.mark.parametrize("chunk", [7, 64])
def test_the_answer_is_the_same_however_the_prompt_is_read(
    context: Context, vocabulary: Vocabulary, alone: Answer, chunk: int
) -> None:
    prompt = tokens_of(vocabulary, STORY)
    assert_same(write_greedily(context, {1: read(context, 1, prompt, chunk)}, COUNT)[1], alone)


def test_the_answer_is_the_same_beside_others(context: Context, vocabulary: Vocabulary, alone: Answer) -> None:
    prompts = {1: STORY, **OTHERS}
    logits = {sequence: read(context, sequence, tokens_of(vocabulary, text)) for sequence, text in prompts.items()}
    assert_same(write_greedily(context, logits, COUNT)[1], alone)


def test_the_answer_is_the_same_while_others_read(context: Context, vocabulary: Vocabulary, alone: Answer) -> None:
    logits = read(context, 1, tokens_of(vocabulary, STORY))
    other = tokens_of(vocabulary, OTHERS[3] * 20)
    tokens: list[int] = []
    seen: list[Logits] = []
    for step in range(COUNT // 2):
        seen.append(logits)
        tokens.append(int(logits.argmax()))
        logits = decode(context, {1: tokens[-1]})[1]
        if step % 4 == 0:
            read(context, 3, other[step : step + 4])
    assert_same((tokens, np.array(seen)), (alone[0][: COUNT // 2], alone[1][: COUNT // 2]))


def test_with_flash_attention_it_is_the_same_but_for_rounding(
    make_context: ContextFactory, vocabulary: Vocabulary
) -> None:
    context = make_context(flash_attention="on")
    prompt = tokens_of(vocabulary, STORY)
    answer, expected = write_greedily(context, {1: read(context, 1, prompt)}, 10)[1]
    for chunk in (7, 64):
        context.remove(1)
        seen = follow(context, 1, read(context, 1, prompt, chunk), answer)
        assert np.sqrt(np.mean((seen - expected) ** 2)) < FLASH_TOLERANCE
