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

GpuUse = Callable[[], float | None]
"""Tells the use of the busiest GPU, in percent; None if there are none."""


class Sample(msgspec.Struct, frozen=True):
    """How busy the machine is, in percent."""

    cpu_percent: float | None
    """Since the sample before, of all CPUs together; None in the first sample."""
    memory_percent: float
    """What is not available to programs."""
    gpu_percent: float | None
    """Part of the last moment in which something ran on the busiest GPU; None if there is none that can be asked."""


class UtilisationMonitor:
    """Samples the machine; takes well under a millisecond without GPUs. May be used from any thread."""

    def __init__(self, gpu_use: GpuUse | None = None) -> None:
        self._gpu_use = gpu_use
        self._before: tuple[float, float] | None = None
        """Seconds of all CPUs at the sample before: busy, and altogether."""
        self._lock = threading.Lock()

    def sample(self) -> Sample:
        """The machine now. CPU use is the mean since the sample before."""
        with self._lock:
            return Sample(self._cpu_percent(), psutil.virtual_memory().percent, self._gpu_percent())

    def _cpu_percent(self) -> float | None:
        before, self._before = self._before, _cpu_times()
        if before is None:
            return None
        busy_s, passed_s = (now - then for now, then in zip(self._before, before, strict=True))
        # Two samples may lie within one tick of the kernel's count.
        return round(min(100.0, max(0.0, busy_s / passed_s * 100)), 1) if passed_s > 0 else 0.0

    def _gpu_percent(self) -> float | None:
        if self._gpu_use is None:
            return None
        try:
            return self._gpu_use()
        except Exception as error:  # a driver's failure must not become the server's
            logger.warning("GPU use is no longer shown: asking the driver failed (%s).", error)
            self._gpu_use = None
            return None


def nvidia_gpus(load: Callable[[], Any] = lambda: importlib.import_module("pynvml")) -> GpuUse | None:
    """The use of this machine's GPUs; None, and a line in the log, if the module that `load` gives cannot be asked."""
    try:
        nvml = load()
    except ImportError:
        logger.info("GPU use is not shown: pip install 'legato[nvidia]' adds it for NVIDIA cards.")
        return None
    try:
        nvml.nvmlInit()
        gpus = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
    except nvml.NVMLError as error:
        logger.info("GPU use is not shown: there is no NVIDIA driver to ask (%s).", error)
        return None
    return lambda: max((float(nvml.nvmlDeviceGetUtilizationRates(gpu).gpu) for gpu in gpus), default=None)


def _cpu_times() -> tuple[float, float]:
    """Seconds of all CPUs since the start: busy, and altogether."""
    times = psutil.cpu_times()._asdict()
    # Linux counts a guest's time as the user's, too.
    total_s = sum(times.values()) - times.get("guest", 0.0) - times.get("guest_nice", 0.0)
    return total_s - times["idle"] - times.get("iowait", 0.0), total_s
