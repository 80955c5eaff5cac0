"""`/health` and `/v1/models`."""

from __future__ import annotations

import httpx
import openai
import pytest

from tests.support.server import LegatoProcess


def test_health_of_a_ready_server(server: LegatoProcess) -> None:
    assert server.health() == (200, {"status": "ok", "model": "smollm2"})


def test_the_served_model_is_listed(server: LegatoProcess) -> None:
    models = server.openai().models.list().data
    assert [model.id for model in models] == ["smollm2"]
    assert models[0].object == "model"
    assert models[0].created > 0
    assert models[0].model_extra["context_length"] == 2048
    assert models[0].model_extra["parallel"] == 8


def test_the_served_model_is_found_by_its_name(server: LegatoProcess) -> None:
    assert server.openai().models.retrieve("smollm2") == server.openai().models.list().data[0]


@pytest.mark.parametrize("name", ["gpt-4o", "smollm", "SMOLLM2", "a/b", "smollm2/x"])
def test_another_model_is_not_found(server: LegatoProcess, name: str) -> None:
    with pytest.raises(openai.NotFoundError, match="smollm2") as caught:
        server.openai().models.retrieve(name)
    assert caught.value.code == "model_not_found"


def test_an_alias_is_the_name_that_clients_use(serve) -> None:
    process = serve("smollm2", "--alias", "house/model", "--ctx", "256", "--parallel", "1")
    client = process.openai()
    assert client.models.retrieve("house/model").id == "house/model"
    result = client.completions.create(model="house/model", prompt="Hi", max_tokens=1)
    assert result.model == "house/model"
    with pytest.raises(openai.NotFoundError):
        client.completions.create(model="smollm2", prompt="Hi", max_tokens=1)


def test_a_request_may_leave_the_model_out(server: LegatoProcess) -> None:
    reply = httpx.post(f"{server.url}/v1/completions", json={"prompt": "Hi", "max_tokens": 1}, timeout=30)
    assert reply.json()["model"] == "smollm2"
