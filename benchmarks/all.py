"""Every benchmark in turn: `make bench`."""

from __future__ import annotations

from benchmarks import agreement, overhead, peers, scheduling, startup, telemetry
from benchmarks.report import save


def main() -> None:
    """Measure all, one after the other."""
    save("startup", startup.measure(5))
    save("overhead", overhead.measure(15, 120))
    save("telemetry", [*telemetry.measure(15, 120), telemetry.cost()])
    save("agreement", agreement.measure(200))
    scheduling.measure(["reading", "groups", "ways", "attention", "alone", "background", "planning"], 2)
    peers.measure(["solo", "interference", "cache"], 3)


if __name__ == "__main__":
    main()
