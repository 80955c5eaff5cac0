"""Continuing the last answer: where in the prompt text the assistant's own last words end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from legato.chat.message_error import TemplateError


def mark(messages: Sequence[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], str]:
    """Puts a mark behind the content of the last message, to be found again in what the template writes.

    Returns:
        The messages, and the mark, which no other text in them holds.

    Raises:
        TemplateError: The last message is not text from the assistant.
    """
    last = messages[-1] if messages else {}
    content = last.get("content")
    if last.get("role") != "assistant" or not isinstance(content, str):
        raise TemplateError("Only an answer can be continued: the last message must be text from the assistant.")
    mark = _unused(str([dict(message) for message in messages]))
    return [*(dict(message) for message in messages[:-1]), {**last, "content": content + mark}], mark


def cut(prompt: str, content: str, mark: str) -> str:
    """Cuts the prompt text where the marked content ends.

    Spaces before the content may be gone: many templates trim what they are given.

    Raises:
        TemplateError: The template has changed the content, left it out or printed it twice.
    """
    before, *rest = prompt.split(mark)
    if len(rest) != 1 or not before.endswith(content.lstrip()):
        raise TemplateError(
            "This model's chat template changes the last answer's text, so it cannot be continued; "
            "leave continue_final_message out."
        )
    return before


def _unused(text: str) -> str:
    number = 0
    while (mark := f"[LegatoContinuesHere{number}]") in text:
        number += 1
    return mark
