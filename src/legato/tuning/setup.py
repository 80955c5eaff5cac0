"""How the engine is set up: what is measured for, tuned, and remembered together."""

from __future__ import annotations

import msgspec

from legato.core.choices import FlashAttention, KvType


class EngineSetup(msgspec.Struct, frozen=True):
    """The settings of the engine that change what a library call costs."""

    flash_attention: FlashAttention
    kv_type_k: KvType
    kv_type_v: KvType
    threads: int
    """Threads for decode."""
    threads_prefill: int
    """Threads for prefill."""
    batch_tokens: int
    """Most tokens in one library call."""
