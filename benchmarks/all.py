"""Every benchmark in turn: `make bench`."""

from __future__ import annotations

from benchmarks import interference, overhead, startup
from benchmarks.report import save


def main() -> None:
    """Measure all, one after the other."""
    save("startup", startup.measure(5))
    save("overhead", overhead.measure(7, 200))
    save("interference", interference.measure(3, 6000))


if __name__ == "__main__":
    main()
