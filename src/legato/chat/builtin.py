"""Well-known chat templates, for model files that carry none: the files in `templates`."""

from __future__ import annotations

from pathlib import Path

from legato.errors import LegatoError

BUILTIN_NAMES = ("chatml", "llama2", "llama3", "gemma", "alpaca")
"""The names that `builtin_template` knows."""
_FOLDER = Path(__file__).parent / "templates"


def builtin_template(name: str) -> str:
    """The source of a well-known template, for `ChatTemplate`.

    `alpaca` is the plain one: headings and no special tokens, for models that were trained on no chat format.

    Raises:
        LegatoError: There is none of that name.
    """
    if name not in BUILTIN_NAMES:
        names = ", ".join(BUILTIN_NAMES)
        raise LegatoError(
            f"There is no chat template file {name!r}, nor a built-in one of that name; those are {names}."
        )
    return (_FOLDER / f"{name}.jinja").read_text("utf-8")
