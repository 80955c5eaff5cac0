"""A model's chat template: compiled once, rendered for each request."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from jinja2 import TemplateSyntaxError

from legato.chat import continuation
from legato.chat.builtin import builtin_template
from legato.chat.environment import ChatEnvironment
from legato.chat.message_error import TemplateError
from legato.errors import LegatoError

LONGEST_OUTPUT = 2**26
"""Characters that a rendering may have."""
DEADLINE_S = 10.0
"""Time that a rendering may take; it is looked at whenever the template prints something."""

_RESERVED = frozenset(
    {"messages", "add_generation_prompt", "bos_token", "eos_token", "raise_exception", "strftime_now"}
)
_NOTHING: Mapping[str, Any] = MappingProxyType({})


def read_template(name: str) -> str:
    """The text of the template that a person chose: a Jinja file, or the name of a built-in one.

    Raises:
        LegatoError: There is no such file or name, it can't be read, is empty, or does not compile.
    """
    path = Path(name)
    if not path.is_file():
        return builtin_template(name)
    try:
        source = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise LegatoError(f"The chat template {name} can't be read: {error}.") from error
    if not source.strip():
        raise LegatoError(f"The chat template {name} is empty.")
    try:
        ChatTemplate(source, bos_token="", eos_token="")
    except TemplateError as error:
        raise LegatoError(f"{name}: {error}.") from error
    return source


class ChatTemplate:
    """A Jinja template from a model file, rendered in a sandbox. Several threads may render at a time.

    It sees what Hugging Face's `apply_chat_template` gives it. The texts of the tokens that begin and end a sequence
    are empty where the model has none.

    Raises:
        TemplateError: It does not compile.
    """

    def __init__(self, source: str, *, bos_token: str, eos_token: str) -> None:
        self._tokens = {"bos_token": bos_token, "eos_token": eos_token}
        try:
            self._template = ChatEnvironment().from_string(source)
        except TemplateSyntaxError as error:
            raise TemplateError(f"The chat template does not compile: line {error.lineno}: {error.message}") from error
        except Exception as error:  # whatever a hostile source makes the compiler do
            raise TemplateError(f"The chat template does not compile: {_reason(error)}") from error

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        now: datetime | None = None,
        extra: Mapping[str, Any] = _NOTHING,
    ) -> str:
        """Write the prompt text of a conversation, which is as `read_messages` returns it.

        Templates that begin it with `bos_token` do so themselves.

        Args:
            messages: The conversation.
            add_generation_prompt: End where the assistant's next answer begins.
            continue_final_message: End exactly behind the last message's content instead, which must be the
                assistant's, for the model to go on with.
            now: The time that the template is told; the local time, if left out.
            extra: More variables for the template, such as `enable_thinking`.

        Raises:
            TemplateRefusalError: The template refuses the messages, such as a system prompt that it has no place for.
            TemplateError: The template fails, or the arguments do not fit.
        """
        if taken := sorted(_RESERVED & extra.keys()):
            raise TemplateError(f"The template variable {taken[0]!r} can't be set: it is the server's own.")
        given, mark = continuation.mark(messages) if continue_final_message else (list(map(dict, messages)), "")
        variables = {
            "tools": None,
            "documents": None,
            **extra,
            **self._tokens,
            "messages": given,
            "add_generation_prompt": add_generation_prompt and not continue_final_message,
            "strftime_now": (now or datetime.now()).strftime,
        }
        text = self._run(variables)
        return continuation.cut(text, messages[-1]["content"], mark) if continue_final_message else text

    def _run(self, variables: dict[str, Any]) -> str:
        pieces: list[str] = []
        length = 0
        deadline = time.monotonic() + DEADLINE_S
        try:
            for piece in self._template.generate(variables):
                pieces.append(piece)
                length += len(piece)
                if length > LONGEST_OUTPUT or time.monotonic() > deadline:
                    raise TemplateError("This model's chat template writes without end.")
            text = "".join(pieces)
            text.encode()
        except TemplateError:
            raise
        except Exception as error:  # a template can raise whatever Python can
            raise TemplateError(f"This model's chat template fails: {_reason(error)}") from error
        return text


def _reason(error: Exception) -> str:
    """Python's words for it, short, and never empty."""
    return (str(error) or type(error).__name__)[:300]
