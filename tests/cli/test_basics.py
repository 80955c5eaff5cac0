"""What every command has in common: its version, its help, and errors in one sentence."""

from __future__ import annotations

import pytest

from legato import __version__
from tests.support.command import run_legato

COMMANDS = [
    "serve", "chat", "pull", "list", "rm", "convert", "tune", "requests", "explain", "top", "bench", "cache",
    "doctor",
]  # fmt: skip


def test_it_says_its_version() -> None:
    done = run_legato("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"legato {__version__}\n", "")


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_names_every_command(flag: str) -> None:
    done = run_legato(flag)
    assert done.returncode == 0
    assert all(command in done.stdout for command in COMMANDS)
    assert done.stderr == ""


def test_without_a_command_it_helps() -> None:
    done = run_legato()
    assert all(command in done.stdout + done.stderr for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help(command: str) -> None:
    done = run_legato(command, "--help")
    assert done.returncode == 0
    assert f"{command} [OPTIONS]" in done.stdout
    assert len(done.stdout.split("Usage:")[1].split("Options")[0].split()) > 6, "it says what the command does"
    assert done.stderr == ""


def test_help_of_serve_has_every_setting_with_its_default() -> None:
    help_text = run_legato("serve", "--help").stdout
    for option in (
        "--host",
        "--port",
        "--policy",
        "--chunk",
        "--ctx",
        "--parallel",
        "--api-key",
        "--grace",
        "--no-auth",
    ):
        assert option in help_text
    assert "--no-joined-calls" in help_text
    assert "8383" in help_text
    assert "chunked|whole" in help_text or "whole|chunked" in help_text


@pytest.mark.parametrize("arguments", [["sreve"], ["--no-such-flag"], ["serve", "--no-such-flag"], ["list", "extra"]])
def test_what_no_command_takes_is_a_usage_error(arguments: list[str]) -> None:
    done = run_legato(*arguments)
    assert done.returncode == 2
    assert "Error" in done.stderr
    assert arguments[-1] in done.stderr
    assert done.stdout == ""
