"""Measurements in processes of their own: the library ends its process when it meets an error inside."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TypeVar

import msgspec

from legato.engine.quantize import convert
from legato.errors import LegatoError
from legato.tuning.measure import Configuration, Measurement, ThreadTimes, measure, time_threads
from legato.tuning.quality import Loss, weight_loss
from legato.worker.sizing import default_threads


class RefusedError(LegatoError):
    """The library would not do it, or ended its process."""


class OutOfTimeError(LegatoError):
    """It took longer than it might."""


class Measure(msgspec.Struct, frozen=True, tag="measure"):
    """Measure a configuration; the answer is a Measurement."""

    configuration: Configuration
    limit_s: float


class TimeThreads(msgspec.Struct, frozen=True, tag="time_threads"):
    """Try numbers of threads; the answer is ThreadTimes."""

    configuration: Configuration
    counts: list[int]
    limit_s: float


class Convert(msgspec.Struct, frozen=True, tag="convert"):
    """Convert a model file; the answer is the new file's size in bytes."""

    source: str
    target: str
    type_name: str


class Compare(msgspec.Struct, frozen=True, tag="compare"):
    """Compare a converted model with its original; the answer is a Loss."""

    original: str
    converted: str


Task = Measure | TimeThreads | Convert | Compare
Result = TypeVar("Result", Measurement, ThreadTimes, int, Loss)


class _Answer(msgspec.Struct):
    result: msgspec.Raw
    error: str | None = None


def run(task: Task, result: type[Result], *, timeout_s: float) -> Result:
    """Run a task in a process of its own.

    Args:
        task: What to do.
        result: What comes of it.
        timeout_s: Seconds after which the process is ended.

    Raises:
        RefusedError: The library would not do it; the text has its reason.
        OutOfTimeError: It took too long.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-m", "legato.tuning.isolated"],
            input=msgspec.json.encode(task),
            capture_output=True,
            timeout=max(0.1, timeout_s),
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise OutOfTimeError("there was not enough time") from None
    try:
        answer = msgspec.json.decode(done.stdout, type=_Answer)
    except msgspec.DecodeError:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise RefusedError(f"the library ended its process ({lines[-1] if lines else done.returncode})") from None
    if answer.error is not None:
        raise RefusedError(answer.error)
    return msgspec.json.decode(answer.result, type=result)


def main() -> None:
    """Do the task that stands on standard input, and write what comes of it to standard output."""
    task: Task = msgspec.json.decode(sys.stdin.buffer.read(), type=Task)
    try:
        answer = _Answer(msgspec.Raw(msgspec.json.encode(_do(task))))
    except LegatoError as error:
        answer = _Answer(msgspec.Raw(b"null"), str(error).rstrip("."))
    sys.stdout.buffer.write(msgspec.json.encode(answer))


def _do(task: Task) -> Measurement | ThreadTimes | int | Loss:
    match task:
        case Measure(configuration, limit_s):
            return measure(configuration, limit_s=limit_s)
        case TimeThreads(configuration, counts, limit_s):
            return time_threads(configuration, counts, limit_s=limit_s)
        case Convert(source, target, type_name):
            convert(Path(source), Path(target), type_name)
            return Path(target).stat().st_size
        case Compare(original, converted):
            return weight_loss(Path(original), Path(converted), threads=default_threads())


if __name__ == "__main__":
    main()
