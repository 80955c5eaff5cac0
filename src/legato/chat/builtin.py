"""Well-known chat templates, for model files that carry none."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from legato.errors import LegatoError

_CHATML = """\
{%- for message in messages -%}
    {{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{ '<|im_start|>assistant\\n' }}
{%- endif -%}
"""

_LLAMA2 = """\
{%- set ns = namespace(system='', expected='user') -%}
{%- for message in messages -%}
    {%- if message.role == 'system' -%}
        {%- if not loop.first -%}
            {{ raise_exception('The system message must be the first one') }}
        {%- endif -%}
        {%- set ns.system = '<<SYS>>\\n' + message.content.strip() + '\\n<</SYS>>\\n\\n' -%}
    {%- elif message.role != ns.expected -%}
        {{ raise_exception('The roles must alternate: user, assistant, user, assistant ...') }}
    {%- elif message.role == 'user' -%}
        {{ bos_token + '[INST] ' + ns.system + message.content.strip() + ' [/INST]' }}
        {%- set ns.system = '' -%}
        {%- set ns.expected = 'assistant' -%}
    {%- else -%}
        {{ ' ' + message.content.strip() + ' ' + eos_token }}
        {%- set ns.expected = 'user' -%}
    {%- endif -%}
{%- endfor -%}
"""

_LLAMA3 = """\
{{- bos_token -}}
{%- for message in messages -%}
    {{ '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' + message.content.strip() + '<|eot_id|>' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif -%}
"""

_GEMMA = """\
{{- bos_token -}}
{%- for message in messages -%}
    {%- if message.role == 'system' -%}
        {{ raise_exception('System role not supported') }}
    {%- elif (message.role == 'user') != (loop.index0 is even) -%}
        {{ raise_exception('The roles must alternate: user, assistant, user, assistant ...') }}
    {%- endif -%}
    {%- set role = 'model' if message.role == 'assistant' else 'user' -%}
    {{ '<start_of_turn>' + role + '\\n' + message.content.strip() + '<end_of_turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{ '<start_of_turn>model\\n' }}
{%- endif -%}
"""

_ALPACA = """\
{%- set titles = {'user': '### Instruction:\\n', 'assistant': '### Response:\\n', 'system': ''} -%}
{{- bos_token -}}
{%- for message in messages -%}
    {{ titles[message.role] + message.content.strip() }}
    {{- eos_token if message.role == 'assistant' else '' }}
    {{- '\\n\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{ titles.assistant }}
{%- endif -%}
"""

_TEMPLATES: Mapping[str, str] = MappingProxyType(
    {"chatml": _CHATML, "llama2": _LLAMA2, "llama3": _LLAMA3, "gemma": _GEMMA, "alpaca": _ALPACA}
)

BUILTIN_NAMES: tuple[str, ...] = tuple(_TEMPLATES)
"""The names that `builtin_template` knows."""


def builtin_template(name: str) -> str:
    """The source of a well-known template, for `ChatTemplate`.

    `alpaca` is the plain one: headings and no special tokens, for models that were trained on no chat format.

    Raises:
        LegatoError: There is none of that name.
    """
    if name not in _TEMPLATES:
        names = ", ".join(BUILTIN_NAMES)
        raise LegatoError(
            f"There is no chat template file {name!r}, nor a built-in one of that name; those are {names}."
        )
    return _TEMPLATES[name]
