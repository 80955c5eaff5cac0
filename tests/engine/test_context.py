"""KV state: kept, copied, cut, saved and restored; and calls that fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from llama_cpp import llama_cpp as lib

from legato.engine.batch import Batch
from legato.engine.context import AbortedError, Context, EngineError
from legato.engine.model import Model
from legato.engine.vocabulary import Vocabulary
from legato.errors import LegatoError
from tests.engine.conftest import ContextFactory, settings
from tests.engine.reading import SEQUENCES, decode, read, tokens_of

TEXT = "Twenty-three sailors left the harbour on a cold morning in March, and the first of them to see land again was"
NEXT = 260


# Sequences


def test_a_sequence_is_as_long_as_what_was_read(context: Context, vocabulary: Vocabulary) -> None:
    prompt = tokens_of(vocabulary, TEXT)
    assert context.length(2) == 0
    read(context, 2, prompt, 5)
    assert [context.length(sequence) for sequence in range(SEQUENCES)] == [0, 0, len(prompt), 0]
    decode(context, {2: NEXT})
    assert context.length(2) == len(prompt) + 1


def test_a_removed_sequence_is_empty_and_the_others_are_not(context: Context, vocabulary: Vocabulary) -> None:
    prompt = tokens_of(vocabulary, TEXT)
    for sequence in range(SEQUENCES):
        read(context, sequence, prompt[: 3 + sequence])
    assert context.remove(1)
    assert [context.length(sequence) for sequence in range(SEQUENCES)] == [3, 0, 5, 6]


def test_removing_an_empty_sequence_is_fine(context: Context) -> None:
    assert context.remove(1)
    assert context.length(1) == 0


def test_a_removed_sequence_leaves_no_trace(context: Context, vocabulary: Vocabulary) -> None:
    prompt = tokens_of(vocabulary, TEXT)
    expected = read(context, 1, prompt)
    context.remove(1)
    read(context, 1, tokens_of(vocabulary, "def fibonacci(n):\n" * 10))
    context.remove(1)
    assert np.array_equal(read(context, 1, prompt), expected)


def test_a_sequence_can_be_cut_and_read_on(context: Context, vocabulary: Vocabulary) -> None:
    prompt = tokens_of(vocabulary, TEXT)
    expected = read(context, 1, prompt)
    assert context.remove(1, 10)
    assert context.length(1) == 10
    np.testing.assert_allclose(read(context, 1, prompt[10:]), expected, atol=0.01)


def test_a_copy_goes_on_like_its_source_and_on_its_own(context: Context, vocabulary: Vocabulary) -> None:
    prompt = tokens_of(vocabulary, TEXT)
    read(context, 0, prompt)
    context.copy(0, 3)
    assert context.length(3) == len(prompt)
    expected = decode(context, {0: NEXT})[0]
    context.remove(0)
    assert context.length(3) == len(prompt)
    assert np.array_equal(decode(context, {3: NEXT})[3], expected)


# Saved states


def test_a_saved_state_gives_the_very_same_logits_elsewhere(context: Context, vocabulary: Vocabulary) -> None:
    prompt = tokens_of(vocabulary, TEXT)
    read(context, 0, prompt)
    state = context.save_state(0)
    expected = decode(context, {0: NEXT})[0]
    context.load_state(3, state)
    assert context.length(3) == len(prompt)
    assert np.array_equal(decode(context, {3: NEXT})[3], expected)


def test_a_saved_state_can_be_restored_in_another_context(
    context: Context, make_context: ContextFactory, vocabulary: Vocabulary
) -> None:
    read(context, 0, tokens_of(vocabulary, TEXT))
    state = context.save_state(0)
    expected = decode(context, {0: NEXT})[0]
    other = make_context()
    other.load_state(1, state)
    assert np.array_equal(decode(other, {1: NEXT})[1], expected)


def test_restoring_replaces_what_was_there(context: Context, vocabulary: Vocabulary) -> None:
    read(context, 0, tokens_of(vocabulary, TEXT))
    state = context.save_state(0)
    expected = decode(context, {0: NEXT})[0]
    read(context, 1, tokens_of(vocabulary, "def fibonacci(n):\n" * 10))
    context.load_state(1, state)
    assert np.array_equal(decode(context, {1: NEXT})[1], expected)


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda state: state[:0], id="nothing"),
        pytest.param(lambda state: state[:5], id="a few bytes"),
        pytest.param(lambda state: state[: len(state) // 2], id="half"),
        pytest.param(lambda state: state[:-1], id="a byte too few"),
        pytest.param(lambda state: np.append(state, np.uint8(0)), id="a byte too many"),
        pytest.param(lambda state: np.zeros_like(state), id="zeros"),
        pytest.param(lambda state: np.concatenate([state[:8] ^ 255, state[8:]]), id="another head"),
    ],
)
def test_a_damaged_state_is_refused_and_leaves_the_sequence_empty(
    context: Context, vocabulary: Vocabulary, damage: Callable[[Any], Any]
) -> None:
    read(context, 0, tokens_of(vocabulary, TEXT))
    state = context.save_state(0)
    read(context, 1, tokens_of(vocabulary, "Something else"))
    with pytest.raises(EngineError, match="could not restore the state of sequence 1: "):
        context.load_state(1, np.ascontiguousarray(damage(state)))
    assert context.length(1) == 0
    assert context.length(0) > 0
    context.load_state(1, state)
    assert context.length(1) == context.length(0)


def test_a_state_of_another_kind_of_context_is_refused(
    context: Context, make_context: ContextFactory, vocabulary: Vocabulary
) -> None:
    read(context, 0, tokens_of(vocabulary, TEXT))
    other = make_context(flash_attention="on")
    with pytest.raises(EngineError, match="could not restore"):
        other.load_state(0, context.save_state(0))
    assert other.length(0) == 0


# Calls that fail


def test_an_aborted_call_says_so_and_the_context_goes_on(context: Context, vocabulary: Vocabulary) -> None:
    prompt = tokens_of(vocabulary, TEXT)
    expected = read(context, 0, prompt)
    context.remove(0)
    asked = 0

    def after_a_while() -> bool:
        nonlocal asked
        asked += 1
        return asked > 50

    context.set_abort(after_a_while)
    with pytest.raises(AbortedError, match="the call was aborted"):
        read(context, 0, prompt)
    context.set_abort(None)
    asked_until_then = asked
    context.remove(0)
    assert np.array_equal(read(context, 0, prompt), expected)
    assert asked == asked_until_then


def test_an_abort_leaves_other_sequences_alone(context: Context, vocabulary: Vocabulary) -> None:
    prompt = tokens_of(vocabulary, TEXT)
    read(context, 2, prompt)
    context.copy(2, 3)
    expected = decode(context, {3: NEXT})[3]
    context.set_abort(lambda: True)
    with pytest.raises(AbortedError):
        read(context, 0, prompt)
    context.set_abort(None)
    assert context.length(2) == len(prompt)
    assert np.array_equal(decode(context, {2: NEXT})[2], expected)


def test_a_function_that_does_not_abort_changes_nothing(context: Context, vocabulary: Vocabulary) -> None:
    prompt = tokens_of(vocabulary, TEXT)
    expected = read(context, 0, prompt)
    context.set_abort(lambda: False)
    assert np.array_equal(read(context, 1, prompt), expected)
    context.set_abort(None)


def test_a_full_sequence_takes_no_more_and_the_others_do(make_context: ContextFactory) -> None:
    context = make_context(sequences=2, cells_per_sequence=256)
    read(context, 0, np.full(256, NEXT, np.int32))
    with pytest.raises(EngineError, match="no free KV cells"):
        decode(context, {0: NEXT})
    decode(context, {1: NEXT})
    assert (context.length(0), context.length(1)) == (256, 1)


@pytest.mark.parametrize(("sequence", "token", "reason"), [(0, 10**8, "invalid token"), (99, 5, "invalid seq_id")])
def test_what_the_library_refuses_is_said_with_its_reason(
    context: Context, sequence: int, token: int, reason: str
) -> None:
    batch = Batch(4)
    batch.add_one(sequence, token, 0)
    with pytest.raises(EngineError, match=f"could not evaluate 1 tokens: {reason}"):
        context.evaluate(batch)
    decode(context, {1: NEXT})


def test_the_reason_is_that_of_this_failure_not_of_an_earlier_one(context: Context) -> None:
    decode(context, {1: NEXT})
    with pytest.raises(EngineError, match="row 5 of the batch has no logits"):
        context.logits(5)
    with pytest.raises(EngineError) as caught:
        context.load_state(0, np.zeros(100, np.uint8))
    assert "logits" not in str(caught.value)


def test_only_wanted_rows_have_logits(context: Context) -> None:
    batch = Batch(8)
    row = batch.add(1, np.full(5, NEXT, np.int32), 0, want_logits=True)
    context.evaluate(batch)
    assert context.logits(row).shape == (context.model.vocabulary.size,)
    with pytest.raises(EngineError, match="row 2 of the batch has no logits"):
        context.logits(2)


# Settings


def test_cells_are_at_least_what_was_wished(make_context: ContextFactory) -> None:
    context = make_context(sequences=3, cells_per_sequence=300)
    assert context.cells_per_sequence >= 300
    assert context.sequences == 3


def test_quantized_values_without_flash_attention_are_refused_with_the_reason(model: Model) -> None:
    with pytest.raises(EngineError, match=r"SmolLM2.*could not be made: quantized V cache requires flash_attn"):
        Context(model, settings(kv_type_v="q8_0", flash_attention="off"))


@pytest.mark.parametrize(
    "changes",
    [
        {"kv_type_k": "q8_0", "kv_type_v": "q8_0", "flash_attention": "on"},
        {"kv_type_k": "bf16", "kv_type_v": "bf16"},
        {"kv_type_k": "f32", "kv_type_v": "f32"},
        {"flash_attention": "auto"},
    ],
)
def test_other_settings_give_about_the_same_logits(
    context: Context, make_context: ContextFactory, vocabulary: Vocabulary, changes: dict[str, Any]
) -> None:
    prompt = tokens_of(vocabulary, TEXT)
    expected = read(context, 0, prompt)
    logits = read(make_context(**changes), 0, prompt)
    # The standard deviation of these logits is about 6; 8-bit keys and values move them by 0.5.
    assert np.sqrt(np.mean((logits - expected) ** 2)) < 1.0


def test_threads_can_be_changed(make_context: ContextFactory) -> None:
    context = make_context(sequences=1)
    # Asked, not tried: two threads on a busy machine wait for each other for seconds.
    for decode_threads, prefill_threads in ((3, 2), (1, 1)):
        context.set_threads(decode_threads, prefill_threads)
        asked = (lib.llama_n_threads(context.handle), lib.llama_n_threads_batch(context.handle))
        assert asked == (decode_threads, prefill_threads)


def test_errors_of_the_engine_are_ones_that_people_can_read() -> None:
    assert issubclass(AbortedError, EngineError)
    assert issubclass(EngineError, LegatoError)


def test_a_context_can_be_closed_twice(make_context: ContextFactory) -> None:
    context = make_context(sequences=1)
    context.close()
    context.close()
