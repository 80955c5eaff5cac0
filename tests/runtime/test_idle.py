"""An idle server blocks; it does not poll."""

from __future__ import annotations

import time
from pathlib import Path

import psutil
import pytest

from tests.support.asking import completion
from tests.support.server import LegatoProcess

QUIET_S = 2.0
LOOKS = 3
CPU_S = 0.1
WAKE_UPS = 4
"""Two a second would be polling already; a few are a garbage collector's or a timer's that ran out."""


def processes(server: LegatoProcess) -> dict[str, psutil.Process]:
    return {"server": psutil.Process(server.process.pid), "worker": server.worker()}


def cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def wake_ups(process: psutil.Process) -> int:
    """How often any of its threads has blocked so far."""
    total = 0
    for status in Path(f"/proc/{process.pid}/task").glob("*/status"):
        fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
        total += int(fields["voluntary_ctxt_switches"])
    return total


@pytest.fixture(scope="module")
def quiet(server: LegatoProcess) -> dict[str, tuple[float, int]]:
    """CPU time and wake-ups of each process in quiet seconds, soon after an answer."""
    completion(server.openai(), "Hi", max_tokens=1)
    found = processes(server)
    for _ in range(LOOKS):  # what follows an answer, such as closing its connection, takes its time on a busy machine
        before = {name: (cpu_s(process), wake_ups(process)) for name, process in found.items()}
        time.sleep(QUIET_S)
        after = {name: (cpu_s(process), wake_ups(process)) for name, process in found.items()}
        spent = {name: (after[name][0] - before[name][0], after[name][1] - before[name][1]) for name in found}
        if all(map(is_quiet, spent.values())):
            break
    return spent


def is_quiet(spent: tuple[float, int]) -> bool:
    return spent[0] < CPU_S and spent[1] <= WAKE_UPS


@pytest.mark.parametrize("name", ["server", "worker"])
def test_an_idle_process_uses_no_cpu_time(quiet: dict[str, tuple[float, int]], name: str) -> None:
    assert quiet[name][0] < CPU_S


@pytest.mark.parametrize("name", ["server", "worker"])
def test_an_idle_process_sleeps_without_waking_up(quiet: dict[str, tuple[float, int]], name: str) -> None:
    assert quiet[name][1] <= WAKE_UPS
