"""The machine that the load generator runs on, in a line."""

from __future__ import annotations

import platform
from pathlib import Path

import psutil


def describe() -> str:
    """CPU, cores, memory and system."""
    cores = psutil.cpu_count(logical=False)
    threads = psutil.cpu_count()
    memory_gib = psutil.virtual_memory().total / 2**30
    counts = f"{threads} cores" if cores in (None, threads) else f"{cores} cores, {threads} threads"
    return f"{_cpu_name()}, {counts}, {memory_gib:.0f} GiB, {platform.system()} {platform.release()}"


def _cpu_name() -> str:
    """As the system calls it; at least its architecture."""
    try:
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name" and value.strip():
                return value.strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
