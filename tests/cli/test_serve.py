"""`legato serve`: what it refuses to start with, and in which words."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.support.command import refused, run_legato
from tests.support.server import LegatoProcess

# Models


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    sentence = refused("serve", "smolm2")
    assert "smolm2" in sentence
    assert "did you mean smollm2" in sentence


@pytest.mark.parametrize("name", ["", " ", "no model at all", "hf:", "hf:only-an-owner", "https://example.com/x.gguf"])
def test_what_names_no_model_is_refused(name: str) -> None:
    assert refused("serve", name)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "gone.gguf"
    assert str(path) in refused("serve", str(path))


def test_a_folder_is_refused(tmp_path: Path) -> None:
    assert "folder" in refused("serve", str(tmp_path))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"Dear diary,\n", "not a GGUF file"),
        (b"", "empty"),
        (b"<!doctype html><html></html>", "web page"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git-lfs"),
        (b"PK\x03\x04" + bytes(100), "zip archive"),
        (b"GGUF", ""),
        (b"GGUF\x03\x00\x00\x00" + b"\xff" * 16, ""),
        (bytes(1000), "not a GGUF file"),
    ],
    ids=["text", "empty", "web page", "lfs pointer", "zip", "magic alone", "absurd counts", "zeros"],
)
def test_another_kind_of_file_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    sentence = refused("serve", str(path))
    assert str(path) in sentence
    assert words in sentence


@pytest.mark.parametrize("share", [0.0001, 0.01, 0.5, 0.999])
def test_a_truncated_model_is_refused(tmp_path: Path, model_path: Path, share: float) -> None:
    path = tmp_path / "cut.gguf"
    with model_path.open("rb") as whole:
        path.write_bytes(whole.read(int(model_path.stat().st_size * share)))
    assert str(path) in refused("serve", str(path))


# Addresses


def test_a_port_in_use_is_refused() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        sentence = refused("serve", "--port", str(port))
    assert str(port) in sentence
    assert "--port" in sentence


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "some.host.example"])
def test_a_network_address_without_a_key_is_refused(host: str) -> None:
    sentence = refused("serve", "--host", host)
    assert host in sentence
    assert "--api-key" in sentence
    assert "--no-auth" in sentence


def test_an_address_of_another_machine_is_refused() -> None:
    assert "192.0.2.1" in refused("serve", "--host", "192.0.2.1", "--no-auth")


def test_a_host_that_is_no_name_is_refused() -> None:
    assert "no such host" in refused("serve", "--host", "no such host", "--no-auth")


@pytest.mark.parametrize("permission", [("--no-auth",), ("--api-key", "sesame")], ids=lambda options: options[0])
def test_with_a_key_or_an_explicit_wish_it_listens_to_the_network(serve, permission: tuple[str, ...]) -> None:
    process = serve("smollm2", "--ctx", "256", "--parallel", "1", "--host", "0.0.0.0", *permission)
    assert process.health()[0] == 200


# Settings


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--port", "65536"), ("--port", "65535", "65536")),
        (("--port", "-1"), ("--port", "-1")),
        (("--ctx", "100"), ("--ctx", "256", "100")),
        (("--parallel", "0"), ("--parallel", "0")),
        (("--parallel", "1000"), ("--parallel", "256")),
        (("--chunk", "0"), ("--chunk",)),
        (("--max-queue", "-1"), ("--max-queue",)),
        (("--policy", "fair"), ("--policy", "chunked", "whole", "fair")),
        (("--flash-attention", "maybe"), ("--flash-attention", "auto")),
        (("--kv-type-k", "q3"), ("--kv-type-k", "q8_0")),
        (("--grace", "nan"), ("--grace",)),
        (("--grace", "-1"), ("--grace",)),
        (("--max-body-mib", "0"), ("--max-body-mib",)),
        (("--max-body-mib", "inf"), ("--max-body-mib",)),
        (("--api-key", ""), ("--api-key",)),
        (("--api-key", "ada="), ("--api-key",)),
        (("--threads", "0"), ("--threads",)),
        (("--batch", "1"), ("--batch",)),
    ],
    ids=lambda value: " ".join(value) if value[0].startswith("--") else "",
)
def test_a_wrong_value_is_refused_by_its_flag(flags: tuple[str, str], words: tuple[str, ...]) -> None:
    sentence = refused("serve", *flags)
    assert all(word in sentence for word in words), sentence


@pytest.mark.parametrize("flags", [("--port", "http"), ("--ctx", "2k"), ("--grace", "soon"), ("--port",)])
def test_a_value_of_another_kind_is_a_usage_error(flags: tuple[str, ...]) -> None:
    done = run_legato("serve", *flags)
    assert done.returncode == 2
    assert flags[0] in done.stderr


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("LEGATO_PORT", "http", ("LEGATO_PORT", "http")),
        ("LEGATO_PORT", "70000", ("LEGATO_PORT", "65535")),
        ("LEGATO_PROT", "8383", ("LEGATO_PROT", "LEGATO_PORT")),
        ("LEGATO_POLICY", "fair", ("LEGATO_POLICY", "chunked")),
        ("LEGATO_NO_AUTH", "perhaps", ("LEGATO_NO_AUTH",)),
        ("LEGATO_API_KEYS", "a,b=", ("LEGATO_API_KEYS",)),
        ("LEGATO_CONFIG", "/nowhere/legato.toml", ("LEGATO_CONFIG", "/nowhere/legato.toml")),
        ("LEGATO_MODEL", "smolm2", ("smollm2",)),
    ],
)
def test_a_wrong_variable_is_refused_by_its_name(variable: str, value: str, words: tuple[str, ...]) -> None:
    sentence = refused("serve", environment={variable: value})
    assert all(word in sentence for word in words), sentence


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("port = ", ("legato.toml", "TOML")),
        ("prot = 8383", ("prot", "port", "legato.toml")),
        ("port = 'http'", ("port", "legato.toml")),
        ("[serve]\nport = 1", ("serve", "legato.toml")),
        ("model = 5", ("model", "legato.toml")),
        ("\x00", ("legato.toml",)),
    ],
)
def test_a_wrong_settings_file_is_refused_by_its_line(tmp_path: Path, text: str, words: tuple[str, ...]) -> None:
    (tmp_path / "legato.toml").write_text(text)
    sentence = refused("serve", folder=tmp_path)
    assert all(word in sentence for word in words), sentence


def test_a_settings_file_that_is_no_utf_8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "legato.toml").write_bytes(b"alias = '\xff'")
    assert "legato.toml" in refused("serve", folder=tmp_path)


def test_a_flag_wins_over_a_variable_and_that_over_the_file(serve, tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text("alias = 'file'\nctx = 512\nparallel = 2\n")
    environment = {"LEGATO_CONFIG": str(path), "LEGATO_ALIAS": "variable", "LEGATO_CTX": "256"}
    process = serve("smollm2", "--alias", "flag", environment=environment)
    (card,) = process.openai().models.list().data
    assert (card.id, card.model_extra["context_length"], card.model_extra["parallel"]) == ("flag", 256, 2)


# What only the model shows to be wrong


@pytest.mark.parametrize("template", ["no-such-template", "{% if %}"])
def test_a_wrong_chat_template_is_refused_before_anything_is_loaded(tmp_path: Path, template: str) -> None:
    if template.startswith("{"):
        path = tmp_path / "template.jinja"
        path.write_text(template)
        template = str(path)
    with LegatoProcess("smollm2", "--ctx", "256", "--chat-template", template) as process:
        assert process.wait_ended(timeout_s=20) == 1
        assert "template" in process.output()
        assert "Traceback" not in process.output()


def test_a_context_beyond_the_models_is_reported() -> None:
    with LegatoProcess("smollm2", "--ctx", "100000", "--parallel", "1") as process:
        assert "8192" in process.wait_for("failed")["reason"]
        assert "Traceback" not in process.output()


def test_it_says_where_it_is_and_how_to_talk_to_it(server: LegatoProcess) -> None:
    text = server.output()
    assert f"{server.url}/v1" in text
    assert "8 answers at once" in text
    assert "legato chat" in text


def test_two_servers_side_by_side(serve) -> None:
    first, second = (serve("smollm2", "--ctx", "256", "--parallel", "1") for _ in range(2))
    assert first.health()[0] == second.health()[0] == 200
