from __future__ import annotations

import pytest

from tests.support.server import LegatoProcess

QUESTION = [{"role": "user", "content": "Name the capital of France."}]


def test_plain_answer(server: LegatoProcess) -> None:
    answer = server.openai().chat.completions.create(model="smollm2", messages=QUESTION, temperature=0)
    assert answer.object == "chat.completion"
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].message.content == "The capital of France is Paris."
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 7
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 7


def test_streamed_answer_is_the_plain_one(server: LegatoProcess) -> None:
    client = server.openai()
    chunks = list(client.chat.completions.create(model="smollm2", messages=QUESTION, temperature=0, stream=True))
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text == "The capital of France is Paris."
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices[0].finish_reason] == ["stop"]
    assert all(chunk.usage is None for chunk in chunks)


@pytest.mark.parametrize("stream", [False, True])
def test_timings_add_up(server: LegatoProcess, stream: bool) -> None:
    result = server.openai().chat.completions.create(
        model="smollm2", messages=QUESTION, max_tokens=20, stream=stream, extra_body={"ignore_eos": True}
    )
    last = list(result)[-1] if stream else result
    timings = last.model_extra["timings"]
    parts = sum(timings[name] for name in ("load_ms", "queue_ms", "prefill_ms", "decode_ms"))
    assert parts == pytest.approx(timings["total_ms"], abs=0.01)
    assert timings["load_ms"] == 0
    assert timings["decode_tokens"] == 20
    assert timings["itl_p50_ms"] <= timings["itl_p95_ms"] <= timings["itl_max_ms"]
    assert timings["ttft_ms"] == pytest.approx(timings["total_ms"] - timings["decode_ms"], abs=0.01)
