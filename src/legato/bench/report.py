"""A bench run as one HTML file: works offline, loads nothing, runs nothing."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from legato.bench.figures import figures, series
from legato.bench.results import BenchRun, MeasuredRequest, TargetRun
from legato.bench.statistics import RoleSummary, ServiceTarget, by_role, gaps_around_document, people
from legato.bench.table import duration, errors, figure, limit, printable, sections
from legato.errors import LegatoError

SCENARIOS = {
    "solo": "One request at a time, with prompts of different lengths: how fast a server reads, and how fast it "
    "writes, when it has nothing else to do.",
    "interference": "A chat is being answered; then another client sends a long document, and a third one asks a "
    "short question. What does the chat's reader see meanwhile?",
    "crowd": "Many people at once: how many of them get an answer that begins in time and doesn't stall?",
    "trace": "Requests that arrive as they do over a day, not evenly: how many get an answer that begins in time and "
    "doesn't stall?",
    "cache": "Prompts that begin the same, again and again: how much of what was read once is not read a second time?",
}
"""What each scenario asks, for someone who sees a report for the first time."""


def write_report(run: BenchRun, path: Path) -> None:
    """Write the page.

    Raises:
        LegatoError: The file can't be written.
    """
    environment = Environment(
        loader=PackageLoader("legato.bench"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["printable"] = printable
    page = environment.get_template("report.html.jinja").render(
        run=run,
        question=SCENARIOS[run.scenario],
        started=datetime.fromtimestamp(run.started_at, UTC).strftime("%Y-%m-%d %H:%M UTC"),
        measured=sum(len(target.requests) for target in run.runs),
        findings=[(series(index), target.target, _finding(run, target)) for index, target in enumerate(run.runs)],
        figures=figures(run),
        sections=sections(run),
        remarks=[(target.target, target.notes, errors(target)) for target in run.runs],
    )
    try:
        path.write_text(page, encoding="utf-8", errors="replace")
    except OSError as error:
        raise LegatoError(f"The report can't be written to {path}: {error.strerror}.") from error


def _finding(run: BenchRun, target: TargetRun) -> str:
    """The one line that a hurried reader takes along."""
    if not target.requests:
        return "nothing was measured."
    good = [request for request in target.requests if not request.error]
    failed = len(target.requests) - len(good)
    if not good:
        return f"all {failed} requests failed."
    text = ""
    match run.scenario:
        case "interference":
            text = _interference(target)
        case "crowd" | "trace":
            text = _service(target, ServiceTarget.of(run.options))
        case "cache":
            text = _cache(target)
    return (text or _speed(good)) + (f" {failed} of {len(target.requests)} requests failed." if failed else "")


def _interference(target: TargetRun) -> str:
    around = gaps_around_document(target.requests)
    before, during = (max(around[when], default=None) for when in ("before", "during"))
    if during is None:
        return ""
    text = f"While the document was read, the chat's reader waited up to {duration(during)} for the next piece of text"
    text += f" ({duration(before)} before)." if before is not None else "."
    read_s = RoleSummary([request for request in target.requests if request.role == "document"]).ttft_s(50)
    if read_s is not None:
        text += f" The document's answer began after {duration(read_s)}."
    return text


def _service(target: TargetRun, service: ServiceTarget) -> str:
    requests = people(target.requests)
    met, rate = sum(map(service.met_by, requests)), figure(service.goodput(requests))
    return (
        f"{met} of {len(requests)} requests met both targets, TTFT within {limit(service.ttft_s)} and every "
        f"gap within {limit(service.gap_s)}: a goodput of {rate} requests/s."
    )


def _cache(target: TargetRun) -> str:
    medians = ((role, RoleSummary(requests).ttft_s(50)) for role, requests in by_role(target.requests).items())
    parts = ", ".join(f"{role} {duration(ttft)}" for role, ttft in medians if ttft is not None)
    return f"Median TTFT: {parts}." if parts else ""


def _speed(requests: list[MeasuredRequest]) -> str:
    """Of the longest prompts alone: a median over different lengths would say nothing of any of them."""
    depth = max(request.depth for request in requests)
    one = RoleSummary([request for request in requests if request.depth == depth])
    known = [
        (one.prompt_rate, "prefill {} tokens/s", figure),
        (one.ttft_s(50), "TTFT {}", duration),
        (one.output_rate, "output {} tokens/s", figure),
        (one.gap_s(100), "longest gap {}", duration),
    ]
    text = ", ".join(words.format(told(value)) for value, words, told in known if value is not None)
    subject = f"With prompts of about {depth:,} tokens" if depth else "Over all requests"
    return f"{subject}: {text}." if text else "No answer had any text."
