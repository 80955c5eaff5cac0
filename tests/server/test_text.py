"""From tokens to text that may be sent."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from legato.server.text import AnswerText, StopFinder
from tests.server.answers import (
    Answer,
    FakeVocabulary,
    answers,
    cut,
    held_back,
    splits,
    write,
    written_step_by_step,
)

thorough = settings(deadline=None, max_examples=200)


def find_stop(parts: list[str], stops: list[str]) -> tuple[str, bool]:
    """What a finder lets through of a text in parts, and whether it found a stop string."""
    finder = StopFinder(stops)
    sent = ""
    for part in parts:
        sent += finder.feed(part)
        if finder.found:
            return sent, True
    return sent + finder.held, False


# Text


@thorough
@given(answers())
def test_the_text_ends_before_the_first_stop_string(answer: Answer) -> None:
    written = write(answer.pieces, answer.stops)
    assert written.text == cut(answer.text, answer.stops)
    assert written.stopped == any(stop in answer.text for stop in answer.stops)


@thorough
@given(answers(), st.data())
def test_the_text_does_not_depend_on_how_it_is_split_into_tokens(answer: Answer, data: st.DataObject) -> None:
    written = write(answer.pieces, answer.stops)
    otherwise = write(data.draw(splits(answer.data)), answer.stops)
    assert (written.text, written.stopped) == (otherwise.text, otherwise.stopped)


@thorough
@given(answers())
def test_only_what_may_become_a_stop_string_is_held_back(answer: Answer) -> None:
    given_so_far = b""
    for piece, written in zip(answer.pieces, written_step_by_step(answer.pieces, answer.stops), strict=False):
        given_so_far += piece
        if written.stopped:
            break
        # A character that is begun but not complete is held back too.
        known = given_so_far.decode("utf-8", "ignore")
        assert written.text == known[: len(known) - held_back(known, answer.stops)]


@thorough
@given(answers(valid=False))
def test_bytes_become_the_text_that_decoding_them_at_once_gives(answer: Answer) -> None:
    assert write(answer.pieces).text == answer.text


@thorough
@given(answers(valid=False))
def test_invalid_bytes_do_not_hide_a_stop_string(answer: Answer) -> None:
    assert write(answer.pieces, answer.stops).text == cut(answer.text, answer.stops)


@thorough
@given(answers())
def test_characters_are_never_sent_in_halves(answer: Answer) -> None:
    for piece in write(answer.pieces, answer.stops).pieces:
        assert "\N{REPLACEMENT CHARACTER}" not in piece.text
        assert piece.text.encode().decode() == piece.text


def test_a_character_is_sent_with_its_last_byte() -> None:
    written = write([b"a\xf0\x9f", b"\x98", b"\x80b"])
    assert [(piece.text, [t.token for t in piece.tokens]) for piece in written.pieces] == [("a", [0]), ("😀b", [1, 2])]


def test_half_a_character_at_the_end_is_replaced() -> None:
    assert write([b"a", b"\xf0\x9f"]).text == "a\N{REPLACEMENT CHARACTER}"


def test_a_replaced_character_can_complete_a_stop_string() -> None:
    written = write([b"ab", b"\xf0\x9f"], ["b\N{REPLACEMENT CHARACTER}"])
    assert (written.text, written.stopped) == ("a", True)


# Tokens


@thorough
@given(answers(valid=False))
def test_without_stops_every_token_is_sent_once_and_in_order(answer: Answer) -> None:
    assert write(answer.pieces).tokens == list(range(len(answer.pieces)))


@thorough
@given(answers(valid=False))
def test_no_token_is_sent_twice_or_out_of_order(answer: Answer) -> None:
    tokens = write(answer.pieces, answer.stops).tokens
    assert tokens == list(range(len(tokens)))


@thorough
@given(answers())
def test_with_a_stop_only_tokens_with_text_before_it_are_sent(answer: Answer) -> None:
    written = write(answer.pieces, answer.stops)
    begins = itertools.accumulate(map(len, answer.pieces), initial=0)
    size = len(written.text.encode())
    assert written.tokens == [token for token, begin in enumerate(list(begins)[:-1]) if begin < size]


def test_the_token_of_a_possible_stop_string_waits_even_if_earlier_text_is_sent() -> None:
    written = write([b"a", b"a", b"ba"], ["aba"])
    assert (written.text, written.tokens) == ("a", [0])


def test_held_back_text_of_an_earlier_token_does_not_bring_the_token_of_the_stop() -> None:
    # The last letter of `xa` is held back, for the stop string might have begun there.
    written = write([b"xa", b"aab"], ["aab"])
    assert (written.text, written.tokens) == ("xa", [0])


def test_long_characters_before_do_not_bring_the_token_of_the_stop() -> None:
    written = write(["€€".encode(), b"a", b"aba"], ["aba"])
    assert (written.text, written.tokens) == ("€€a", [0, 1])


def test_tokens_without_text_are_sent_with_the_next_text() -> None:
    written = write([b"", b"a", b"", b"", b"b"])
    assert [(piece.text, [t.token for t in piece.tokens]) for piece in written.pieces] == [
        ("a", [0, 1]),
        ("b", [2, 3, 4]),
    ]


def test_tokens_without_text_at_the_end_are_sent_too() -> None:
    assert write([b"a", b"", b""]).tokens == [0, 1, 2]


def test_an_answer_without_tokens_sends_nothing() -> None:
    assert AnswerText(FakeVocabulary([]), ["stop"]).finish() is None  # type: ignore[arg-type]


# Stop strings


@pytest.mark.parametrize(
    ("parts", "stops", "sent", "found"),
    [
        (["hello"], [], "hello", False),
        (["hello"], ["xyz"], "hello", False),
        (["hello"], ["l"], "he", True),
        (["hel", "lo"], ["llo"], "he", True),
        (["h", "e", "l", "l", "o"], ["ello"], "h", True),
        (["hell", "!"], ["hello"], "hell!", False),
        (["hell"], ["hello"], "hell", False),
        (["a", "aab"], ["aab"], "a", True),
        (["ababa", "c"], ["abac"], "ab", True),
        (["stop"], ["stop"], "", True),
        (["ab"], ["b", "a"], "", True),
        (["one\n", "\ntwo"], ["\n\n"], "one", True),
        (["", "a", "", "b"], ["ab"], "", True),
    ],
)
def test_stop_strings(parts: list[str], stops: list[str], sent: str, found: bool) -> None:
    assert find_stop(parts, stops) == (sent, found)


@thorough
@given(answers())
def test_a_finder_agrees_with_find_on_the_whole_text(answer: Answer) -> None:
    # Halves of characters are left out: a finder is given whole ones.
    parts = [piece.decode("utf-8", "ignore") for piece in answer.pieces]
    text = "".join(parts)
    assert find_stop(parts, answer.stops) == (cut(text, answer.stops), any(stop in text for stop in answer.stops))


@pytest.mark.parametrize("stops", [["abcd", "bc"], ["bc", "abcd"]])
@pytest.mark.parametrize("parts", [["abcd"], ["abc", "d"], ["ab", "cd"], ["a", "b", "c", "d"]])
def test_of_two_stop_strings_in_one_another_the_one_that_is_complete_first_wins(
    parts: list[str], stops: list[str]
) -> None:
    assert find_stop(parts, stops) == ("a", True)


def test_of_two_stop_strings_that_are_complete_at_once_the_longer_wins() -> None:
    assert find_stop(["xa", "b"], ["b", "ab"]) == ("x", True)
