from __future__ import annotations

import io

import pytest
from rich.console import Console

from legato.bench.compare import compare
from legato.bench.results import BenchRun
from legato.bench.table import duration, figure, limit, print_comparison, print_run, printable, sections

from . import sample


def printed(run: BenchRun, width: int = 120) -> str:
    out = io.StringIO()
    print_run(run, Console(file=out, width=width))
    return out.getvalue()


def cells(run: BenchRun, title: str, label: str) -> list[str]:
    section = next(one for one in sections(run) if one.title == title)
    return next(lines[label] for lines in section.parts.values() if label in lines)


def test_measures_stand_apart_and_targets_beside_each_other() -> None:
    text = printed(sample.interference())
    for words in ("legato", "one-queue", "prefill rate, tokens/s", "TTFT p95", "ITL p99", "output rate, tokens/s"):
        assert words in text


def test_interference_shows_the_gaps_around_the_document() -> None:
    run = sample.interference()
    title = sections(run)[0].title
    assert cells(run, title, "during, s")[1] == "14.0"
    assert cells(run, title, "during")[1] == "0"


def test_numbers_of_one_line_share_a_unit() -> None:
    run = sample.bench(
        sample.target("a", [sample.request(ttft=0.5)]),
        sample.target("b", [sample.request(ttft=12.0)]),
    )
    assert cells(run, "question", "TTFT p50, s") == ["0.500", "12.0"]


def test_crowd_shows_goodput() -> None:
    text = printed(sample.crowd())
    assert "Service: TTFT within 3 s and every gap within 250 ms" in text
    assert "5 of 12" in text


def test_errors_and_notes_are_never_dropped() -> None:
    target = sample.target("legato", [sample.failed(), sample.failed(), sample.request()], notes=["It merges tokens."])
    text = printed(sample.bench(target, complete=False))
    assert "legato: question: The server answered 503. (2 times)" in text
    assert "legato: It merges tokens." in text
    assert "of them failed" in text
    assert "Interrupted" in text


def test_answers_in_one_piece_and_merged_tokens_are_counted() -> None:
    target = sample.target("legato", [sample.in_one_piece(), sample.request(gaps=[0.1] * 9, tokens=20)])
    text = printed(sample.bench(target))
    assert "of them not streamed" in text
    assert "tokens per event" in text


def test_role_that_a_target_lacks_leaves_dashes() -> None:
    run = sample.bench(
        sample.target("a", [sample.request("chat", gaps=[0.1])]), sample.target("b", [sample.request("document")])
    )
    assert cells(run, "chat", "ITL p50, ms") == ["100", "\N{EN DASH}"]


@pytest.mark.parametrize("run", [sample.bench(), sample.bench(sample.target("legato", []), scenario="interference")])
def test_empty_run_says_so(run: BenchRun) -> None:
    assert printed(run).strip() == "No request was measured."


def test_hostile_names_steer_neither_terminal_nor_markup() -> None:
    run = sample.bench(
        sample.target(sample.HOSTILE, [sample.request(sample.HOSTILE), sample.failed(error=sample.HOSTILE)])
    )
    text = printed(run, width=200)
    assert "\x1b" not in text
    assert "[red]" in text


def test_comparison_shows_ratio_interval_and_verdict() -> None:
    run = sample.bench(sample.target("legato", [sample.request(ttft=1 + n / 100, gaps=[0.1]) for n in range(9)]))
    other = sample.bench(sample.target("legato", [sample.request(ttft=2 + n / 100, gaps=[0.1]) for n in range(9)]))
    other.options = {"seed": 3}
    out = io.StringIO()
    print_comparison(compare(run, other), Console(file=out, width=80))
    text = out.getvalue()
    assert "TTFT, s" in text
    assert "1.96" in text
    assert "legato: " in text
    assert "…" not in text
    assert "worse" in text
    assert "no difference shown" in text
    assert "The option seed differs: unset / 3." in text


def test_comparison_of_nothing_says_so() -> None:
    run = sample.bench(sample.target("legato", []))
    out = io.StringIO()
    print_comparison(compare(run, run), Console(file=out))
    assert out.getvalue().strip() == "The runs have no measure in common."


def test_figures_have_three_digits_that_count() -> None:
    values = (None, 0, 0.01234, 1.234, 12.34, 99.99, 1234.5)
    assert [figure(value) for value in values] == ["\N{EN DASH}", "0", "0.0123", "1.23", "12.3", "100", "1,234"]


def test_times_have_a_unit() -> None:
    assert [duration(value) for value in (0.0123, 1.5)] == ["12.3 ms", "1.50 s"]
    assert [limit(value) for value in (0.2, 3.0)] == ["200 ms", "3 s"]


def test_printable_keeps_text_of_any_language() -> None:
    assert printable("größe 模型\n\x1b") == "größe 模型��"
