"""Exact prompt texts for templates as models carry them."""

from __future__ import annotations

from datetime import datetime

import pytest

from legato.chat.message_error import TemplateRefusalError
from legato.chat.template import ChatTemplate
from tests.chat import templates

NOW = datetime(2025, 3, 1, 12, 30)
SYSTEM = {"role": "system", "content": "Be brief."}
HELLO = {"role": "user", "content": "Hello"}
HI = {"role": "assistant", "content": " Hi! "}
WHY = {"role": "user", "content": "Why?\n"}
TOOLS = [{"name": "höhe", "parameters": {"of": "<mountain> & 'hill'"}}, {"name": "now"}]


def render(source, messages, **options):
    return ChatTemplate(source, bos_token="<s>", eos_token="</s>").render(messages, now=NOW, **options)


def test_smollm_adds_its_own_system_message():
    assert render(templates.SMOLLM, [HELLO, HI, WHY]) == (
        "<|im_start|>system\nYou are a helpful assistant named Smol.<|im_end|>\n"
        "<|im_start|>user\nHello<|im_end|>\n"
        "<|im_start|>assistant\n Hi! <|im_end|>\n"
        "<|im_start|>user\nWhy?\n<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_smollm_keeps_a_given_system_message():
    assert render(templates.SMOLLM, [SYSTEM, HELLO], add_generation_prompt=False) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n"
    )


def test_llama31_tells_the_date():
    assert render(templates.LLAMA31, [SYSTEM, HELLO, HI, WHY]) == (
        "<s><|start_header_id|>system<|end_header_id|>\n\nToday Date: 01 Mar 2025\n\nBe brief.<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nHello<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\nHi!<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nWhy?<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    )


def test_llama31_takes_variables_from_the_request():
    text = render(
        templates.LLAMA31,
        [HELLO],
        extra={"date_string": "today", "tools": TOOLS[:1], "builtin_tools": ["search", "code_interpreter", "sums"]},
    )
    assert text == (
        "<s><|start_header_id|>system<|end_header_id|>\n\nEnvironment: ipython\nTools: search, sums\n\n"
        "Today Date: today\n\nYou may call these functions:\n\n"
        '{\n    "name": "höhe",\n    "parameters": {\n        "of": "<mountain> & \'hill\'"\n    }\n}\n\n<|eot_id|>'
        "<|start_header_id|>user<|end_header_id|>\n\nHello<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    )


def test_mistral_puts_the_system_message_into_the_last_question():
    assert render(templates.MISTRAL, [SYSTEM, HELLO, HI, WHY]) == (
        "<s>[INST] Hello[/INST] Hi!</s>[INST] Be brief.\n\nWhy?\n[/INST]"
    )


def test_mistral_lists_tools_at_the_last_question():
    assert render(templates.MISTRAL, [HELLO, HI, WHY], extra={"tools": TOOLS}) == (
        '<s>[INST] Hello[/INST] Hi!</s>[AVAILABLE_TOOLS] [{"name": "höhe"}, {"name": "now"}][/AVAILABLE_TOOLS]'
        "[INST] Why?\n[/INST]"
    )


def test_mistral_wants_alternating_roles():
    with pytest.raises(TemplateRefusalError, match="must alternate") as caught:
        render(templates.MISTRAL, [HELLO, WHY])
    assert caught.value.reason == "After the optional system message, roles must alternate user/assistant/..."


def test_gemma_names_the_assistant_model():
    assert render(templates.GEMMA, [HELLO, HI, WHY]) == (
        "<s><start_of_turn>user\nHello<end_of_turn>\n<start_of_turn>model\nHi!<end_of_turn>\n"
        "<start_of_turn>user\nWhy?<end_of_turn>\n<start_of_turn>model\n"
    )


def test_gemma_refuses_a_system_message_in_its_own_words():
    with pytest.raises(
        TemplateRefusalError, match=r"^This model's chat template refuses .*: System role not supported$"
    ):
        render(templates.GEMMA, [SYSTEM, HELLO])


def test_qwen25_without_and_with_tools():
    assert render(templates.QWEN25, [HELLO]) == (
        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
        "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    )
    assert render(templates.QWEN25, [SYSTEM, HELLO, HI], extra={"tools": TOOLS}) == (
        "<|im_start|>system\nBe brief.\n\n# Tools\n\n<tools>\n"
        '{"name": "höhe", "parameters": {"of": "<mountain> & \'hill\'"}}\n{"name": "now"}\n</tools><|im_end|>\n'
        "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n Hi! <|im_end|>\n<|im_start|>assistant\n"
    )


def test_qwen3_drops_old_thoughts_and_keeps_new_ones():
    thought = {"role": "assistant", "content": "<think>\nHm.\n</think>\n\nBecause."}
    assert render(templates.QWEN3, [SYSTEM, HELLO, thought, WHY, thought], add_generation_prompt=False) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n"
        "<|im_start|>assistant\nBecause.<|im_end|>\n<|im_start|>user\nWhy?\n<|im_end|>\n"
        "<|im_start|>assistant\n<think>\nHm.\n</think>\n\nBecause.<|im_end|>\n"
    )


def test_qwen3_can_be_told_not_to_think():
    assert render(templates.QWEN3, [HELLO], extra={"enable_thinking": False}) == (
        "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    )


def test_generation_tags_are_rendered_as_their_body():
    assert render(templates.TRAINED, [HELLO, HI, WHY]) == "Q: Hello\nA:  Hi! \nQ: Why?\n\nA:"
