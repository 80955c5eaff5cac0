"""How far a run is, for whoever waits for it."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn


class BenchProgress(Progress):
    """A bar for each target on standard error, for as long as the context lasts; none if not `shown`.

    They are drawn seldom: the load generator shares the CPUs with the server that it measures.
    """

    def __init__(self, *, shown: bool = True) -> None:
        super().__init__(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            refresh_per_second=2,
            transient=True,
            disable=not shown,
        )
        self._latest = TaskID(0)

    def begin(self, target: str, steps: int) -> None:
        """The run of one target begins, in so many steps: requests, or seconds, as the scenario counts."""
        self._latest = self.add_task(target, total=steps)

    def step(self) -> None:
        """One step is done."""
        self.advance(self._latest)
