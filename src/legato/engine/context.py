"""A context: the KV cells of several sequences over one model, and the calls that fill them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from llama_cpp import llama_cpp as lib
from numpy.typing import NDArray

from legato.core.choices import FlashAttention, KvType
from legato.core.engine_errors import AbortedError, EngineError
from legato.engine.batch import Batch
from legato.engine.library import start_library
from legato.engine.model import Model

_GGML_TYPE_BF16 = 30
"""The binding lacks this name."""
_FLASH_ATTENTION: dict[FlashAttention, int] = {
    "auto": lib.LLAMA_FLASH_ATTN_TYPE_AUTO,
    "on": lib.LLAMA_FLASH_ATTN_TYPE_ENABLED,
    "off": lib.LLAMA_FLASH_ATTN_TYPE_DISABLED,
}


@dataclass(frozen=True, slots=True)
class ContextSettings:
    """How a context is made."""

    sequences: int
    """Sequences that can hold KV state at once."""
    cells_per_sequence: int
    """KV cells of each, in tokens. Each sequence has a buffer of its own, so that a parked one slows no other."""
    batch_tokens: int
    """Most tokens in one call."""
    threads: int
    """Threads for decode."""
    threads_prefill: int
    """Threads for prefill."""
    flash_attention: FlashAttention = "auto"
    kv_type_k: KvType = "f16"
    kv_type_v: KvType = "f16"


class Context:
    """KV state and scratch memory for evaluating sequences of one model.

    Raises:
        EngineError: The library would not make it: too little memory, or settings that do not go together.
    """

    def __init__(self, model: Model, settings: ContextSettings) -> None:
        log = start_library()
        log.errors.clear()
        params = lib.llama_context_default_params()
        params.n_ctx = settings.sequences * settings.cells_per_sequence
        params.n_seq_max = settings.sequences
        params.kv_unified = False
        params.n_batch = settings.batch_tokens
        params.n_ubatch = settings.batch_tokens
        # Only last tokens of sequences have logits. The library sizes buffers by this and aborts beyond it.
        params.n_outputs_max = min(settings.batch_tokens, max(64, settings.sequences))
        params.n_threads = settings.threads
        params.n_threads_batch = settings.threads_prefill
        params.flash_attn_type = _FLASH_ATTENTION[settings.flash_attention]
        params.type_k = _ggml_type(settings.kv_type_k)
        params.type_v = _ggml_type(settings.kv_type_v)
        params.no_perf = True
        self.model = model
        self.handle = lib.llama_init_from_model(model.handle, params)
        if not self.handle:
            raise EngineError(f"A context for {model.path.name} could not be made: {log.explain('out of memory')}.")
        self.sequences = settings.sequences
        """Sequences that can hold KV state at once."""
        self.cells_per_sequence: int = lib.llama_n_ctx_seq(self.handle)
        """KV cells of each sequence, in tokens; the library rounds the wish up to a multiple of 256."""
        self._memory = lib.llama_get_memory(self.handle)
        self._vocabulary_size = model.vocabulary.size
        self._abort_callback: Any = None

    def evaluate(self, batch: Batch) -> None:
        """Evaluate every token of the batch and keep their KV state.

        Raises:
            AbortedError: The abort callback said so.
            EngineError: The library failed; remove the sequences of the batch.
        """
        log = start_library()
        log.errors.clear()
        status: int = lib.llama_decode(self.handle, batch.native)
        if status == 0:
            return
        if status == 2:
            raise AbortedError("the call was aborted")
        reason = "there were no free KV cells" if status == 1 else log.explain(f"status {status}")
        raise EngineError(f"the library could not evaluate {len(batch)} tokens: {reason}")

    def synchronize(self) -> None:
        """Wait until what was asked of a GPU is done."""
        lib.llama_synchronize(self.handle)

    def logits(self, row: int) -> NDArray[np.float32]:
        """Logits of a row of the latest batch, shape [vocabulary]: a view, valid until the next call."""
        pointer = lib.llama_get_logits_ith(self.handle, row)
        if not pointer:
            raise EngineError(f"row {row} of the batch has no logits")
        return np.ctypeslib.as_array(pointer, shape=(self._vocabulary_size,))

    def set_threads(self, decode: int, prefill: int) -> None:
        """Change the number of threads for calls with one token a sequence, and for longer ones."""
        lib.llama_set_n_threads(self.handle, decode, prefill)

    def set_abort(self, should_abort: Callable[[], bool] | None) -> None:
        """Let a function end a running call, or take it away again.

        The library asks it before every node of its graph, from its own threads; a Python function costs about a
        microsecond each time, so set it for long calls only. It works on the CPU alone.
        """
        callback = lib.ggml_abort_callback(lambda _data: bool(should_abort and should_abort()))
        native = callback if should_abort else lib.ggml_abort_callback()
        lib.llama_set_abort_callback(self.handle, native, None)
        # The library keeps the bare pointer; the old callback is let go only now that it is replaced.
        self._abort_callback = native

    # KV state

    def length(self, sequence: int) -> int:
        """Tokens of a sequence that have KV state, counted from its start."""
        return int(lib.llama_memory_seq_pos_max(self._memory, sequence)) + 1

    def remove(self, sequence: int, start: int = 0) -> bool:
        """Free a sequence's cells from position `start` on; False if this model cannot cut its state there."""
        return bool(lib.llama_memory_seq_rm(self._memory, sequence, start, -1))

    def cut(self, sequence: int, length: int) -> bool:
        """Keep the first tokens of a sequence alone; False if the state can't be cut there, and must be cleared.

        With sliding windows, some of the tokens that the next one attends to may be gone already.
        """
        if self.length(sequence) <= length:
            return self.length(sequence) == length
        first: int = lib.llama_memory_seq_pos_min(self._memory, sequence)
        if first > max(0, length - self.model.window + 1):
            return False
        return self.remove(sequence, length)

    def copy(self, source: int, target: int) -> None:
        """Give `target` the whole KV state of `source`."""
        lib.llama_memory_seq_cp(self._memory, source, target, -1, -1)

    def state_bytes(self, sequence: int) -> int:
        """Bytes of a sequence's KV state as `save_state` gives it."""
        return int(lib.llama_state_seq_get_size(self.handle, sequence))

    def save_state(self, sequence: int, into: NDArray[np.uint8] | None = None) -> NDArray[np.uint8]:
        """A sequence's KV state as bytes, shape [n]; only an equal context of the same model can read it.

        Args:
            sequence: Whose.
            into: Memory to write it to, of at least `state_bytes`; new memory, if left out.
        """
        state = np.empty(self.state_bytes(sequence), dtype=np.uint8) if into is None else into
        written: int = lib.llama_state_seq_get_data(self.handle, _bytes_pointer(state), len(state), sequence)
        if written == 0:
            raise EngineError(f"the library could not save the state of sequence {sequence}")
        return state[:written]

    def load_state(self, sequence: int, state: NDArray[np.uint8]) -> None:
        """Replace a sequence's KV state by one that `save_state` gave.

        Raises:
            EngineError: The state is damaged or from another kind of context; the sequence is empty then.
        """
        log = start_library()
        log.errors.clear()
        read: int = lib.llama_state_seq_set_data(self.handle, _bytes_pointer(state), len(state), sequence)
        if read == 0 or read != len(state):
            self.remove(sequence)
            reason = log.explain("it is damaged or of another kind")
            raise EngineError(f"the library could not restore the state of sequence {sequence}: {reason}")

    def close(self) -> None:
        """Free the cells and scratch memory."""
        if self.handle:
            lib.llama_free(self.handle)
            self.handle = None


def _ggml_type(name: KvType) -> int:
    return _GGML_TYPE_BF16 if name == "bf16" else int(getattr(lib, f"GGML_TYPE_{name.upper()}"))


def _bytes_pointer(array: NDArray[np.uint8]) -> Any:
    return array.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
