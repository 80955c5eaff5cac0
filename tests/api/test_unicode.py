"""Characters of several tokens: whole in every event, whatever the tokens are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from legato.engine.model import Model
from tests.support.asking import MODEL, ask, read
from tests.support.events import read_events
from tests.support.server import LegatoProcess

EMOJI_LINES = "🎉🎊🥳🎈\n" * 3
CHINESE_LINES = "北京是中国的首都。\n" * 4
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

PROMPTS = pytest.mark.parametrize("prompt", [EMOJI_LINES, CHINESE_LINES], ids=["emoji", "chinese"])


def streamed_texts(server: LegatoProcess, prompt: str, **options: Any) -> list[str]:
    """The texts of a completion's events, read as bytes."""
    body = {"model": MODEL, "prompt": prompt, "temperature": 0, "stream": True, "ignore_eos": True, **options}
    events = read_events(f"{server.url}/v1/completions", body)
    return [choice["text"] for event in events for choice in event["choices"]]


@PROMPTS
def test_every_event_has_whole_characters(server: LegatoProcess, prompt: str) -> None:
    texts = streamed_texts(server, prompt, max_tokens=60)
    # The limit may end the answer in the middle of a character, which nothing else may.
    *before, last = [text for text in texts if text]
    assert REPLACEMENT not in "".join(before)
    assert last.rstrip(REPLACEMENT).count(REPLACEMENT) == 0
    assert sum(ord(character) > 0x2000 for character in "".join(texts)) >= 10, "such characters are meant to come"


@PROMPTS
def test_a_stream_and_a_plain_answer_have_the_same_characters(server: LegatoProcess, prompt: str) -> None:
    client = server.openai()
    options: dict[str, Any] = {"max_tokens": 40, "extra_body": {"ignore_eos": True}}
    plain = ask(client, "completions", prompt, **options).choices[0].text
    assert read(ask(client, "completions", prompt, stream=True, **options)).text == plain


@pytest.fixture(scope="module")
def emoji_answer(server: LegatoProcess) -> str:
    return "".join(streamed_texts(server, EMOJI_LINES, max_tokens=24)).rstrip(REPLACEMENT)


@pytest.mark.parametrize("limit", range(1, 7))
def test_a_limit_in_the_middle_of_a_character_shows_that_something_is_missing(
    server: LegatoProcess, emoji_answer: str, limit: int
) -> None:
    cut = "".join(streamed_texts(server, EMOJI_LINES, max_tokens=limit))
    assert emoji_answer.startswith(cut.rstrip(REPLACEMENT))
    assert cut


def test_a_stop_of_one_emoji_leaves_what_came_before_it(server: LegatoProcess, emoji_answer: str) -> None:
    stop = next(character for character in reversed(emoji_answer) if ord(character) > 0xFFFF)
    stopped = "".join(streamed_texts(server, EMOJI_LINES, max_tokens=24, stop=stop))
    assert stopped == emoji_answer[: emoji_answer.index(stop)]


def test_bytes_that_are_no_characters_are_replaced(server: LegatoProcess, model_path: Path) -> None:
    """A bias makes the model write the first byte of a character again and again."""
    vocabulary = Model(model_path, vocabulary_only=True).vocabulary
    first_byte = vocabulary.tokenize("🎉", add_bos=False, parse_special=False)[0]
    assert vocabulary.piece(int(first_byte)).decode("utf-8", "replace").count(REPLACEMENT)
    texts = streamed_texts(server, "Hello", max_tokens=5, logit_bias={str(first_byte): 100})
    assert set("".join(texts)) == {REPLACEMENT}


def test_a_conversation_in_other_scripts_streams_whole(server: LegatoProcess) -> None:
    messages = [
        {"role": "user", "content": "Répète : «ça coûte 5 € où ?» и «да»"},
        {"role": "assistant", "content": "ça coûte 5 € où ? да 🎉🎊 ça coûte 5 € où ? да 🎉🎊 "},
    ]
    body = {"messages": messages, "temperature": 0, "stream": True, "max_tokens": 40, "continue_final_message": True}
    events = read_events(f"{server.url}/v1/chat/completions", body)
    text = "".join(choice["delta"].get("content", "") for event in events for choice in event["choices"])
    assert REPLACEMENT not in text.rstrip(REPLACEMENT)
    assert not text.isascii()
