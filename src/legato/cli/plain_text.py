"""Text from others, made safe to print: names and errors come from clients, files and servers."""

from __future__ import annotations

import io
import sys
import unicodedata

from rich.text import Text

_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories that move the cursor, turn the direction, break lines, or are no characters."""


def plain(text: str) -> str:
    r"""The text with whatever would steer the terminal spelt out, such as `\x1b`."""
    return "".join(repr(char)[1:-1] if unicodedata.category(char) in _UNSEEN else char for char in text)


def plain_text(text: str, style: str = "") -> Text:
    """The same for rich, which then looks for no markup in it."""
    return Text(plain(text), style=style)


def replace_what_is_no_text() -> None:
    """Bytes that are no text become U+FFFD as they come in, and what the terminal can't show "?" as it goes out."""
    for stream in (sys.stdin, sys.stdout):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
