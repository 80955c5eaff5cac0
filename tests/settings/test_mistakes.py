"""Mistakes in the settings are one sentence that names the setting as the person wrote it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from legato.errors import LegatoError
from legato.settings import load_settings


def mistake(flags: dict[str, Any] | None = None) -> str:
    """The sentence."""
    with pytest.raises(LegatoError) as caught:
        load_settings(flags)
    text = str(caught.value)
    assert text.endswith(".")
    assert "\n" not in text
    assert "pydantic" not in text
    return text


WRONG: list[tuple[str, Any]] = [
    ("port", "http"),
    ("port", -1),
    ("port", 65536),
    ("port", 80.5),
    ("policy", "fast"),
    ("chunk", 0),
    ("chunk", 10**30),
    ("ctx", 255),
    ("parallel", 0),
    ("parallel", 257),
    ("max_queue", -1),
    ("threads", 0),
    ("threads_prefill", "all"),
    ("gpu_layers", -2),
    ("flash_attention", "yes"),
    ("kv_type_k", "q9"),
    ("batch", 31),
    ("joined_calls", "perhaps"),
    ("gap_target_ms", 0.5),
    ("gap_target_ms", 60_001),
    ("gap_target_ms", "nan"),
    ("background_wait", -1),
    ("background_wait", "inf"),
    ("no_auth", 2),
    ("max_body_mib", 0),
    ("max_body_mib", "nan"),
    ("max_body_mib", "inf"),
    ("grace", -1),
    ("grace", "nan"),
]


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_a_wrong_flag_is_named_as_it_is_typed(name: str, value: Any) -> None:
    assert mistake({name: value}).startswith(f"--{name.replace('_', '-')}: ")


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_a_wrong_variable_is_named(name: str, value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"LEGATO_{name.upper()}", str(value))
    assert mistake().startswith(f"LEGATO_{name.upper()}: ")


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_a_wrong_line_of_the_file_is_named_with_the_file(name: str, value: Any, folder: Path) -> None:
    (folder / "legato.toml").write_text(f"{name} = {value!r}")
    assert mistake().startswith(f"{name} in legato.toml: ")


def test_the_sentence_says_what_was_given() -> None:
    assert mistake({"port": 65536}) == "--port: input should be less than or equal to 65535, not 65536."
    assert mistake({"policy": "fast"}) == "--policy: input should be 'adaptive', 'chunked' or 'whole', not 'fast'."


def test_an_empty_variable_is_a_mistake_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEGATO_PORT", "")
    assert mistake().startswith("LEGATO_PORT: ")


def test_the_model_is_no_flag() -> None:
    assert mistake({"model": 5}).startswith("MODEL: ")


def test_a_variable_may_be_written_in_small_letters_and_is_named_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("legato_port", "5")
    assert load_settings().port == 5
    monkeypatch.setenv("legato_port", "http")
    assert mistake().startswith("legato_port: ")


@pytest.mark.parametrize("key", ["=secret", "ada=", "="])
def test_an_api_key_has_a_secret_and_if_it_has_a_name_not_an_empty_one(
    key: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert mistake({"api_keys": ["right", key]}).startswith("--api-key: ")
    (folder / "legato.toml").write_text(f"api_keys = ['right', '{key}']")
    assert mistake().startswith("api_keys in legato.toml: ")
    monkeypatch.setenv("LEGATO_API_KEYS", f"right,{key}")
    assert mistake().startswith("LEGATO_API_KEYS: ")


# Classes of keys


@pytest.mark.parametrize(
    ("name", "flag", "value"),
    [
        ("admins", "--admin", "bob"),
        ("background_clients", "--background-client", "bob"),
        ("gap_targets", "--gap-target", "bob=50"),
        # A key without a name has none, and a secret is no name.
        ("admins", "--admin", "plain"),
        ("admins", "--admin", "secret"),
    ],
)
def test_a_name_that_no_key_has_is_refused(
    name: str, flag: str, value: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    person = value.partition("=")[0]
    sentence = f"no API key is named '{person}'; name one so with --api-key {person}=KEY."
    keys = ["ana=secret", "plain"]
    assert mistake({"api_keys": keys, name: [value]}) == f"{flag}: {sentence}"
    assert mistake({name: [value]}) == f"{flag}: {sentence}"
    (folder / "legato.toml").write_text(f"api_keys = {keys}\n{name} = ['{value}']")
    assert mistake() == f"{name} in legato.toml: {sentence}"
    monkeypatch.setenv(f"LEGATO_{name.upper()}", value)
    assert mistake() == f"LEGATO_{name.upper()}: {sentence}"


@pytest.mark.parametrize("value", ["ana", "ana=", "=50", "ana=fast", "ana=0.5", "ana=60001", "ana=nan", "ana=-5", ""])
def test_a_gap_target_of_a_key_is_a_name_and_a_number(value: str) -> None:
    assert mistake({"api_keys": ["ana=secret"], "gap_targets": [value]}) == (
        f"--gap-target: a key's gap target is written NAME=MS, with 1 to 60000 ms, not {value!r}."
    )


def test_a_key_has_one_gap_target() -> None:
    assert mistake({"api_keys": ["ana=secret"], "gap_targets": ["ana=50", "ana=60"]}) == (
        "--gap-target: the key 'ana' has two gap targets; give it one."
    )


def test_a_wrong_key_is_told_of_before_the_names_that_it_lacks() -> None:
    assert mistake({"api_keys": ["ana="], "admins": ["ana"]}) == "--api-key: an API key is written KEY or NAME=KEY."


# Unknown names


@pytest.mark.parametrize(
    ("variable", "meant"), [("LEGATO_PROT", "LEGATO_PORT"), ("LEGATO_API_KEY", "LEGATO_API_KEYS"), ("LEGATO_ZZZ", None)]
)
def test_an_unknown_variable_is_named(variable: str, meant: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "1")
    hint = f"; did you mean {meant}" if meant else ""
    assert mistake() == f"The environment variable {variable} is not a setting{hint}."


def test_an_unknown_variable_in_small_letters_is_named_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("legato_prot", "1")
    assert "legato_prot" in mistake()


@pytest.mark.parametrize("variable", ["LEGATO_MODELS_DIR", "LEGATO_TUNING", "LEGATOX", "LEGATO", "XLEGATO_PROT"])
def test_other_variables_are_nothing_to_the_settings(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "1")
    load_settings()


@pytest.mark.parametrize(("key", "meant"), [("prot", "port"), ("api_key", "api_keys"), ("zz", None)])
def test_an_unknown_key_in_the_file_is_named(key: str, meant: str | None, folder: Path) -> None:
    (folder / "legato.toml").write_text(f"port = 5\n{key} = 1")
    hint = f"; did you mean {meant}" if meant else ""
    assert mistake() == f"{key} in legato.toml: there is no such setting{hint}."


def test_a_table_in_the_file_is_named(folder: Path) -> None:
    (folder / "legato.toml").write_text("[server]\nport = 5")
    assert mistake().startswith("server in legato.toml: there is no such setting")


def test_a_mistake_in_a_named_file_is_named_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = tmp_path / "other.toml"
    named.write_text("port = 'http'")
    monkeypatch.setenv("LEGATO_CONFIG", str(named))
    assert mistake().startswith(f"port in {named}: ")


def test_a_variable_hides_a_mistake_in_the_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "legato.toml").write_text("port = 'http'")
    monkeypatch.setenv("LEGATO_PORT", "5")
    assert load_settings().port == 5


# Files that can't be read


@pytest.mark.parametrize("text", ["port = ", "port 5", "port = 5\nport = 6", "[", "= 5", "port = http"])
def test_bad_toml_is_said_with_the_file_and_the_place(text: str, folder: Path) -> None:
    (folder / "legato.toml").write_text(text)
    sentence = mistake()
    assert sentence.startswith("legato.toml is not valid TOML: ")
    assert "line" in sentence or "end of document" in sentence


def test_a_file_that_is_not_utf8_is_said_so(folder: Path) -> None:
    (folder / "legato.toml").write_bytes('alias = "Küche"'.encode("latin-1"))
    assert mistake().startswith("legato.toml is not valid TOML: ")


def test_an_empty_file_says_nothing(folder: Path) -> None:
    (folder / "legato.toml").write_text("# nothing\n")
    assert load_settings().port == 8383
