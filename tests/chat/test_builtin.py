"""The templates for models that carry none."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from legato.chat.builtin import BUILTIN_NAMES, builtin_template
from legato.chat.message_error import TemplateRefusalError
from legato.chat.messages import read_messages
from legato.chat.template import ChatTemplate
from legato.errors import LegatoError

SYSTEM = {"role": "system", "content": "Be brief."}
TALK = [
    {"role": "user", "content": "Hello "},
    {"role": "assistant", "content": "Hi!"},
    {"role": "user", "content": "Why?"},
]
HAS_SYSTEM = {
    "chatml": (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHello <|im_end|>\n"
        "<|im_start|>assistant\nHi!<|im_end|>\n<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n"
    ),
    "llama2": "<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nHello [/INST] Hi! </s><s>[INST] Why? [/INST]",
    "llama3": (
        "<s><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nHello<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\nHi!<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nWhy?<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    ),
    "alpaca": (
        "<s>Be brief.\n\n### Instruction:\nHello\n\n### Response:\nHi!</s>\n\n### Instruction:\nWhy?\n\n### Response:\n"
    ),
}


def template(name):
    return ChatTemplate(builtin_template(name), bos_token="<s>", eos_token="</s>")


@pytest.mark.parametrize("name", HAS_SYSTEM)
def test_with_a_system_message(name):
    assert template(name).render([SYSTEM, *TALK]) == HAS_SYSTEM[name]


def test_gemma():
    assert template("gemma").render(TALK) == (
        "<s><start_of_turn>user\nHello<end_of_turn>\n<start_of_turn>model\nHi!<end_of_turn>\n"
        "<start_of_turn>user\nWhy?<end_of_turn>\n<start_of_turn>model\n"
    )


@pytest.mark.parametrize(
    ("name", "messages", "reason"),
    [
        ("gemma", [SYSTEM, *TALK], "System role not supported"),
        ("gemma", [TALK[0], TALK[0]], "alternate"),
        ("llama2", [TALK[0], TALK[2]], "alternate"),
        ("llama2", [TALK[0], SYSTEM], "system message must be the first"),
        ("llama2", [TALK[1]], "alternate"),
    ],
)
def test_refusals(name, messages, reason):
    with pytest.raises(TemplateRefusalError, match=reason):
        template(name).render(messages)


@pytest.mark.parametrize("name", BUILTIN_NAMES)
def test_without_a_generation_prompt_it_is_a_beginning(name):
    with_prompt = template(name).render(TALK)
    assert with_prompt.startswith(template(name).render(TALK, add_generation_prompt=False))


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(LegatoError, match=r"'vicuna'.*; those are chatml, llama2, llama3, gemma, alpaca"):
        builtin_template("vicuna")


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["developer", "user", "assistant"]), st.text(st.characters(exclude_categories=["Cs"]))
        )
    )
)
def test_chatml_holds_each_content_once_and_in_order(turns):
    # A number before each content, so that no content is by chance a part of another.
    sent = [{"role": role, "content": f"#{index}#{text}#{index}#"} for index, (role, text) in enumerate(turns)]
    if not sent:
        return
    text = template("chatml").render(read_messages(sent))
    position = 0
    for message in sent:
        assert text.count(message["content"]) == 1
        found = text.index(message["content"])
        assert found > position
        position = found
    assert text.count("<|im_start|>") == len(sent) + 1 + sum(m["content"].count("<|im_start|>") for m in sent)
