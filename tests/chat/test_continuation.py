"""Continuing the last answer."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from legato.chat.builtin import builtin_template
from legato.chat.message_error import TemplateError
from legato.chat.template import ChatTemplate
from tests.chat import templates

QUESTION = {"role": "user", "content": "Count"}


def continued(source, content, **options):
    template = ChatTemplate(source, bos_token="<s>", eos_token="</s>")
    return template.render(
        [QUESTION, {"role": "assistant", "content": content}], continue_final_message=True, **options
    )


@pytest.mark.parametrize(
    "content", ["one, two, ", "", "\n", "im_end", "assistant", "<|im_end|>\n", "[LegatoContinuesHere0]"]
)
def test_ends_exactly_behind_the_content(content):
    head = "<|im_start|>user\nCount<|im_end|>\n<|im_start|>assistant\n"
    assert continued(builtin_template("chatml"), content) == head + content


def test_a_trimming_template_keeps_the_end():
    assert continued(templates.LLAMA31, "  one, ", extra={"date_string": "now"}).endswith(
        "assistant<|end_header_id|>\n\none, "
    )
    assert continued(templates.GEMMA, "one, ") == (
        "<s><start_of_turn>user\nCount<end_of_turn>\n<start_of_turn>model\none, "
    )


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages[-1].content | upper }}",
        "{{ messages[-1].content[:3] }}",
        "{{ messages[-1].content }}{{ messages[-1].content }}",
        "{{ messages[0].content }}",
        "{{ messages[-1].content | replace('one', '1') }}",
        "{{ messages[-1].content | reverse }}",
    ],
)
def test_a_template_that_changes_the_content_is_an_error(source):
    with pytest.raises(TemplateError, match="changes the last answer's text"):
        continued(source, "one, two")


@pytest.mark.parametrize("last", [QUESTION, {"role": "system", "content": "x"}, {"role": "assistant", "content": None}])
def test_only_the_assistants_text_can_be_continued(last):
    template = ChatTemplate(builtin_template("chatml"), bos_token="", eos_token="")
    with pytest.raises(TemplateError, match="must be text from the assistant"):
        template.render([QUESTION, last], continue_final_message=True)


def test_no_messages_cannot_be_continued():
    with pytest.raises(TemplateError, match="must be text from the assistant"):
        ChatTemplate("", bos_token="", eos_token="").render([], continue_final_message=True)


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_can_be_continued(content):
    assert continued(builtin_template("chatml"), content).endswith("assistant\n" + content)
    assert continued(builtin_template("llama3"), content).endswith("\n\n" + content.lstrip())
