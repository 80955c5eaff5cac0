"""`legato bench`: measure servers, compare runs, write reports."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from legato.cli.console import out, print_error, say
from legato.errors import LegatoError

if TYPE_CHECKING:
    from legato.bench.results import BenchRun
    from legato.bench.scenarios import Scenario

DEFAULT_TARGET = "legato=http://127.0.0.1:8383"

bench_app = typer.Typer(
    help="Measure any server of OpenAI's API or Ollama's: each wait apart, several servers beside each other.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Targets = Annotated[
    list[str] | None,
    typer.Option(
        "--target",
        metavar="NAME=URL",
        help="Server to measure; ollama:NAME=URL for Ollama's own API. Repeat it for several, which are measured in "
        f"turn. Default: {DEFAULT_TARGET}.",
        show_default=False,
    ),
]
Models = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        metavar="[NAME=]MODEL",
        help="Model to ask, of all targets or of the one named. Default: the only one of the server.",
        show_default=False,
    ),
]
ApiKeys = Annotated[
    list[str] | None,
    typer.Option(
        "--api-key",
        metavar="[NAME=]KEY",
        envvar="LEGATO_BENCH_KEY",
        help="API key, of all targets or of the one named.",
        show_default=False,
    ),
]
Seed = Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Of texts, think times and sampling.")]
Timeout = Annotated[float, typer.Option(min=0.1, help="Silence after which a request counts as hung, seconds.")]
TtftTarget = Annotated[float, typer.Option(min=0, help="TTFT that a good answer has at most, seconds.")]
GapTarget = Annotated[float, typer.Option(min=0, help="Gap that a good answer has at most, seconds.")]
JsonFile = Annotated[
    Path | None,
    typer.Option(
        "--json", help="Where to keep the raw times. Default: bench-SCENARIO-DATE-TIME.json here.", show_default=False
    ),
]
HtmlFile = Annotated[Path | None, typer.Option("--html", help="Where to write a report too.", show_default=False)]
Rounds = Annotated[int, typer.Option(min=1, help="How often everything is done.")]
RunFile = Annotated[Path, typer.Argument(help="JSON file of a run.", show_default=False)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """What all scenarios share."""

    targets: Sequence[str]
    models: Sequence[str]
    api_keys: Sequence[str]
    seed: int
    timeout_s: float
    ttft_target_s: float
    gap_target_s: float
    json: Path | None
    html: Path | None


def _plan(
    target: Targets = None,
    model: Models = None,
    api_key: ApiKeys = None,
    seed: Seed = 1,
    timeout: Timeout = 120.0,
    ttft_target: TtftTarget = 5.0,
    gap_target: GapTarget = 0.2,
    json: JsonFile = None,
    html: HtmlFile = None,
) -> _Plan:
    """The options of every scenario, declared once."""
    return _Plan(
        targets=target or [DEFAULT_TARGET],
        models=model or (),
        api_keys=api_key or (),
        seed=seed,
        timeout_s=timeout,
        ttft_target_s=ttft_target,
        gap_target_s=gap_target,
        json=json,
        html=html,
    )


def _scenario_command(make: Callable[..., Scenario]) -> Callable[..., Scenario]:
    """Add the command that makes a scenario from its own options and runs it with those of every scenario."""
    # What it returns is imported for type checkers only: the other commands must not wait for it.
    own = inspect.signature(make, eval_str=True, locals={"Scenario": Any}).parameters
    shared = inspect.signature(_plan, eval_str=True).parameters

    def run(**values: Any) -> None:
        scenario = make(**{name: values[name] for name in own})
        _bench(scenario, _plan(**{name: values[name] for name in shared}))

    parameters = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in (*own.values(), *shared.values())
    ]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    bench_app.command(name=make.__name__, help=inspect.getdoc(make))(run)
    return make


@_scenario_command
def solo(
    prompt_tokens: Annotated[
        str, typer.Option(metavar="N,N,…", help="Prompt lengths, tokens, with commas between.")
    ] = "128,1024,4096",
    answer_tokens: Annotated[
        str, typer.Option(metavar="N,N,…", help="Answer lengths, tokens, with commas between.")
    ] = "128",
    rounds: Rounds = 3,
) -> Scenario:
    """One request at a time: reading and writing at several lengths."""
    from legato.bench.scenarios import Solo

    return Solo(
        prompt_tokens=_lengths("--prompt-tokens", prompt_tokens),
        answer_tokens=_lengths("--answer-tokens", answer_tokens),
        rounds=rounds,
    )


@_scenario_command
def interference(
    prompt_tokens: Annotated[int, typer.Option(min=1, help="Length of the long prompt, tokens.")] = 6000,
    answer_tokens: Annotated[int, typer.Option(min=1, help="Answers to the prompt and the question, tokens.")] = 16,
    chat_tokens: Annotated[int, typer.Option(min=1, help="Longest answer of the running chat, tokens.")] = 4000,
    alone: Annotated[float, typer.Option(min=0, help="From the chat's first text to the long prompt, seconds.")] = 3.0,
    question_after: Annotated[float, typer.Option(min=0, help="From the prompt to the question, seconds.")] = 0.3,
    rounds: Rounds = 3,
) -> Scenario:
    """A running chat, a long prompt that arrives, and a short question behind it."""
    from legato.bench.scenarios import Interference

    return Interference(
        prompt_tokens=prompt_tokens,
        answer_tokens=answer_tokens,
        chat_tokens=chat_tokens,
        chat_alone_s=alone,
        question_after_s=question_after,
        rounds=rounds,
    )


@_scenario_command
def crowd(
    people: Annotated[int, typer.Option(min=1, help="How many chat at once.")] = 4,
    duration: Annotated[float, typer.Option(min=0.1, help="How long they come back, seconds.")] = 60.0,
    think: Annotated[float, typer.Option(min=0, help="Mean time between an answer and the next message, seconds.")] = 5,
    turn_tokens: Annotated[int, typer.Option(min=1, help="Length of a message, tokens.")] = 60,
    answer_tokens: Annotated[int, typer.Option(min=1, help="Length of an answer, tokens.")] = 120,
    conversation_tokens: Annotated[
        int, typer.Option(min=1, help="Length at which a person begins a new conversation, tokens.")
    ] = 3000,
    jobs: Annotated[int, typer.Option(min=0, help="Background jobs that send one long prompt after another.")] = 0,
    job_tokens: Annotated[int, typer.Option(min=1, help="Length of a job's prompt, tokens.")] = 4000,
    job_answer_tokens: Annotated[int, typer.Option(min=1, help="Length of a job's answer, tokens.")] = 32,
) -> Scenario:
    """Several people chat, each at their own pace; jobs may send long prompts beside them."""
    from legato.bench.scenarios import Crowd

    return Crowd(
        people=people,
        duration_s=duration,
        think_s=think,
        turn_tokens=turn_tokens,
        answer_tokens=answer_tokens,
        conversation_tokens=conversation_tokens,
        jobs=jobs,
        job_tokens=job_tokens,
        job_answer_tokens=job_answer_tokens,
    )


@_scenario_command
def trace(
    file: Annotated[
        Path, typer.Argument(help="CSV with TIMESTAMP, ContextTokens and GeneratedTokens.", show_default=False)
    ],
    rate: Annotated[float, typer.Option(help="2 sends twice as many requests a second, 0.5 half as many.")] = 1.0,
    length: Annotated[float, typer.Option(help="0.5 halves prompts and answers.")] = 1.0,
    limit: Annotated[
        float | None, typer.Option(min=0, help="Send nothing after this time, seconds. Default: the whole trace.")
    ] = None,
) -> Scenario:
    """Requests at the times and of the lengths of a recorded day."""
    from legato.bench.scenarios.trace import load_trace

    for option, value in (("--rate", rate), ("--length", length)):
        if not 0 < value < float("inf"):
            raise LegatoError(f"{option} is {value:g}; it must be above 0.")
    return load_trace(file, rate=rate, length=length, limit_s=limit)


@_scenario_command
def cache(
    prompt_tokens: Annotated[int, typer.Option(min=1, help="Length of the text that is sent again, tokens.")] = 3000,
    other_tokens: Annotated[int, typer.Option(min=1, help="Length of the other person's text, tokens.")] = 1000,
    answer_tokens: Annotated[int, typer.Option(min=1, help="Length of an answer, tokens.")] = 32,
    turns: Annotated[int, typer.Option(min=0, help="Turns of each of the two people.")] = 3,
    pause: Annotated[float, typer.Option(min=0, help="Silence before the last turn, seconds.")] = 30.0,
    rounds: Rounds = 2,
) -> Scenario:
    """A long text again: at once, in turns with somebody else's, and after a pause."""
    from legato.bench.scenarios import Cache

    return Cache(
        prompt_tokens=prompt_tokens,
        other_tokens=other_tokens,
        answer_tokens=answer_tokens,
        turns=turns,
        pause_s=pause,
        rounds=rounds,
    )


