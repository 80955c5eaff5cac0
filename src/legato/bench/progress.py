"""How far a run is, for whoever waits for it."""

from __future__ import annotations

from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn


class BenchProgress:
    """A bar for each target on standard error, for as long as the context lasts; none if not `shown`.

    They are drawn seldom: the load generator shares the CPUs with the server that it measures.
    """

    def __init__(self, *, shown: bool = True) -> None:
        self._task = TaskID(0)
        self._bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            refresh_per_second=2,
            transient=True,
            disable=not shown,
        )

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def begin(self, target: str, steps: int) -> None:
        """The run of one target begins, in so many steps: requests, or seconds, as the scenario counts."""
        self._task = self._bars.add_task(target, total=steps)

    def step(self) -> None:
        """One step is done."""
        self._bars.advance(self._task)
