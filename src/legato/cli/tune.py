"""`legato tune`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import psutil
import typer
from rich.table import Table

from legato.cli.console import err, out, say, tell
from legato.errors import LegatoError
from legato.models import LocalModel, check_gguf, default_store
from legato.settings import load_settings
from legato.tuning.advice import ConvertedModel, advised_weights, sentence

if TYPE_CHECKING:
    from legato.tuning.choice import Choice
    from legato.tuning.session import Findings, Trial

SMALLEST_BATCH = 512
"""Fewest tokens of a library call that are chosen, for it may decode many sequences at once."""
BUSY_PERCENT = 25
"""Use of the CPUs by others from which what is measured is not this machine's best."""
SHALLOW = 8
"""Times that the prompt of the forecasts may be deeper than the deepest call measured, without a note."""
MEANING = """
BESIDE CHAT: time to read a 6,000-token prompt beside a chat that keeps its gaps. ALONE: with nothing beside it, in
chunks of CHUNK tokens. DECODE: a token of one chat. JOINED: one library call a step over two. *: chosen.
"""


def command(
    model: Annotated[
        str | None,
        typer.Argument(help="Model to tune for, named as for serve; the one that would be served, if left out."),
    ] = None,
    gap_target: Annotated[
        float | None,
        typer.Option(
            help="Longest gap between two tokens of a chat beside a long prompt, in ms; the server's, if left out.",
            min=1,
            max=60_000,
            metavar="MS",
        ),
    ] = None,
    time_limit: Annotated[
        float, typer.Option(help="Longest time that all measurements may take.", min=5, max=3600, metavar="S")
    ] = 120,
    no_convert: Annotated[
        bool, typer.Option("--no-convert", help="Don't try faster weight types in a temporary folder.")
    ] = False,
) -> None:
    """Measure which settings read prompts fastest on this machine while chats keep their pace, and remember them.

    FlashAttention, threads, KV types, chunk sizes and joined calls are tried, and what faster weight types would bring.
    """
    # Imported here so that `legato --help` need not wait for the library.
    from legato.tuning.choice import choose
    from legato.tuning.session import Session

    wanted = model or load_settings().model
    target_s = (gap_target or load_settings().gap_target_ms) / 1e3
    local = default_store().resolve(wanted, progress=say)
    busy = psutil.cpu_percent(interval=0.5)
    if busy > BUSY_PERCENT:
        say(f"Other programs use {busy:.0f} % of the CPUs: what is measured now will mislead; end them and tune again.")
    with _progress() as report:
        findings = Session(
            local.path,
            size_bytes=local.size_bytes,
            own_weights=check_gguf(local.path).file_type_name,
            limit_s=time_limit,
            gap_target_s=target_s,
            convert=not no_convert,
            report=report,
        ).run()
    if not findings.done:
        reasons = [trial.refusal for trial in findings.trials] or findings.skipped
        raise LegatoError(f"Nothing could be measured of {local.name}: {reasons[0]}.")
    choice = choose([trial.measured() for trial in findings.done], target_s)
    out.print(_table(findings, choice), soft_wrap=True)
    tell(MEANING)
    tell("\n".join(_words(findings, choice, wanted)))
    _save(local, findings, choice, target_s)


@contextmanager
def _progress() -> Iterator[Callable[[str, float], None]]:
    """A bar of the time that may be taken; a line for each step where there is no terminal."""
    if not err.is_terminal:
        yield lambda name, _share: say(f"Measuring {name} …")
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    # Drawn seldom, for it shares the CPUs with what is measured.
    with Progress(*columns, console=err, refresh_per_second=1, transient=True) as bar:
        task = bar.add_task("Measuring", total=1.0)
        yield lambda name, share: bar.update(task, description=f"Measuring {name}", completed=share)


