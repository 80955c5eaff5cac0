"""Choices that a worker makes when the settings leave them open: threads, context, sequences."""

from __future__ import annotations

import os
from pathlib import Path

import psutil

from legato.core.choices import FlashAttention, KvType, PolicyName
from legato.engine.library import build_info
from legato.engine.model import Model
from legato.errors import LegatoError

DEFAULT_CONTEXT_TOKENS = 8192
DEFAULT_PARALLEL = 4
MEMORY_SHARE = 0.5
"""Share of the free memory that KV cells may take when their number is left open."""

CACHE_MEMORY_SHARE = 1 / 8
MOST_CACHE_MEMORY = 4 << 30
"""Share of the free memory, and bytes, that remembered prompts take at most if nothing else is said."""
CACHE_DISK_SHARE = 1 / 10
MOST_CACHE_DISK = 8 << 30
"""The same of the free disk space."""

_BYTES_PER_NUMBER: dict[KvType, float] = {
    "f32": 4,
    "f16": 2,
    "bf16": 2,
    "q8_0": 34 / 32,
    "q5_1": 24 / 32,
    "q5_0": 22 / 32,
    "q4_1": 20 / 32,
    "q4_0": 18 / 32,
    "iq4_nl": 18 / 32,
}


def usable_cpus() -> int:
    """CPUs that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def default_threads() -> int:
    """One thread a physical core, for hyper-threads share the units that inference is bound by.

    On very small machines, where leaving half of four CPUs idle costs more, one a CPU.
    """
    cpus = usable_cpus()
    cores = psutil.cpu_count(logical=False) or cpus
    return cpus if cpus <= 4 else min(cpus, cores)


def default_chunk(*, on_gpu: bool) -> int:
    """Prompt tokens a step: enough to keep the hardware busy, few enough that a running answer hardly waits.

    A CPU prefills 64 at a time about as fast as more; a GPU is idle most of the time below some hundreds.
    """
    return 512 if on_gpu else 64


def default_flash_attention(policy: PolicyName, kv_type_v: KvType, *, on_gpu: bool) -> FlashAttention:
    """The library's own choice on a GPU; off on a CPU, whose kernel prefills the short chunks of `chunked` slower so.

    Quantized values need it on, whatever it costs.
    """
    if on_gpu:
        return "auto"
    is_quantized = kv_type_v not in ("f32", "f16", "bf16")
    return "on" if is_quantized or policy == "whole" else "off"


def flash_tile(flash_attention: FlashAttention, *, on_gpu: bool) -> int:
    """Tokens that the attention kernel takes at once; FlashAttention on CPUs works in tiles of 64."""
    return 64 if flash_attention != "off" and not on_gpu else 1


def kv_bytes_per_token(model: Model, type_k: KvType, type_v: KvType) -> float:
    """Estimated bytes of KV state of one token."""
    return model.kv_numbers_k * _BYTES_PER_NUMBER[type_k] + model.kv_numbers_v * _BYTES_PER_NUMBER[type_v]


def choose_context(wanted: int | None, trained: int) -> int:
    """KV cells of one sequence.

    Raises:
        LegatoError: More are wanted than the model was trained on.
    """
    if wanted is None:
        return min(trained or DEFAULT_CONTEXT_TOKENS, DEFAULT_CONTEXT_TOKENS)
    if trained and wanted > trained:
        raise LegatoError(
            f"A context of {wanted} tokens was asked for, and this model was trained on {trained}; "
            f"set ctx to at most {trained}."
        )
    return wanted


def choose_parallel(wanted: int | None, bytes_per_sequence: float) -> int:
    """Sequences at once: as wanted, or as many as half of the free memory holds, at most four.

    Raises:
        LegatoError: The wanted number needs more memory than is free.
    """
    # The memory of a GPU is the library's to judge; it refuses a context that does not fit.
    free = float("inf") if build_info().can_offload else float(psutil.virtual_memory().available)
    if wanted is None:
        fitting = DEFAULT_PARALLEL if bytes_per_sequence == 0 else MEMORY_SHARE * free / bytes_per_sequence
        return int(max(1, min(DEFAULT_PARALLEL, fitting)))
    if wanted * bytes_per_sequence > free:
        raise LegatoError(
            f"{wanted} sequences need {wanted * bytes_per_sequence / 2**30:.1f} GiB for their KV cells, and "
            f"{free / 2**30:.1f} GiB of memory are free; lower parallel or ctx."
        )
    return wanted


def choose_cache_memory(wanted: int | None) -> int:
    """Bytes of memory for remembered prompts."""
    if wanted is not None:
        return wanted
    return int(min(MOST_CACHE_MEMORY, CACHE_MEMORY_SHARE * psutil.virtual_memory().available))


def choose_cache_disk(wanted: int | None, folder: Path) -> int:
    """Bytes of disk space for remembered prompts; their folder need not be there yet."""
    if wanted is not None:
        return wanted
    there = next((path for path in (folder, *folder.parents) if path.is_dir()), None)
    free = psutil.disk_usage(str(there)).free if there is not None else 0
    return int(min(MOST_CACHE_DISK, CACHE_DISK_SHARE * free))
