"""Text to tokens and back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from legato.core.tokens import Tokens
from legato.engine.vocabulary import Vocabulary

CHAT = "<|im_start|>user\nWhat is this? 🦔<|im_end|>\n<|im_start|>assistant\n"


def spell(vocabulary: Vocabulary, tokens: Tokens, *, special: bool = False) -> str:
    return b"".join(vocabulary.piece(token, special=special) for token in tokens.tolist()).decode()


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "Hello, world!",
        "  two spaces  \n\n\ttabs\r\n",
        "naïve café, Straße, Ελληνικά, русский, 漢字かな, हिन्दी, العربية",
        "🦔👩‍👩‍👧‍👦🏴‍☠️ emoji made of several characters",
        "\x00 zero and other controls \x01\x7f\x1b[0m",
        "def f(x):\n    return x ** 2  # λ\n",
        "a" * 5000,
    ],
)
def test_text_comes_back_as_it_was(vocabulary: Vocabulary, text: str) -> None:
    tokens = vocabulary.tokenize(text, add_bos=False, parse_special=False)
    assert spell(vocabulary, tokens) == text


def test_text_spells_control_tokens_and_replaces_halves_of_characters(vocabulary: Vocabulary) -> None:
    tokens = vocabulary.tokenize(CHAT, add_bos=False, parse_special=True)
    assert vocabulary.text(tokens) == CHAT
    hedgehog = vocabulary.tokenize("🦔", add_bos=False, parse_special=False)
    assert len(hedgehog) > 1
    assert vocabulary.text(hedgehog[:1]) == "\ufffd"


def test_any_text_comes_back_but_for_bytes_that_the_vocabulary_lacks(vocabulary: Vocabulary) -> None:
    pieces = {vocabulary.piece(token) for token in range(vocabulary.size)}
    lacking = bytes(byte for byte in range(256) if bytes([byte]) not in pieces)
    assert len(lacking) < 32, "a few that no text that it learned from has"

    @settings(deadline=None, max_examples=300)
    @given(st.text(st.characters(exclude_categories=["Cs"]), max_size=50))
    def check(text: str) -> None:
        for parse_special in (False, True):
            tokens = vocabulary.tokenize(text, add_bos=False, parse_special=parse_special)
            assert tokens.dtype == np.int32
            spelled = b"".join(vocabulary.piece(token, special=True) for token in tokens.tolist())
            assert spelled == text.encode().translate(None, lacking)

    check()


def test_a_character_may_be_spread_over_tokens(vocabulary: Vocabulary) -> None:
    tokens = vocabulary.tokenize("🦔", add_bos=False, parse_special=False)
    assert len(tokens) > 1
    assert b"".join(map(vocabulary.piece, tokens.tolist())) == "🦔".encode()


def test_control_tokens_are_read_by_name_only_if_wanted(vocabulary: Vocabulary) -> None:
    parsed = vocabulary.tokenize(CHAT, add_bos=False, parse_special=True)
    as_text = vocabulary.tokenize(CHAT, add_bos=False, parse_special=False)
    (start,) = vocabulary.tokenize("<|im_start|>", add_bos=False, parse_special=True)
    assert list(parsed).count(start) == 2
    assert start not in as_text
    assert len(parsed) < len(as_text)


def test_control_tokens_are_spelled_only_if_wanted(vocabulary: Vocabulary) -> None:
    tokens = vocabulary.tokenize(CHAT, add_bos=False, parse_special=True)
    assert spell(vocabulary, tokens, special=True) == CHAT
    assert spell(vocabulary, tokens) == "user\nWhat is this? 🦔\nassistant\n"


def test_the_same_token_can_be_spelled_both_ways_again_and_again(vocabulary: Vocabulary) -> None:
    for _ in range(2):
        assert vocabulary.piece(vocabulary.eos) == b""
        assert vocabulary.piece(vocabulary.eos, special=True) == b"<|im_end|>"


def test_end_tokens_are_all_that_end_an_answer(vocabulary: Vocabulary) -> None:
    assert vocabulary.eos in vocabulary.end_tokens
    ends = {vocabulary.piece(token, special=True) for token in vocabulary.end_tokens}
    assert {b"<|im_end|>", b"<|endoftext|>"} <= ends
    assert all(vocabulary.is_end(token) for token in vocabulary.end_tokens)
    assert not any(vocabulary.is_end(token) for token in range(100, 200))


def test_this_model_wants_no_beginning_token(vocabulary: Vocabulary) -> None:
    assert not vocabulary.adds_bos
    with_bos, without = (vocabulary.tokenize("Hello", add_bos=b, parse_special=False) for b in (True, False))
    assert list(with_bos) == list(without)


def test_every_token_has_a_spelling(vocabulary: Vocabulary) -> None:
    assert all(vocabulary.piece(token, special=True) for token in range(vocabulary.size))


def test_lone_surrogates_are_no_text(vocabulary: Vocabulary) -> None:
    with pytest.raises(UnicodeEncodeError):
        vocabulary.tokenize("\ud800", add_bos=False, parse_special=False)
