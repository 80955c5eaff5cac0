"""How far a run is, for whoever waits for it."""

from __future__ import annotations

from typing import Protocol

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn


class BenchProgress(Protocol):
    """Told what happens in a run."""

    def begin(self, target: str, steps: int) -> None:
        """The run of one target begins.

        Args:
            target: Its name.
            steps: How many steps it has: requests, or seconds, as the scenario counts.
        """
        ...

    def step(self) -> None:
        """One step is done."""
        ...


class Silent:
    """Shows nothing."""

    def begin(self, target: str, steps: int) -> None:
        """Nothing."""

    def step(self) -> None:
        """Nothing."""


class Bars:
    """A bar for each target.

    Args:
        progress: From `bars()`, running.
    """

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task: TaskID | None = None

    def begin(self, target: str, steps: int) -> None:
        """A new bar."""
        self._task = self._progress.add_task(target, total=steps)

    def step(self) -> None:
        """The latest bar grows."""
        if self._task is not None:
            self._progress.advance(self._task)


def bars() -> Progress:
    """Rich's bars on standard error.

    They are drawn seldom: the load generator shares the CPUs with the server that it measures.
    """
    from rich.console import Console

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        refresh_per_second=2,
        transient=True,
    )
