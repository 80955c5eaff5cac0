"""How busy the machine is: CPU, memory and NVIDIA GPUs."""

from __future__ import annotations

import importlib
import logging
import threading
from collections.abc import Callable
from typing import Any

import msgspec
import psutil

logger = logging.getLogger(__name__)


class GpuUse(msgspec.Struct, frozen=True):
    """One GPU, with all that runs on it."""

    index: int
    name: str
    utilisation_percent: float
    """Part of the last moment in which something ran on it."""
    memory_used_bytes: int
    memory_total_bytes: int


class Sample(msgspec.Struct, frozen=True):
    """The machine at one moment."""

    cpu_percent: float | None
    """Since the sample before, of all CPUs together; None in the first sample."""
    memory_used_bytes: int
    """What is not available to programs."""
    memory_total_bytes: int
    gpus: list[GpuUse] | None
    """None if GPUs cannot be asked."""


class UtilisationMonitor:
    """Samples the machine; takes well under a millisecond without GPUs. May be used from any thread.

    Args:
        gpus: The GPUs, for example `NvidiaGpus.find()`; None if there are none to ask.
    """

    def __init__(self, gpus: NvidiaGpus | None = None) -> None:
        self._gpus = gpus
        self._before: tuple[float, float] | None = None
        """Seconds of all CPUs at the sample before: busy, and altogether."""
        self._lock = threading.Lock()

    def sample(self) -> Sample:
        """The machine now. CPU use is the mean since the sample before."""
        with self._lock:
            memory = psutil.virtual_memory()
            return Sample(
                cpu_percent=self._cpu_percent(),
                memory_used_bytes=memory.total - memory.available,
                memory_total_bytes=memory.total,
                gpus=self._gpu_uses(),
            )

    def _cpu_percent(self) -> float | None:
        before, self._before = self._before, _cpu_times()
        if before is None:
            return None
        busy_s, passed_s = (now - then for now, then in zip(self._before, before, strict=True))
        # Two samples may lie within one tick of the kernel's count.
        return round(min(100.0, max(0.0, busy_s / passed_s * 100)), 1) if passed_s > 0 else 0.0

    def _gpu_uses(self) -> list[GpuUse] | None:
        if self._gpus is None:
            return None
        try:
            return self._gpus.read()
        except Exception as error:  # a driver's failure must not become the server's
            logger.warning("GPU use is no longer shown: asking the driver failed (%s).", error)
            self._gpus = None
            return None


class NvidiaGpus:
    """NVIDIA GPUs, through NVIDIA's library.

    Args:
        nvml: The module `pynvml`, ready to be asked.
    """

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
        self._names = [_text(nvml.nvmlDeviceGetName(handle)) for handle in self._handles]

    @classmethod
    def find(cls, load: Callable[[], Any] = lambda: importlib.import_module("pynvml")) -> NvidiaGpus | None:
        """The GPUs of this machine; None, and a line in the log, if they cannot be asked.

        Args:
            load: Gives the module.
        """
        try:
            nvml = load()
        except ImportError:
            logger.info("GPU use is not shown: pip install 'legato[nvidia]' adds it for NVIDIA cards.")
            return None
        try:
            nvml.nvmlInit()
            return cls(nvml)
        except nvml.NVMLError as error:
            logger.info("GPU use is not shown: there is no NVIDIA driver to ask (%s).", error)
            return None

    def read(self) -> list[GpuUse]:
        """All of them, now."""
        uses: list[GpuUse] = []
        for index, (handle, name) in enumerate(zip(self._handles, self._names, strict=True)):
            memory = self._nvml.nvmlDeviceGetMemoryInfo(handle)
            rates = self._nvml.nvmlDeviceGetUtilizationRates(handle)
            uses.append(GpuUse(index, name, float(rates.gpu), int(memory.used), int(memory.total)))
        return uses


def _cpu_times() -> tuple[float, float]:
    """Seconds of all CPUs since the start: busy, and altogether."""
    times = psutil.cpu_times()._asdict()
    # Linux counts a guest's time as the user's, too.
    total_s = sum(times.values()) - times.get("guest", 0.0) - times.get("guest_nice", 0.0)
    return total_s - times["idle"] - times.get("iowait", 0.0), total_s


def _text(name: str | bytes) -> str:
    """Older versions of NVIDIA's library gave bytes."""
    return name.decode(errors="replace") if isinstance(name, bytes) else name
