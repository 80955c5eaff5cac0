"""A model file loaded by the library."""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from llama_cpp import llama_cpp as lib

from legato.engine.library import start_library
from legato.engine.vocabulary import Vocabulary
from legato.errors import LegatoError

logger = logging.getLogger(__name__)


class ModelLoadError(LegatoError):
    """The library would not load the model; the text carries its reason."""


class Model:
    """A model's weights and vocabulary, or its vocabulary alone.

    Args:
        path: A GGUF file; for a split model its first part.
        gpu_layers: Layers to keep on the GPU; -1 is all that fit the build.
        vocabulary_only: Read no weights: enough to tokenize, quick and small.
        on_progress: Called with the share of the weights that is loaded, 0 to 1.

    Raises:
        ModelLoadError: The library refused the file.
    """

    def __init__(
        self,
        path: Path,
        *,
        gpu_layers: int = -1,
        vocabulary_only: bool = False,
        on_progress: Callable[[float], None] | None = None,
    ) -> None:
        log = start_library()
        log.errors.clear()
        params = lib.llama_model_default_params()
        params.n_gpu_layers = gpu_layers
        params.vocab_only = vocabulary_only

        def progress(share: float, _user_data: Any) -> bool:
            if on_progress is not None:
                on_progress(share)
            return True

        # Held by a local name: the library calls it until the load returns.
        callback = lib.llama_progress_callback(progress)
        params.progress_callback = callback
        self.path = path
        """The file that was loaded."""
        self.handle = lib.llama_model_load_from_file(str(path).encode(), params)
        if not self.handle:
            reason = log.explain("the library gave no reason")
            raise ModelLoadError(f"{path.name} could not be loaded: {reason}.")
        self.vocabulary = Vocabulary(lib.llama_model_get_vocab(self.handle))
        """The model's vocabulary; use it no longer than the model."""
        self.context_length: int = lib.llama_model_n_ctx_train(self.handle)
        """Tokens of context that the model was trained on."""
        self.window: int = lib.llama_model_n_swa(self.handle)
        """Tokens of the sliding window that some layers attend to; 0 if all attend to everything."""
        self.layers: int = lib.llama_model_n_layer(self.handle)
        """Number of layers."""
        self.parameters: int = lib.llama_model_n_params(self.handle)
        """Number of weights."""
        self.size_bytes: int = lib.llama_model_size(self.handle)
        """Bytes of all tensors."""

    @property
    def kv_numbers_k(self) -> int:
        """Numbers that the keys of one token's KV state take, over all layers (an estimate for uneven layers)."""
        return self._kv_numbers("key_length")

    @property
    def kv_numbers_v(self) -> int:
        """Numbers that the values of one token's KV state take, over all layers (an estimate for uneven layers)."""
        return self._kv_numbers("value_length")

    def _kv_numbers(self, length_key: str) -> int:
        architecture = self.metadata("general.architecture")
        heads: int = lib.llama_model_n_head(self.handle)
        heads_kv: int = lib.llama_model_n_head_kv(self.handle)
        length = self.metadata(f"{architecture}.attention.{length_key}")
        head_size = int(length) if length else lib.llama_model_n_embd(self.handle) // max(1, heads)
        return self.layers * heads_kv * head_size

    @property
    def description(self) -> str:
        """The library's short description: architecture, size and weight type."""
        buffer = ctypes.create_string_buffer(256)
        lib.llama_model_desc(self.handle, buffer, len(buffer))
        return buffer.value.decode("utf-8", "replace")

    @property
    def chat_template(self) -> str | None:
        """The Jinja chat template that the file carries, or None."""
        template = lib.llama_model_chat_template(self.handle, None)
        return template.decode("utf-8", "replace") if template else None

    @property
    def can_generate(self) -> bool:
        """True if the model writes text from a prompt: a decoder without an encoder before it."""
        return bool(lib.llama_model_has_decoder(self.handle)) and not lib.llama_model_has_encoder(self.handle)

    def metadata(self, key: str) -> str | None:
        """The value of one of the file's scalar metadata keys as text, or None if it has no such key."""
        size = lib.llama_model_meta_val_str(self.handle, key.encode(), None, 0)
        if size < 0:
            return None
        buffer = ctypes.create_string_buffer(size + 1)
        lib.llama_model_meta_val_str(self.handle, key.encode(), buffer, len(buffer))
        return buffer.value.decode("utf-8", "replace")

    def close(self) -> None:
        """Free the weights. Contexts made from the model must be closed before."""
        if self.handle:
            lib.llama_model_free(self.handle)
            self.handle = None
