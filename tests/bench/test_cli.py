from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from legato.bench.results import load
from legato.bench.scenarios import Cache, Crowd, Interference, Scenario, Solo
from legato.cli.bench import bench_app
from legato.errors import LegatoError
from tests.bench.conftest import FakeFactory

SOLO = ["solo", "--prompt-tokens", "60", "--answer-tokens", "4", "--rounds", "2"]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def bench(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(bench_app, arguments, catch_exceptions=True)
    if isinstance(result.exception, LegatoError):
        raise result.exception
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


def test_a_run_is_kept(fake: FakeFactory, tmp_path: Path) -> None:
    code, _ = bench(*SOLO, "--target", f"mine={fake().url}", "--json", "run.json", "--gap-target", "0.1")
    run = load(tmp_path / "run.json")
    assert code == 0
    assert (run.scenario, run.complete, len(run.runs[0].requests)) == ("solo", True, 2)
    assert (run.options["gap_target_s"], run.options["ttft_target_s"]) == (0.1, 5.0)
    assert run.runs[0].target == "mine"


def test_a_run_without_a_place_gets_one(fake: FakeFactory, tmp_path: Path) -> None:
    bench(*SOLO, "--target", f"mine={fake().url}")
    assert len(list(tmp_path.glob("bench-solo-????????-??????.json"))) == 1


def test_several_targets(fake: FakeFactory, tmp_path: Path) -> None:
    targets = ["--target", f"a={fake().url}", "--target", f"ollama:b={fake(api='ollama').url}"]
    bench(*SOLO, *targets, "--json", "run.json")
    assert [(run.target, run.api) for run in load(tmp_path / "run.json").runs] == [("a", "openai"), ("b", "ollama")]


def test_a_place_that_cannot_be_written_is_refused_first(fake: FakeFactory) -> None:
    server = fake()
    for option in ("--json", "--html"):
        with pytest.raises(LegatoError, match=r"can't be written"):
            bench(*SOLO, "--target", f"a={server.url}", option, "missing/run")
    assert server.bodies == []


def test_trying_the_place_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(LegatoError):
        bench(*SOLO, "--target", "nonsense", "--json", "run.json")
    assert list(tmp_path.iterdir()) == []


def test_nothing_measured_is_a_failure(fake: FakeFactory, tmp_path: Path) -> None:
    code, _ = bench(*SOLO, "--target", f"a={fake('refuse').url}")
    assert code == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("lengths", ["", "a", "1,,2", "0", "-1", "1.5"])
def test_lengths_that_are_none(lengths: str) -> None:
    with pytest.raises(LegatoError, match="--prompt-tokens"):
        bench("solo", "--prompt-tokens", lengths)


@pytest.mark.parametrize("option", ["--rate", "--length"])
@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf"])
def test_scales_that_are_none(option: str, value: str) -> None:
    with pytest.raises(LegatoError, match=option):
        bench("trace", "x.csv", option, value)


def test_a_trace(fake: FakeFactory, tmp_path: Path) -> None:
    rows = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-01-01 00:00:00.5,60,3\n2023-01-01 00:00:00.6,70,4\n"
    (tmp_path / "day.csv").write_text(rows)
    bench("trace", "day.csv", "--target", f"a={fake().url}", "--json", "run.json")
    assert [one.wanted_tokens for one in load(tmp_path / "run.json").runs[0].requests] == [3, 4]


def test_compare_and_report(fake: FakeFactory, tmp_path: Path) -> None:
    target = f"mine={fake().url}"
    bench(*SOLO, "--target", target, "--json", "one.json", "--html", "one.html")
    bench(*SOLO, "--target", target, "--json", "two.json")
    code, output = bench("report", "two.json")
    assert code == 0
    assert "60 tokens in" in output
    assert {"one.html", "two.html"} <= {file.name for file in tmp_path.iterdir()}
    code, output = bench("compare", "one.json", "two.json")
    assert code == 0
    assert output.startswith("solo:")


@pytest.mark.parametrize("command", ["solo", "interference", "crowd", "trace", "cache", "compare", "report"])
def test_help(command: str) -> None:
    code, output = bench(command, "--help")
    assert code == 0
    assert "Usage" in output


def test_ctrl_c_keeps_what_was_measured(fake: FakeFactory, tmp_path: Path) -> None:
    server = fake(gap_s=0.02)
    arguments = [
        "solo",
        "--answer-tokens",
        "30",
        "--rounds",
        "500",
        "--target",
        f"a={server.url}",
        "--json",
        "run.json",
    ]
    code = "from legato.cli.bench import bench_app; bench_app()"
    # Whoever runs these tests in the background may ignore Ctrl-C, which programs inherit.
    code = f"import signal; signal.signal(signal.SIGINT, signal.default_int_handler); {code}"
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments], cwd=tmp_path, stdout=subprocess.PIPE, env={**os.environ}
    )
    deadline = time.monotonic() + 20
    while len(server.bodies) < 5 and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    run = load(tmp_path / "run.json")
    assert process.returncode == 130
    assert not run.complete
    assert len(run.runs[0].requests) >= 2


def test_each_parameter_is_an_option(fake: FakeFactory, tmp_path: Path) -> None:
    target = ["--target", f"a={fake().url}", "--json", "run.json"]
    options = ["--prompt-tokens", "40", "--answer-tokens", "2", "--chat-tokens", "3", "--alone", "0.01"]
    bench("interference", *options, "--question-after", "0.02", "--rounds", "1", *target)
    found = load(tmp_path / "run.json").options
    own = Interference(
        prompt_tokens=40, answer_tokens=2, chat_tokens=3, chat_alone_s=0.01, question_after_s=0.02, rounds=1
    )
    assert own.options.items() <= found.items()


@pytest.mark.parametrize("scenario", [Solo(), Interference(), Crowd(), Cache()])
def test_defaults_are_the_scenarios_own(scenario: Scenario) -> None:
    command = typer.main.get_command(bench_app).commands[scenario.name]
    typed = {parameter.name: parameter.default for parameter in command.params}
    for name, value in scenario.options.items():
        assert typed[name] == (",".join(map(str, value)) if isinstance(value, tuple) else value)


def test_a_parameter_below_its_least_is_refused() -> None:
    code, output = bench("crowd", "--people", "0")
    assert code == 2
    assert "--people" in output
