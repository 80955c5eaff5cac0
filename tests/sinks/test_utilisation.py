"""How busy the machine is."""

from __future__ import annotations

import logging
import time
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from legato.sinks.utilisation import UtilisationMonitor, nvidia_gpus


class NvmlError(Exception):
    pass


class FakeNvml:
    """NVIDIA's library with two cards."""

    NVMLError = NvmlError

    def __init__(self, *, driver: bool = True) -> None:
        self.driver = driver

    def nvmlInit(self) -> None:  # noqa: N802 - its name
        if not self.driver:
            raise NvmlError("Driver Not Loaded")

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:  # noqa: N802
        if not self.driver:
            raise NvmlError("GPU is lost")
        return SimpleNamespace(gpu=50 + handle)


def burn_cpu(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_the_first_sample_knows_no_cpu_use_and_the_next_does() -> None:
    utilisation = UtilisationMonitor()
    first = utilisation.sample()
    burn_cpu(0.2)
    second = utilisation.sample()
    assert first.cpu_percent is None
    assert second.cpu_percent is not None
    assert 0 < second.cpu_percent <= 100


def test_memory_of_the_machine() -> None:
    assert 0 < UtilisationMonitor().sample().memory_percent < 100


def test_two_samples_at_once_are_no_division_by_zero() -> None:
    utilisation = UtilisationMonitor()
    for _ in range(20):
        utilisation.sample()


def test_of_several_gpus_the_busiest_is_shown() -> None:
    assert UtilisationMonitor(nvidia_gpus(FakeNvml)).sample().gpu_percent == 51.0


def test_without_gpus_there_is_nothing_to_tell() -> None:
    assert UtilisationMonitor().sample().gpu_percent is None


def test_a_missing_package_is_said(caplog: pytest.LogCaptureFixture) -> None:
    def missing() -> NoReturn:
        raise ModuleNotFoundError("No module named 'pynvml'")

    caplog.set_level(logging.INFO)
    assert nvidia_gpus(missing) is None
    assert "pip install 'legato[nvidia]'" in caplog.text


def test_a_missing_driver_is_said(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    assert nvidia_gpus(lambda: FakeNvml(driver=False)) is None
    assert "Driver Not Loaded" in caplog.text


def test_a_driver_that_fails_later_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    nvml = FakeNvml()
    utilisation = UtilisationMonitor(nvidia_gpus(lambda: nvml))
    assert utilisation.sample().gpu_percent is not None
    nvml.driver = False
    assert utilisation.sample().gpu_percent is None
    assert utilisation.sample().gpu_percent is None
    assert caplog.text.count("GPU is lost") == 1


def test_finding_real_gpus_never_fails() -> None:
    gpus = nvidia_gpus()
    assert gpus is None or gpus() is not None
