"""Options that are made from the settings."""

from __future__ import annotations

from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from legato.cli.options import with_settings_options


def said(*arguments: str) -> dict[str, Any]:
    """What a command is given when a person types this."""
    given: list[dict[str, Any]] = []
    app = typer.Typer()

    @app.command()
    @with_settings_options
    def command(flags: dict[str, Any]) -> None:
        given.append(flags)

    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 0, result.output
    (flags,) = given
    return flags


def refused(*arguments: str) -> bool:
    app = typer.Typer()
    app.command()(with_settings_options(lambda _flags: None))
    return CliRunner().invoke(app, list(arguments)).exit_code == 2


def test_what_is_not_said_is_not_given() -> None:
    assert said() == {}


@pytest.mark.parametrize("name", ["joined-calls", "interruptible"])
def test_a_switch_that_may_be_left_open_can_be_turned_on_and_off(name: str) -> None:
    field = name.replace("-", "_")
    assert said(f"--{name}") == {field: True}
    assert said(f"--no-{name}") == {field: False}
    assert said(f"--{name}", f"--no-{name}") == {field: False}


@pytest.mark.parametrize("flag", ["--no-auth", "--no-telemetry", "--verbose"])
def test_other_switches_can_only_be_turned_on(flag: str) -> None:
    assert said(flag) == {flag.removeprefix("--").replace("-", "_"): True}
    assert refused(f"--no-{flag.removeprefix('--')}")


def test_each_kind_of_setting_is_given_by_its_name() -> None:
    assert said("m.gguf", "--port", "5", "--kv-type-k", "q8_0", "--api-key", "a", "--api-key", "b=c") == {
        "model": "m.gguf",
        "port": 5,
        "kv_type_k": "q8_0",
        "api_keys": ["a", "b=c"],
    }
