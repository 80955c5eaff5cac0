"""Token counts and timings: where they stand in answers and streams, and that they agree with each other."""

from __future__ import annotations

import pytest

from tests.support.asking import Api, ask, read, timings_of
from tests.support.server import LegatoProcess

pytestmark = pytest.mark.parametrize("api", ["chat", "completions"])


def test_with_include_usage_the_last_chunk_alone_has_counts_and_timings(server: LegatoProcess, api: Api) -> None:
    stream = ask(server.openai(), api, max_tokens=5, stream=True, stream_options={"include_usage": True})
    *chunks, last = read(stream).chunks
    assert last.choices == []
    assert last.usage.completion_tokens == 5
    assert last.usage.total_tokens == last.usage.prompt_tokens + 5
    assert timings_of(last)["decode_tokens"] == 5
    assert all(chunk.usage is None for chunk in chunks)
    assert all(timings_of(chunk) is None for chunk in chunks)
    assert all(len(chunk.choices) == 1 for chunk in chunks)


@pytest.mark.parametrize("options", [{}, {"stream_options": {"include_usage": False}}, {"stream_options": {}}])
def test_without_include_usage_the_chunk_that_ends_the_answer_has_timings(
    server: LegatoProcess, api: Api, options: dict
) -> None:
    chunks = read(ask(server.openai(), api, max_tokens=5, stream=True, **options)).chunks
    assert all(chunk.usage is None for chunk in chunks)
    timed = [chunk for chunk in chunks if timings_of(chunk)]
    assert timed == chunks[-1:]
    assert timed[0].choices[0].finish_reason == "length"
    assert timings_of(timed[0])["decode_tokens"] == 5


def test_a_stream_counts_as_the_plain_answer_does(server: LegatoProcess, api: Api) -> None:
    client = server.openai()
    plain = ask(client, api, max_tokens=30)
    stream = ask(client, api, max_tokens=30, stream=True, stream_options={"include_usage": True})
    assert read(stream).chunks[-1].usage == plain.usage


def test_counts_and_timings_of_a_plain_answer_agree(server: LegatoProcess, api: Api) -> None:
    plain = ask(server.openai(), api, max_tokens=6, extra_body={"ignore_eos": True})
    timings = timings_of(plain)
    assert plain.usage.completion_tokens == timings["decode_tokens"] == 6
    assert plain.usage.prompt_tokens == timings["prefill_tokens"] + timings["cached_tokens"]
    assert plain.usage.prompt_tokens_details.cached_tokens == timings["cached_tokens"]
    assert timings_of(plain.choices[0]) is None


def test_all_chunks_of_a_stream_belong_together(server: LegatoProcess, api: Api) -> None:
    chunks = read(ask(server.openai(), api, max_tokens=5, stream=True)).chunks
    assert len({(chunk.id, chunk.created, chunk.model, chunk.object) for chunk in chunks}) == 1
    assert chunks[0].model == "smollm2"
    assert chunks[0].object == {"chat": "chat.completion.chunk", "completions": "text_completion"}[api]


def test_two_answers_have_different_ids(server: LegatoProcess, api: Api) -> None:
    client = server.openai()
    assert ask(client, api, max_tokens=1).id != ask(client, api, max_tokens=1).id


def test_one_token_has_no_gaps(server: LegatoProcess, api: Api) -> None:
    timings = timings_of(ask(server.openai(), api, max_tokens=1))
    assert timings["decode_tokens"] == 1
    gaps = ("itl_p50_ms", "itl_p95_ms", "itl_max_ms", "decode_tokens_per_second")
    assert [timings[name] for name in gaps] == [None] * 4


def test_running_counts_grow_to_the_last_one(server: LegatoProcess, api: Api) -> None:
    wanted = {"include_usage": True, "continuous_usage_stats": True}
    chunks = list(ask(server.openai(), api, stream=True, stream_options=wanted, n=2))
    for index in range(2):
        counts = [c.usage.completion_tokens for c in chunks if c.usage and c.choices and c.choices[0].index == index]
        assert counts == sorted(set(counts))
        assert counts[0] >= 1
    assert chunks[-1].usage.completion_tokens == sum(
        max(c.usage.completion_tokens for c in chunks[:-1] if c.usage and c.choices[0].index == index)
        for index in range(2)
    )
