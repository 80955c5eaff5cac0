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
    return f"{cpu_name()}, {counts}, {memory_gib:.0f} GiB, {platform.system()} {platform.release()}"


def cpuinfo() -> dict[str, str]:
    """The first CPU's entry of Linux's /proc/cpuinfo; empty elsewhere."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").partition("\n\n")[0].splitlines()
    except OSError:
        return {}
    return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


def cpu_name() -> str:
    """As the system calls it; at least its architecture."""
    return cpuinfo().get("model name") or platform.processor() or platform.machine()