@bench_app.command()
def compare(before: RunFile, after: RunFile) -> None:
    """Two runs of one scenario: what moved by more than chance."""
    from legato.bench.compare import compare as compare_runs
    from legato.bench.results import load
    from legato.bench.table import print_comparison

    print_comparison(compare_runs(load(before), load(after)), out)


@bench_app.command()
def report(
    run: RunFile,
    html: Annotated[
        Path | None, typer.Option("--html", help="Where to write it. Default: beside the run.", show_default=False)
    ] = None,
) -> None:
    """Print a run again and write its report."""
    from legato.bench.report import write_report
    from legato.bench.results import load
    from legato.bench.table import print_run

    measured = load(run)
    place = html or run.with_suffix(".html")
    _check_writable(place)
    print_run(measured, out)
    write_report(measured, place)
    say(f"The report is in {place}.")


def _bench(scenario: Scenario, plan: _Plan) -> None:
    """Run, keep, print; the places for the results are tried first, as a run can take an hour."""
    import asyncio
    import time

    from legato.bench.table import print_run

    place = plan.json or Path(f"bench-{scenario.name}-{time.strftime('%Y%m%d-%H%M%S')}.json")
    for file in (place, plan.html):
        if file is not None:
            _check_writable(file)
    run = asyncio.run(_measure(scenario, plan))
    if not any(target.requests for target in run.runs):
        if not run.complete:
            raise KeyboardInterrupt
        for target in run.runs:
            for note in target.notes:
                print_error(f"{target.target}: {note}")
        raise typer.Exit(1)
    try:
        _keep(run, place, plan.html)
    finally:
        print_run(run, out)
    say(f"The raw times are in {place}." + (f" The report is in {plan.html}." if plan.html else ""))
    if not run.complete:
        raise typer.Exit(130)


