from __future__ import annotations

import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest

from legato.bench.figures import figures
from legato.bench.plots import Axis, axis
from legato.bench.report import write_report
from legato.bench.results import BenchRun
from legato.errors import LegatoError

from . import sample

VOID = {"meta", "br", "link", "img", "input", "hr"}


class Page(HTMLParser):
    """Fails on tags that don't match, and gathers what a page has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []
        self.words = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


def write(run: BenchRun, folder: Path) -> str:
    path = folder / "report.html"
    write_report(run, path)
    return path.read_text(encoding="utf-8")


def runs() -> dict[str, BenchRun]:
    mixed = [sample.request(gaps=[0.1] * 5, tokens=18), sample.in_one_piece(), sample.failed()]
    return {
        "interference": sample.interference(),
        "crowd": sample.crowd(),
        "cache": sample.cache(),
        "trace": sample.bench(sample.target("a", [sample.request("request", gaps=[0.1])]), scenario="trace"),
        "single": sample.bench(sample.target("a", mixed, notes=["It merges tokens."])),
        "failures": sample.bench(sample.target("a", [sample.failed("document")]), scenario="interference"),
        "no streaming": sample.bench(sample.target("a", [sample.in_one_piece()]), scenario="crowd"),
        "no text": sample.bench(sample.target("a", [sample.failed(error="")])),
        "empty": sample.bench(scenario="cache"),
        "nothing measured": sample.bench(sample.target("a", []), scenario="interference", complete=False),
    }


@pytest.mark.parametrize("name", runs())
def test_page_parses_and_loads_nothing(name: str, tmp_path: Path) -> None:
    text = write(runs()[name], tmp_path)
    page = Page(text)
    assert not page.tags & {"script", "link", "img", "iframe", "object", "embed", "a", "image", "use"}
    assert not [value for key, value in page.attributes if key in ("src", "href", "srcset", "action")]
    assert not re.search(r"url\(|@import", text)
    assert "nan" not in re.findall(r'(?:d|x|y|cx|cy|width)="([^"]*)"', text)


def test_stall_is_labelled_with_its_length(tmp_path: Path) -> None:
    run = sample.interference()
    assert re.search(r'class="stall-name"[^>]*>13\.0 s<', write(run, tmp_path))


def test_short_gaps_are_no_stall() -> None:
    chat = sample.request("chat", gaps=[0.05] * 50)
    run = sample.bench(
        sample.target("a", [chat, sample.request("document", sent=0.5, prompt=6000)]), scenario="interference"
    )
    assert "stall-name" not in figures(run)[0].wide


def test_each_token_is_a_tick_and_the_hole_has_none() -> None:
    chat = sample.request("chat", ttft=0.5, gaps=[0.5, 0.5, 6.0, 0.5, 0.5])
    run = sample.bench(
        sample.target("a", [chat, sample.request("document", sent=1.6, ttft=5.0)]), scenario="interference"
    )
    ticks = re.search(r'class="token s0" d="([^"]*)"', figures(run)[0].wide)
    assert ticks
    at = [float(x) for x in re.findall(r"M([\d.]+)", ticks[1])]
    assert len(at) == 6
    widths = [b - a for a, b in pairwise(at)]
    assert widths[2] == pytest.approx(12 * widths[0], rel=0.05)


def test_the_typical_round_is_drawn() -> None:
    assert "one-queue, round 2 of 3" in figures(sample.interference(3))[0].wide


def test_waiting_is_told_from_reading_only_if_the_server_says() -> None:
    told = figures(sample.interference())[0]
    assert 'class="waiting"' in told.wide
    run = sample.interference()
    for request in run.runs[0].requests:
        request.timings = {"queue_ms": "soon"}
    untold = figures(run)[0]
    assert 'class="waiting"' not in untold.wide
    assert "waiting or reading its prompt" in [key.text for key in untold.keys]


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    run = sample.interference()
    for target in run.runs:
        target.target, target.model, target.url, target.notes = (sample.HOSTILE,) * 3 + ([sample.HOSTILE],)
        for request in target.requests:
            request.role += sample.HOSTILE
        target.requests.append(sample.failed(sample.HOSTILE, error=sample.HOSTILE))
    run.machine, run.options = sample.HOSTILE, {sample.HOSTILE: [sample.HOSTILE]}
    text = write(run, tmp_path)
    page = Page(text)
    assert "script" not in page.tags
    assert "\x1b" not in text
    assert '<script>alert("x")</script>' in page.words


def test_scenarios_have_their_plots() -> None:
    assert [one.title for one in figures(sample.interference())] == [
        "What everyone saw",
        "Gaps between tokens (ITL)",
        "Time to first token by prompt length",
    ]
    assert figures(sample.crowd())[0].title == "Goodput by gap target"
    assert figures(sample.cache())[0].title == "Time to first token by what was read before"
    assert figures(sample.bench()) == []


def test_page_has_tables_options_notes_and_errors(tmp_path: Path) -> None:
    run = sample.interference()
    run.complete = False
    run.runs[0].requests.append(sample.failed("question", error="It hung."))
    words = Page(write(run, tmp_path)).words
    for expected in (
        "prefill rate, tokens/s",
        "document_tokens",
        "8 cores, 16 GiB",
        "It merges about 2 tokens",
        "question: It hung.",
        "This run was interrupted",
        "waited up to 14.0 s",
        "1 of 10 requests failed.",
    ):
        assert expected in words


def test_many_requests_stay_a_small_page(tmp_path: Path) -> None:
    requests = [sample.request("chat", sent=n, gaps=[0.02] * 500) for n in range(40)]
    run = sample.bench(sample.target("a", requests), scenario="interference")
    assert len(write(run, tmp_path)) < 400_000


def test_unwritable_place_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(LegatoError, match="report can't be written"):
        write_report(sample.bench(), tmp_path / "nowhere" / "report.html")


def test_far_apart_values_get_a_logarithmic_axis() -> None:
    assert axis("s", [0.1, 50.0], str).log
    assert not axis("s", [1.0, 2.0], str).log


def test_axes_place_values_within_their_ends() -> None:
    for scale in (axis("s", [0.003, 70.0], str, log=True), axis("s", [3.0, 7.0], str), axis("s", [], str, log=True)):
        assert all(0 <= scale.place(value) <= 1 for value in (0.0, 0.003, 5.0, 70.0, 1e9))
        assert all(0 <= scale.place(value) <= 1 for value in scale.ticks(6))


def test_ticks_are_round_and_few() -> None:
    assert Axis("s", 0, 28.4).ticks(6) == [0, 5, 10, 15, 20, 25]
    assert Axis("s", 0.001, 10, log=True).ticks(5) == pytest.approx([0.001, 0.01, 0.1, 1, 10])
