"""Flags, environment, file, defaults: which of them wins."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from legato.errors import LegatoError
from legato.settings import Settings, config_file, flag_name, key_gap_target_ms, load_settings


def test_defaults() -> None:
    settings = load_settings()
    assert settings == Settings()
    assert (settings.host, settings.port, settings.api_keys, settings.policy) == ("127.0.0.1", 8383, (), "adaptive")
    assert (settings.gap_target_ms, settings.background_wait) == (100, 600)
    tuned = (settings.kv_type_k, settings.kv_type_v, settings.batch, settings.joined_calls)
    assert tuned == (None, None, None, None)


@pytest.mark.parametrize("sources", list(itertools.product([True, False], repeat=3)))
def test_a_flag_wins_over_a_variable_over_the_file_over_the_default(
    sources: tuple[bool, bool, bool], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flag, variable, file = sources
    if file:
        (folder / "legato.toml").write_text("port = 3")
    if variable:
        monkeypatch.setenv("LEGATO_PORT", "2")
    expected = 1 if flag else 2 if variable else 3 if file else 8383
    assert load_settings({"port": 1} if flag else {}).port == expected


def test_each_setting_comes_from_its_own_source(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "legato.toml").write_text('port = 3\nchunk = 3\nctx = 300\npolicy = "whole"')
    monkeypatch.setenv("LEGATO_PORT", "2")
    monkeypatch.setenv("LEGATO_CHUNK", "2")
    settings = load_settings({"port": 1})
    assert (settings.port, settings.chunk, settings.ctx, settings.policy) == (1, 2, 300, "whole")
    assert settings.batch == Settings().batch


def test_a_list_of_one_source_replaces_that_of_another(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "legato.toml").write_text('api_keys = ["file", "ada=file"]')
    assert load_settings().api_keys == ("file", "ada=file")
    monkeypatch.setenv("LEGATO_API_KEYS", "variable, ada=variable,")
    assert load_settings().api_keys == ("variable", "ada=variable")
    assert load_settings({"api_keys": ["flag"]}).api_keys == ("flag",)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("model", "hf:owner/repo:Q4_0", "hf:owner/repo:Q4_0"),
        ("alias", "mine", "mine"),
        ("port", "0", 0),
        ("policy", "whole", "whole"),
        ("ctx", "4096", 4096),
        ("flash_attention", "on", "on"),
        ("kv_type_v", "q8_0", "q8_0"),
        ("joined_calls", "true", True),
        ("joined_calls", "false", False),
        ("batch", "64", 64),
        ("policy", "adaptive", "adaptive"),
        ("background_wait", "0", 0.0),
        ("no_auth", "1", True),
        ("allowed_hosts", "legato.home,chat.home", ("legato.home", "chat.home")),
        ("cors_origins", "", ()),
        ("max_body_mib", "0.5", 0.5),
        ("grace", "0", 0.0),
    ],
)
def test_variables_carry_every_kind_of_setting(
    name: str, text: str, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"LEGATO_{name.upper()}", text)
    assert getattr(load_settings(), name) == value


def test_a_file_can_set_everything(folder: Path) -> None:
    defaults = Settings().model_dump()
    lines = [f"{name} = {_toml(value)}" for name, value in defaults.items() if value is not None]
    (folder / "legato.toml").write_text("\n".join(lines))
    assert load_settings().model_dump() == defaults


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return repr(list(value) if isinstance(value, tuple) else value)


def test_classes_of_keys_go_by_their_names(folder: Path) -> None:
    (folder / "legato.toml").write_text(
        'api_keys = ["ana=1", "ben=2", "a=b=3"]\nadmins = ["ana"]\nbackground_clients = ["ben", "ana"]\n'
        'gap_targets = ["ana=50", "a=b=70.5"]'
    )
    settings = load_settings()
    assert (settings.admins, settings.background_clients) == (("ana",), ("ben", "ana"))
    assert [key_gap_target_ms(target) for target in settings.gap_targets] == [("ana", 50.0), ("a=b", 70.5)]


# Which file


def test_without_a_file_there_is_none() -> None:
    assert config_file() is None


def test_the_users_own_file_is_read(user_file: Path) -> None:
    user_file.write_text("port = 4")
    assert config_file() == user_file
    assert load_settings().port == 4


def test_a_file_here_replaces_the_users_own(folder: Path, user_file: Path) -> None:
    user_file.write_text("port = 4\nctx = 400")
    (folder / "legato.toml").write_text("port = 3")
    assert (load_settings().port, load_settings().ctx) == (3, None)


def test_a_file_that_is_named_replaces_all_others(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "legato.toml").write_text("port = 3")
    named = tmp_path / "other.toml"
    named.write_text("port = 5")
    monkeypatch.setenv("LEGATO_CONFIG", str(named))
    assert load_settings().port == 5


def test_a_file_that_is_named_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEGATO_CONFIG", "nowhere.toml")
    with pytest.raises(LegatoError, match=r"LEGATO_CONFIG names nowhere\.toml, and there is no such file\."):
        load_settings()


def test_a_folder_is_no_settings_file(folder: Path) -> None:
    (folder / "legato.toml").mkdir()
    assert load_settings() == Settings()


# Flags


@pytest.mark.parametrize(
    ("name", "flag"),
    [
        ("port", "--port"),
        ("kv_type_k", "--kv-type-k"),
        ("api_keys", "--api-key"),
        ("allowed_hosts", "--allowed-host"),
        ("cors_origins", "--cors-origin"),
        ("threads", "--threads"),
        ("joined_calls", "--joined-calls"),
        ("admins", "--admin"),
        ("background_clients", "--background-client"),
        ("gap_targets", "--gap-target"),
        ("gap_target_ms", "--gap-target-ms"),
    ],
)
def test_flags_of_lists_are_singular(name: str, flag: str) -> None:
    assert flag_name(name) == flag


def test_every_flag_is_another() -> None:
    flags = [flag_name(name) for name in Settings.model_fields]
    assert len(set(flags)) == len(flags)


def test_settings_cannot_be_changed_later() -> None:
    with pytest.raises(ValueError, match="frozen"):
        load_settings().port = 5  # type: ignore[misc]