def _keep(run: BenchRun, place: Path, html: Path | None) -> None:
    """Write the raw times, and the report if one is wanted.

    Raises:
        LegatoError: The disk is full, or the place has gone.
    """
    try:
        run.save(place)
    except OSError as error:
        raise LegatoError(f"{place} can't be written: {error.strerror}.") from error
    if html is not None:
        from legato.bench.report import write_report

        write_report(run, html)


async def _measure(scenario: Scenario, plan: _Plan) -> BenchRun:
    from legato.bench.progress import Bars, bars
    from legato.bench.runner import connect_all, run_bench

    targets = await connect_all(plan.targets, plan.models, plan.api_keys)
    with bars() as shown:
        return await run_bench(
            scenario,
            targets,
            Bars(shown),
            seed=plan.seed,
            timeout_s=plan.timeout_s,
            options={"ttft_target_s": plan.ttft_target_s, "gap_target_s": plan.gap_target_s},
        )


def _lengths(option: str, text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdecimal() and int(part) > 0 for part in parts):
        raise LegatoError(
            f"{option} is {text!r}; it must be whole numbers above 0 with commas between, such as 128,1024."
        )
    return tuple(int(part) for part in parts)


def _check_writable(file: Path) -> None:
    """Find out before the work whether its result can be kept.

    Raises:
        LegatoError: It can't.
    """
    new = not file.exists()
    try:
        with file.open("ab"):
            pass
    except OSError as error:
        raise LegatoError(f"{file} can't be written: {error.strerror}.") from error
    if new:
        file.unlink()
