"""How the served model reads, from its file: the one place of the server that opens one with the library."""

from __future__ import annotations

from pathlib import Path

from legato.chat.template import ChatTemplate
from legato.engine.model import Model
from legato.server.prompting import Language


def read_language(model_name: str, path: Path, chat_template: str | None) -> Language:
    """Read a model's vocabulary and chat template, or another Jinja template's text instead of the model's own.

    Raises:
        LegatoError: The file can't be loaded, or the template does not compile.
    """
    model = Model(path, vocabulary_only=True)
    vocabulary = model.vocabulary
    bos_text, eos_text = (
        vocabulary.piece(token, special=True).decode("utf-8", "replace") if token >= 0 else ""
        for token in (vocabulary.bos, vocabulary.eos)
    )
    source = model.chat_template if chat_template is None else chat_template
    template = ChatTemplate(source, bos_token=bos_text, eos_token=eos_text) if source else None
    # The model is kept by the vocabulary's handle for the life of the process.
    return Language(model_name, vocabulary, template, bos_text)
