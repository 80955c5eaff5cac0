"""Every benchmark in turn: `make bench`."""

from __future__ import annotations

from benchmarks import agreement, cache, dashboard, overhead, peers, scheduling, startup, telemetry
from benchmarks.report import save


def main() -> None:
    """Measure all, one after the other."""
    save("startup", startup.measure(5))
    save("overhead", overhead.measure(15, 120))
    save("telemetry", [*telemetry.measure(15, 120), telemetry.cost()])
    save("agreement", agreement.measure(200))
    scheduling.measure(["reading", "converted", "groups", "ways", "attention", "alone", "background", "planning"], 2)
    cache.measure(["again", "turns", "together", "beside", "same", "clock", "lookup", "keeping"], 1)
    dashboard.measure(["cost", "paint", "day"], 7)
    peers.measure(["solo", "interference", "cache"], 3)


if __name__ == "__main__":
    main()
