"""Figures: printed as a table, kept as JSON with every raw value."""

from __future__ import annotations

import json
import platform
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Figure:
    """One measure: its median, its unit, the values that it is the median of, and what it must reach."""

    what: str
    median: float
    unit: str
    values: list[float]
    goal: str = ""


def save(name: str, figures: list[Figure]) -> None:
    """Print the figures and write them to `results/NAME.json`."""
    table = Table("measure", "median", "unit", "lowest", "highest", "goal", box=None)
    for f in figures:
        table.add_row(f.what, f"{f.median:.3f}", f.unit, f"{min(f.values):.3f}", f"{max(f.values):.3f}", f.goal)
    Console(width=160).print(table)
    RESULTS.mkdir(exist_ok=True)
    record = {
        "benchmark": name,
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "machine": f"{platform.system()} {platform.machine()}",
        "figures": [asdict(figure) for figure in figures],
    }
    (RESULTS / f"{name}.json").write_text(json.dumps(record, indent=1))
