"""Another architecture, without a chat template: sliding-window attention and 262,144 tokens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from tests.support.asking import QUESTION, read, user
from tests.support.server import LegatoProcess

GEMMA = "gemma3-270m"
COUNTING = "1, 2, 3, 4, 5, 6, 7,"


@pytest.fixture(scope="module")
def base_model(gemma_path: Path) -> Iterator[LegatoProcess]:
    with LegatoProcess(GEMMA, "--parallel", "2", "--ctx", "1024") as process:
        process.wait_ready()
        yield process


def test_it_completes_a_text(base_model: LegatoProcess) -> None:
    options = {"model": GEMMA, "prompt": COUNTING, "max_tokens": 8, "temperature": 0}
    plain = base_model.openai().completions.create(**options)
    assert plain.choices[0].text.startswith(" 8, 9, 1")
    assert read(base_model.openai().completions.create(stream=True, **options)).text == plain.choices[0].text


def test_its_own_first_token_goes_before_every_text(base_model: LegatoProcess) -> None:
    """Texts get the token that its vocabulary wants there; tokens are taken as they are, and an empty text is one."""
    client = base_model.openai()
    counts = [
        client.completions.create(model=GEMMA, prompt=prompt, max_tokens=1).usage.prompt_tokens
        for prompt in ("Hello", [9259], [2, 9259], "")
    ]
    assert counts == [2, 1, 2, 1]


def test_it_answers_two_at_once_as_it_answers_one(base_model: LegatoProcess) -> None:
    prompts = ["The capital of France is", "The opposite of black is"]
    options = {"model": GEMMA, "max_tokens": 6, "temperature": 0}
    client = base_model.openai()
    alone = [client.completions.create(prompt=prompt, **options).choices[0].text for prompt in prompts]
    together = client.completions.create(prompt=prompts, **options)
    assert [choice.text for choice in together.choices] == alone


def test_it_reads_a_prompt_longer_than_its_window(base_model: LegatoProcess) -> None:
    prompt = ("one two three four five six seven eight nine ten " * 75).strip()
    result = base_model.openai().completions.create(model=GEMMA, prompt=prompt, max_tokens=4, temperature=0)
    assert result.usage.prompt_tokens > 700
    assert result.choices[0].text.split()[0] == "one"


def test_a_chat_is_refused_for_want_of_a_template(base_model: LegatoProcess) -> None:
    with pytest.raises(openai.BadRequestError, match=r"no chat template.*--chat-template") as caught:
        base_model.openai().chat.completions.create(model=GEMMA, messages=user(QUESTION))
    assert caught.value.code == "no_chat_template"


def test_with_a_template_of_its_family_it_chats(serve, gemma_path: Path) -> None:
    process = serve(GEMMA, "--parallel", "2", "--ctx", "1024", "--chat-template", "gemma")
    result = process.openai().chat.completions.create(
        model=GEMMA, messages=user(QUESTION), max_tokens=12, temperature=0
    )
    assert result.choices[0].message.content
    assert result.usage.completion_tokens > 0
    with pytest.raises(openai.BadRequestError, match="System role not supported"):
        process.openai().chat.completions.create(model=GEMMA, messages=[{"role": "system", "content": "Be kind."}])
