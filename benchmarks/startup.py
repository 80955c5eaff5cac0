"""From `legato serve` to ready, beside the library's own load time; and what an idle server costs.

python -m benchmarks.startup [--rounds 5]
"""

from __future__ import annotations

import argparse
import re
import statistics
import time

import psutil

from benchmarks.report import Figure, save
from benchmarks.servers import legato, running
from legato.models import default_store

IDLE_S = 5.0


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    save("startup", measure(parser.parse_args().rounds))


def measure(rounds: int) -> list[Figure]:
    """Time beyond the library's own, and CPU time of an idle server."""
    target = legato("legato", default_store().resolve("smollm2").path)
    beyond: list[float] = []
    idle: list[float] = []
    for _ in range(rounds):
        with running(target) as server:
            time.sleep(0.2)
            said = re.search(r"Ready after ([\d.]+) s", server.output())
            assert said is not None, server.output()
            beyond.append(server.ready_s - float(said[1]))
            before = _cpu_s(server.pid)
            time.sleep(IDLE_S)
            idle.append((_cpu_s(server.pid) - before) / IDLE_S * 100)
    return [
        Figure("from start to ready, beyond the library's load", statistics.median(beyond), "s", beyond, "< 2"),
        Figure("CPU use of an idle server, all its processes", statistics.median(idle), "% of a CPU", idle),
    ]


def _cpu_s(pid: int) -> float:
    processes = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    return sum(p.cpu_times().user + p.cpu_times().system for p in processes)


if __name__ == "__main__":
    main()
