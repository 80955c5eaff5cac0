"""What hardware and library there are, what is slow about this set-up, and how to mend it."""

from __future__ import annotations

import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from legato import __version__
from legato.bench.machine import cpu_name, cpuinfo
from legato.engine.library import BuildInfo, build_info
from legato.errors import LegatoError
from legato.models import GgufHeader, check_gguf, default_store
from legato.models.disk import readable_bytes
from legato.settings import config_file, load_settings
from legato.worker.sizing import default_threads, usable_cpus

REBUILD = "pip install --force-reinstall --no-cache-dir --no-binary llama-cpp-python llama-cpp-python=={}"
CPU_FEATURES = {"avx2": "AVX2", "avx512f": "AVX512", "avx512_vnni": "AVX512_VNNI", "fma": "FMA", "f16c": "F16C"}
"""Instruction sets that matter, as Linux names them and as the library does."""
WITHOUT_AMX = "CFLAGS=-U__AMX_INT8__ CXXFLAGS=-U__AMX_INT8__"
"""Leaves out the library's kernels for AMX: compilers drop the setting of their tile configuration, and the first call
ends in a segmentation fault (ggml-org/llama.cpp#26954).
"""
REPACKED_TYPES = frozenset({"Q4_0", "Q8_0", "Q4_K_S", "Q4_K_M", "Q2_K", "IQ4_NL", "F16", "BF16", "F32", "MXFP4_MOE"})
"""Weight types that the library has fast kernels for on CPUs, either repacked or plain."""


Fact = tuple[str, str]
"""What it is about, and what was found."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that makes this set-up slow or unable, and what to do about it."""

    what: str
    remedy: str


def examine(model: str | None) -> tuple[list[Fact], list[Finding]]:
    """Look at this machine, the library, and a model: the one that would be served if None is named."""
    build = build_info()
    facts = list(_facts(build))
    return facts, [*machine_findings(build), *_model_findings(model, facts)]


def _facts(build: BuildInfo) -> Iterator[Fact]:
    memory = psutil.virtual_memory()
    yield "Legato", f"{__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    yield "CPU", f"{cpu_name()}: {usable_cpus()} usable, {default_threads()} threads by default"
    yield "Memory", f"{readable_bytes(memory.available)} free of {readable_bytes(memory.total)}"
    yield "Library", f"llama-cpp-python {build.version}: {', '.join(build.features)}"
    yield "GPU", "the library can use one" if build.can_offload else "this build of the library uses the CPU only"
    yield "Settings", str(config_file() or "no file; defaults")
    yield "Store", str(default_store().root)


def machine_findings(build: BuildInfo) -> Iterator[Finding]:
    """About the machine, and about the library for it."""
    rebuild = REBUILD.format(build.version)
    has = set(cpuinfo().get("flags", "").split())
    missing = [name for flag, name in CPU_FEATURES.items() if flag in has and name not in build.features]
    if missing:
        yield Finding(
            f"The library was built without {', '.join(missing)}, which this CPU has: reading prompts is slower than "
            "it could be.",
            f"Build it for this machine: CMAKE_ARGS=-DGGML_NATIVE=ON {WITHOUT_AMX} {rebuild}",
        )
    if "AMX_INT8" in build.features:
        yield Finding(
            "The library was built with its kernels for AMX, which crash on CPUs that have it: models may not load.",
            f"Build it without them: CMAKE_ARGS=-DGGML_NATIVE=ON {WITHOUT_AMX} {rebuild}",
        )
    if not build.can_offload and shutil.which("nvidia-smi"):
        yield Finding(
            "There is an NVIDIA driver, and the library was built without CUDA: everything runs on the CPU.",
            f"Build it with CUDA (the CUDA toolkit is needed): CMAKE_ARGS=-DGGML_CUDA=ON {rebuild}",
        )
    if not build.can_offload and sys.platform == "darwin" and platform.machine() == "arm64":
        yield Finding(
            "The library was built without Metal: everything runs on the CPU.",
            f"Build it with Metal: CMAKE_ARGS=-DGGML_METAL=ON {rebuild}",
        )
    quota = _cgroup_cpus()
    if quota is not None and quota < usable_cpus() - 0.01:
        yield Finding(
            f"This container may use {quota:g} CPUs of the {usable_cpus()} it sees: threads will wait for each other.",
            f"Serve with --threads {max(1, int(quota))}, or give the container whole CPUs.",
        )
    busy = psutil.cpu_percent(interval=0.5)
    if busy > 50:
        yield Finding(
            f"Other programs use {busy:.0f} % of the CPUs right now: every answer will be slower and less even.",
            "End them, or leave them CPUs of their own: legato serve --threads with a lower number.",
        )


def _cgroup_cpus() -> float | None:
    """CPUs that a Linux container may use, None if there is no limit."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text("ascii").split()
    except (OSError, ValueError):
        return None
    return None if quota == "max" else int(quota) / int(period)


def _model_findings(reference: str | None, facts: list[Fact]) -> Iterator[Finding]:
    try:
        wanted = reference or load_settings().model
        local = default_store().find(wanted)
        if local is None:
            facts.append(("Model", f"{wanted}: not here yet"))
            yield Finding(f"The model {wanted} is not in the store.", f"Bring it: legato pull {wanted}")
            return
        header = check_gguf(local.path)
    except LegatoError as error:
        facts.append(("Model", "can't be looked at"))
        yield Finding(str(error), "Mend that first.")
        return
    kind = header.file_type_name or "unknown weight type"
    facts.append(("Model", f"{local.name}: {header.architecture}, {kind}, {readable_bytes(local.size_bytes)}"))
    yield from _file_findings(header, local.name, local.size_bytes)


def _file_findings(header: GgufHeader, name: str, size_bytes: int) -> Iterator[Finding]:
    kind = header.file_type_name
    if not build_info().can_offload and kind is not None and kind not in REPACKED_TYPES:
        yield Finding(
            f"{name} has {kind} weights, for which the library has no fast kernel on CPUs: prompts are read slower "
            "than they could be.",
            "Choose a file with Q4_0, Q4_K_M or Q8_0 weights of the same model, if there is one.",
        )
    if not header.has_chat_template:
        yield Finding(
            f"{name} has no chat template: it was made to continue text, not to chat.",
            "Use /v1/completions, or serve it with --chat-template chatml if you know that it was trained so.",
        )
    free = psutil.virtual_memory().available
    if not build_info().can_offload and size_bytes > 0.9 * free:
        yield Finding(
            f"{name} takes {readable_bytes(size_bytes)}, and {readable_bytes(free)} of memory are free: the disk will "
            "be read for every token.",
            "Choose a smaller file, or end other programs.",
        )
    context = header.context_length
    if context is not None and context < 4096:
        yield Finding(
            f"{name} was trained on {context} tokens of context: long documents will not fit.",
            "Choose a model with a longer context if you want to paste documents.",
        )
