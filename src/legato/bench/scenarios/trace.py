"""Requests of a recorded day: their times and lengths, with text made for them."""

from __future__ import annotations

import asyncio
import csv
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar

from legato.bench.results import ScenarioName
from legato.bench.scenarios.scenario import Scenario, TargetSession
from legato.errors import LegatoError

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")

LATE_S = 0.1
"""A request sent later than this after its time is worth a note: the generator is then part of what is measured."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request of a trace."""

    at_s: float
    """From the first request of the trace, seconds."""
    prompt_tokens: int
    answer_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace(Scenario):
    """Requests come when they came, however long the server takes for those before."""

    name: ClassVar[ScenarioName] = "trace"

    arrivals: tuple[Arrival, ...]
    """Scaled."""
    source: dict[str, Any] = field(default_factory=dict)
    """Where they are from, and the scales."""

    @property
    def options(self) -> dict[str, Any]:
        """Source and scales; the arrivals are in the requests."""
        return self.source | {"requests": len(self.arrivals)}

    @property
    def steps(self) -> int:
        """Requests."""
        return len(self.arrivals)

    @property
    def context_tokens(self) -> int:
        """The longest prompt and answer together."""
        return max(arrival.prompt_tokens + arrival.answer_tokens for arrival in self.arrivals)

    async def run(self, session: TargetSession) -> None:
        """Send each at its time and read all answers."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        late_s = 0.0
        async with asyncio.TaskGroup() as group:
            for number, arrival in enumerate(self.arrivals):
                # Made before its time, since making a long text takes a while.
                text = session.prompts.text(f"trace {number}", arrival.prompt_tokens)
                await asyncio.sleep(began + arrival.at_s - loop.time())
                late_s = max(late_s, loop.time() - began - arrival.at_s)
                group.create_task(self._one(session, text, arrival))
        if late_s > LATE_S:
            session.notes.append(f"The load generator sent requests up to {late_s * 1000:.0f} ms late.")

    async def _one(self, session: TargetSession, text: str, arrival: Arrival) -> None:
        await session.client.ask(text, arrival.answer_tokens, role="request", depth=arrival.prompt_tokens)
        session.progress.step()


def load_trace(file: Path, *, rate: float = 1.0, length: float = 1.0, limit_s: float | None = None) -> Trace:
    """Read a trace: CSV with the columns TIMESTAMP, ContextTokens and GeneratedTokens.

    A rate of 2 sends twice as many requests a second, a length of 0.5 halves prompts and answers. Requests that would
    be sent later than `limit_s` are left out.

    Raises:
        LegatoError: It can't be read, or a row is malformed; the sentence names the line.
    """
    try:
        with file.open(encoding="utf-8-sig", newline="") as lines:
            arrivals = _read(file, csv.DictReader(lines), rate, length, limit_s)
    except OSError as error:
        raise LegatoError(f"The trace {file} can't be read: {error.strerror}.") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise LegatoError(f"The trace {file} is not a CSV text file: {error}.") from error
    if not arrivals:
        raise LegatoError(f"The trace {file} has no requests; it needs one row each under its head line.")
    source = {"file": file.name, "rate": rate, "length": length, "limit_s": limit_s}
    return Trace(arrivals=tuple(arrivals), source=source)


def _read(file: Path, rows: csv.DictReader[str], rate: float, length: float, limit_s: float | None) -> list[Arrival]:
    rows.fieldnames = [name.strip() for name in rows.fieldnames or ()]
    for column in COLUMNS:
        if column not in rows.fieldnames:
            raise LegatoError(
                f"Line 1 of the trace {file} does not name the column {column}; it must have {', '.join(COLUMNS)}."
            )
    arrivals: list[Arrival] = []
    first = latest = None
    for row in rows:
        try:
            moment, prompt, answer = _parse(row)
            first = first or moment
            if moment < (latest or moment):
                raise ValueError("its time is before that of the line above")
        except (ValueError, TypeError) as error:
            raise LegatoError(
                f"Line {rows.line_num} of the trace {file} is malformed ({error}); "
                "it needs a time such as 2023-11-16 18:15:46.68, then two counts of tokens above 0."
            ) from error
        latest = moment
        at_s = (moment - first).total_seconds() / rate
        if limit_s is not None and at_s > limit_s:
            break
        arrivals.append(Arrival(at_s, max(1, round(prompt * length)), max(1, round(answer * length))))
    return arrivals


def _parse(row: dict[str, str]) -> tuple[datetime, int, int]:
    prompt, answer = int(row["ContextTokens"]), int(row["GeneratedTokens"])
    if prompt < 1 or answer < 1:
        raise ValueError("a count is below 1")
    return datetime.fromisoformat(row["TIMESTAMP"].strip()), prompt, answer