def _table(findings: Findings, choice: Choice) -> Table:
    table = Table("", "CONFIGURATION", box=None, pad_edge=False)
    for title in ("BESIDE CHAT", "ALONE", "CHUNK", "DECODE", "JOINED"):
        table.add_column(title, justify="right")
    table.add_column("NOTE")
    forecasts = iter(enumerate(choice.forecasts))
    for trial in findings.trials:
        if trial.measurement is None:
            table.add_row("", trial.name, *["-"] * 5, f"refused: {trial.refusal}")
            continue
        index, seen = next(forecasts)
        ratio = trial.measurement.joined_ratio
        table.add_row(
            "*" if index == choice.index else "",
            trial.name,
            "gap too long" if seen.beside_chat_s is None else f"{seen.beside_chat_s:.1f} s",
            f"{seen.alone_s:.1f} s",
            str(seen.best_size),
            f"{seen.decode_s * 1e3:.1f} ms",
            "-" if ratio is None else f"{ratio:.2f}x",
            note(trial),
        )
    return table


def note(trial: Trial) -> str:
    """What the table says beside the figures of a trial."""
    from legato.tuning.choice import PROMPT_TOKENS

    notes = []
    if trial.weights:
        notes.append("needs a conversion")
    elif not trial.keeps_answers:
        notes.append("rounds answers: not chosen")
    if not trial.is_confirmed:
        notes.append("faster once, not twice: not chosen")
    if trial.measurement is not None and trial.measurement.deepest < PROMPT_TOKENS / SHALLOW:
        notes.append(f"measured to {trial.measurement.deepest:,} tokens of depth")
    return "; ".join(notes)


def _words(findings: Findings, choice: Choice, model: str) -> Iterator[str]:
    yield choice.reason
    if findings.threads is not None:
        chosen = findings.done[choice.index].configuration
        yield f"Threads: {chosen.threads} for writing and {chosen.threads_prefill} for reading are fastest."
    for trial in findings.done:
        if not trial.is_confirmed:
            usual = findings.done[0].name
            yield f"{trial.name} was faster than {usual} once, and not shown to be so twice: it is not chosen."
    for one in converted_models(findings, choice):
        yield sentence(one, f"legato convert {model} {one.weights}")
    for what in findings.skipped:
        yield f"Skipped {what}."


def converted_models(findings: Findings, choice: Choice) -> list[ConvertedModel]:
    """What was measured of each weight type, against the chosen configuration with the model's own."""
    own = choice.forecasts[choice.index]
    converted = []
    for trial, seen in zip(findings.done, choice.forecasts, strict=True):
        if trial.weights is None:
            continue
        loss = findings.losses.get(trial.weights)
        before_s, after_s = own.beside_chat_s, seen.beside_chat_s
        if before_s is None or after_s is None:
            before_s, after_s = own.alone_s, seen.alone_s
        converted.append(
            ConvertedModel(
                trial.weights,
                speedup=before_s / after_s,
                decode_ratio=seen.decode_s / own.decode_s,
                kl_divergence=loss.kl_divergence if loss else None,
                perplexity_ratio=loss.perplexity_ratio if loss else None,
            )
        )
    return converted


def _save(local: LocalModel, findings: Findings, choice: Choice, gap_target_s: float) -> None:
    from legato.tuning.profile import PATH_VARIABLE, Profile, cost_settings, default_profiles

    chosen, seen = findings.done[choice.index], choice.forecasts[choice.index]
    assert chosen.measurement is not None, "the chosen configuration was measured"
    c = chosen.configuration
    profile = Profile(
        flash_attention=c.flash_attention,
        kv_type_k=c.kv_type_k,
        kv_type_v=c.kv_type_v,
        threads=c.threads,
        threads_prefill=c.threads_prefill,
        batch_tokens=max(SMALLEST_BATCH, seen.best_size),
        joined_calls=seen.joined_calls,
        gap_target_s=gap_target_s,
        model_name=local.name,
        advised_weights=advised_weights(converted_models(findings, choice)),
        tuned_at=time.time(),
    )
    profiles = default_profiles()
    if profiles.path is None:
        out.print(f"Nothing is remembered, because {PATH_VARIABLE} is off.")
        return
    profiles.save_profile(local.path, profile)
    profiles.save_costs(local.path, cost_settings(profile, c.gpu_layers), chosen.measurement.costs)
    tell(f"legato serve uses this for {local.name} from now on ({profiles.path}).")
