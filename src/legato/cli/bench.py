"""`legato bench`: measure servers, compare runs, write reports."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import typer

from legato.bench.progress import BenchProgress
from legato.bench.results import BenchRun, load
from legato.bench.scenarios import Cache, Crowd, Interference, Scenario, Solo, Trace
from legato.bench.scenarios.trace import load_trace
from legato.cli.console import out, print_error, say
from legato.errors import LegatoError

DEFAULT_TARGET = "legato=http://127.0.0.1:8383"

bench_app = typer.Typer(
    help="Measure any server of OpenAI's API or Ollama's: each wait apart, several servers beside each other.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

RunFile = Annotated[Path, typer.Argument(help="JSON file of a run.")]


def _bench(
    scenario: Scenario,
    *,
    target: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=URL",
            help="Server to measure; ollama:NAME=URL for Ollama's own API. Repeat it for several, which are measured "
            f"in turn. Default: {DEFAULT_TARGET}.",
        ),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]MODEL",
            help="Model to ask, of all targets or of the one named. Default: the only one of the server.",
        ),
    ] = None,
    api_key: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]KEY", envvar="LEGATO_BENCH_KEY", help="API key, of all targets or of the one named."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Of texts, think times and sampling.")] = 1,
    timeout: Annotated[
        float, typer.Option(min=0.1, help="Silence after which a request counts as hung, seconds.")
    ] = 120.0,
    ttft_target: Annotated[float, typer.Option(min=0, help="TTFT that a good answer has at most, seconds.")] = 5.0,
    gap_target: Annotated[float, typer.Option(min=0, help="Gap that a good answer has at most, seconds.")] = 0.2,
    json: Annotated[
        Path | None, typer.Option(help="Where to keep the raw times. Default: bench-SCENARIO-DATE-TIME.json here.")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Where to write a report too.")] = None,
) -> None:
    """Run, keep, print; the places for the results are tried first, as a run can take an hour."""
    from legato.bench.report import write_report
    from legato.bench.runner import connect_all, run_bench
    from legato.bench.table import print_run

    async def measured() -> BenchRun:
        targets = await connect_all(target or [DEFAULT_TARGET], model or (), api_key or ())
        with BenchProgress() as progress:
            aims = {"ttft_target_s": ttft_target, "gap_target_s": gap_target}
            return await run_bench(scenario, targets, progress, seed=seed, timeout_s=timeout, options=aims)

    place = json or Path(f"bench-{scenario.name}-{time.strftime('%Y%m%d-%H%M%S')}.json")
    for file in filter(None, (place, html)):
        _check_writable(file)
    run = asyncio.run(measured())
    if not any(one.requests for one in run.runs):
        if not run.complete:
            raise KeyboardInterrupt
        for one in run.runs:
            for note in one.notes:
                print_error(f"{one.target}: {note}")
        raise typer.Exit(1)
    try:
        run.save(place)
        if html is not None:
            write_report(run, html)
    finally:
        print_run(run, out)
    say(f"The raw times are in {place}." + (f" The report is in {html}." if html else ""))
    if not run.complete:
        raise typer.Exit(130)


def _add_command(make: Callable[..., Scenario], name: str, own: Iterable[inspect.Parameter]) -> None:
    """Add the command that makes a scenario from its own options and runs it with those of every scenario."""
    _, *shared = _parameters(_bench)

    def run(**values: Any) -> None:
        options = {one.name: values.pop(one.name) for one in shared}
        lengths = {option: _lengths(option, text) for option, text in values.items() if isinstance(text, str)}
        _bench(make(**values | lengths), **options)

    parameters = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in (*own, *shared)]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    bench_app.command(name=name, help=(inspect.getdoc(make) or "").partition("\n\n")[0])(run)


def _parameters(make: Callable[..., Any]) -> Iterable[inspect.Parameter]:
    return inspect.signature(make, eval_str=True).parameters.values()


def _option(field: inspect.Parameter) -> inspect.Parameter:
    """The option for a scenario's field; one that takes several lengths is typed with commas between."""
    kind, described = get_args(field.annotation)
    several = get_origin(kind) is tuple
    shown = typer.Option(
        _flag(described.option or field.name),
        min=described.least,
        help=described.help,
        metavar="N,N,…" if several else None,
    )
    default = ",".join(map(str, field.default)) if several else field.default
    annotation: Any = Annotated[str if several else kind, shown]
    return field.replace(annotation=annotation, default=default)


def _flag(name: str) -> str:
    return "--" + name.removesuffix("_s").replace("_", "-")


def _lengths(name: str, text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdecimal() and int(part) > 0 for part in parts):
        raise LegatoError(
            f"{_flag(name)} is {text!r}; it must be whole numbers above 0 with commas between, such as 128,1024."
        )
    return tuple(int(part) for part in parts)


def _make_trace(
    file: Annotated[Path, typer.Argument(help="CSV with TIMESTAMP, ContextTokens and GeneratedTokens.")],
    rate: Annotated[float, typer.Option(help="2 sends twice as many requests a second, 0.5 half as many.")] = 1.0,
    length: Annotated[float, typer.Option(help="0.5 halves prompts and answers.")] = 1.0,
    limit: Annotated[
        float | None, typer.Option(min=0, help="Send nothing after this time, seconds. Default: the whole trace.")
    ] = None,
) -> Scenario:
    """Requests at the times and of the lengths of a recorded day."""
    for option, value in (("--rate", rate), ("--length", length)):
        if not 0 < value < float("inf"):
            raise LegatoError(f"{option} is {value:g}; it must be above 0.")
    return load_trace(file, rate=rate, length=length, limit_s=limit)


for _scenario in (Solo, Interference, Crowd):
    _add_command(_scenario, _scenario.name, map(_option, _parameters(_scenario)))
_add_command(_make_trace, Trace.name, _parameters(_make_trace))
_add_command(Cache, Cache.name, map(_option, _parameters(Cache)))


@bench_app.command()
def compare(before: RunFile, after: RunFile) -> None:
    """Two runs of one scenario: what moved by more than chance."""
    from legato.bench.compare import compare as compare_runs
    from legato.bench.table import print_comparison

    print_comparison(compare_runs(load(before), load(after)), out)


@bench_app.command()
def report(
    run: RunFile,
    html: Annotated[Path | None, typer.Option("--html", help="Where to write it. Default: beside the run.")] = None,
) -> None:
    """Print a run again and write its report."""
    from legato.bench.report import write_report
    from legato.bench.table import print_run

    measured = load(run)
    place = html or run.with_suffix(".html")
    _check_writable(place)
    print_run(measured, out)
    write_report(measured, place)
    say(f"The report is in {place}.")


def _check_writable(file: Path) -> None:
    """Find out before the work whether its result can be kept.

    Raises:
        LegatoError: It can't.
    """
    new = not file.exists()
    try:
        file.open("ab").close()
    except OSError as error:
        raise LegatoError(f"{file} can't be written: {error.strerror}.") from error
    if new:
        file.unlink()
