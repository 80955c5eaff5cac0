from __future__ import annotations

import asyncio
import socket

import pytest

from legato.bench.runner import connect_all
from legato.bench.target import TargetAddress, chosen_for, parse
from legato.errors import LegatoError
from tests.bench.conftest import FakeFactory


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("a=http://127.0.0.1:1", TargetAddress("a", "http://127.0.0.1:1", None)),
        ("llama-server -b 64=http://host:8080/v1/", TargetAddress("llama-server -b 64", "http://host:8080", None)),
        ("ollama:o=http://[::1]:11434/", TargetAddress("o", "http://[::1]:11434", "ollama")),
        ("openai:o=https://host/base", TargetAddress("o", "https://host/base", "openai")),
    ],
)
def test_addresses(text: str, address: TargetAddress) -> None:
    assert parse(text) == address


@pytest.mark.parametrize(
    "text",
    ["", "a", "=http://a", "http://a:1", "a=", "a=b", "a=ftp://b", "a=http://", "a=http://b:99999", "x:y=http://b"],
)
def test_what_is_no_target(text: str) -> None:
    with pytest.raises(LegatoError, match=r"http://127\.0\.0\.1:8383|such as http"):
        parse(text)


def test_names_differ() -> None:
    with pytest.raises(LegatoError, match="Two targets are called a"):
        asyncio.run(connect_all(["a=http://b", "a=http://c"]))


def test_values_of_one_target_and_of_all() -> None:
    values = ["general", "b=special", "other=x"]
    assert chosen_for("b", values[:2], ["a", "b"]) == "special"
    assert chosen_for("a", values[:2], ["a", "b"]) == "general"
    assert chosen_for("a", ["key=="], ["a", "b"]) == "key=="
    assert chosen_for("a", [], ["a"]) is None


def test_the_only_model(fake: FakeFactory) -> None:
    target = asyncio.run(connect_all([f"a={fake().url}/v1"]))[0]
    assert (target.api, target.model) == ("openai", "tiny")


def test_ollama_is_found_out(fake: FakeFactory) -> None:
    server = fake(api="ollama", models=["tiny:latest", "big:latest"])
    target = asyncio.run(connect_all([f"a={server.url}"], ["tiny"]))[0]
    assert (target.api, target.model) == ("ollama", "tiny:latest")


def test_several_models_and_none_chosen(fake: FakeFactory) -> None:
    server = fake(models=["one", "two"])
    with pytest.raises(LegatoError, match="several models; choose one with --model: one, two"):
        asyncio.run(connect_all([f"a={server.url}"]))
    assert asyncio.run(connect_all([f"a={server.url}"], ["a=two"]))[0].model == "two"


def test_a_model_that_is_not_there(fake: FakeFactory) -> None:
    with pytest.raises(LegatoError, match="no model three; it has tiny"):
        asyncio.run(connect_all([f"a={fake().url}"], ["three"]))


def test_no_model_at_all(fake: FakeFactory) -> None:
    with pytest.raises(LegatoError, match="has no model"):
        asyncio.run(connect_all([f"a={fake(models=[]).url}"]))


def test_the_key(fake: FakeFactory) -> None:
    server = fake(key="secret")
    with pytest.raises(LegatoError, match="--api-key"):
        asyncio.run(connect_all([f"a={server.url}"]))
    assert asyncio.run(connect_all([f"a={server.url}"], (), ["secret"]))[0].api_key == "secret"


def test_neither_api(fake: FakeFactory) -> None:
    server = fake(api="ollama")
    with pytest.raises(LegatoError, match="does not list its models at /v1/models; it must"):
        asyncio.run(connect_all([f"openai:a={server.url}"]))


def test_nobody_there() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{held.getsockname()[1]}"
        with pytest.raises(LegatoError, match="can't be reached"):
            asyncio.run(connect_all([f"a={url}"]))
