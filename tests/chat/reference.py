"""The plain sandbox of Jinja, set up as Hugging Face's `apply_chat_template` does it: no budgets, no rewriting."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment


def render(source: str, messages: Sequence[Mapping[str, Any]], now: datetime, **variables: Any) -> str:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )

    def refuse(message: str) -> None:
        raise TemplateError(message)

    def to_json(value: Any, ensure_ascii=False, indent=None, separators=None, sort_keys=False) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = now.strftime
    given = {"tools": None, "documents": None, "bos_token": "<s>", "eos_token": "</s>", **variables}
    return environment.from_string(source).render(messages=messages, **given)
