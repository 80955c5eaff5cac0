"""What is remembered, on the real model: read once, from every tier, with the same answers."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import ServerFactory
from tests.support.asking import ask, timings_of
from tests.support.server import LegatoProcess
from tests.support.waiting import wait_until

ROOM = ("--parallel", "2", "--ctx", "2048")
READ_AT_LEAST = 4
BOOK = [500 + (37 * i) % 9000 for i in range(700)]
"""A prompt that takes seconds to read and is no other test's beginning."""


def book(name: int, length: int = 700) -> list[int]:
    """A prompt that shares nothing with those of other names."""
    return [10_000 + name, *BOOK[: length - 1]]


def times_of(server: LegatoProcess, prompt: Any, tokens: int = 12, **options: Any) -> tuple[str, dict[str, Any]]:
    """An answer's text and timings."""
    answer = ask(server.openai(), "completions", prompt, max_tokens=tokens, extra_body={"ignore_eos": True}, **options)
    timings = timings_of(answer)
    assert timings is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == timings["cached_tokens"]
    assert timings["cached_tokens"] + timings["prefill_tokens"] == answer.usage.prompt_tokens
    return answer.choices[0].text, timings


def remembered(server: LegatoProcess) -> dict[str, Any]:
    found: dict[str, Any] = server.get("/api/cache").json()
    return found


@pytest.fixture(scope="module")
def keeping(model_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LegatoProcess]:
    """A server with all tiers."""
    environment = {"LEGATO_CACHE_DISK_MIB": "500"}
    folder = tmp_path_factory.mktemp("cache")
    with LegatoProcess("smollm2", *ROOM, "--cache-dir", str(folder), environment=environment) as process:
        process.wait_ready()
        yield process


def test_the_same_prompt_again_is_read_from_where_it_is(keeping: LegatoProcess) -> None:
    text, cold = times_of(keeping, book(1))
    assert (cold["cached_tokens"], cold["cached_in"], cold["saved_ms"]) == (0, None, 0)
    again, warm = times_of(keeping, book(1))
    assert warm["cached_tokens"] == 700 - READ_AT_LEAST
    assert again == text
    assert warm["saved_ms"] > 0


def test_whoever_goes_on_where_an_answer_ended_goes_on_in_its_cells(keeping: LegatoProcess) -> None:
    answer = ask(keeping.openai(), "completions", book(14, 100), max_tokens=1)
    assert answer.usage.total_tokens == 101
    _, timings = times_of(keeping, [*book(14, 100), *range(40_000, 40_010)])
    assert (timings["cached_tokens"], timings["cached_in"], timings["recall_ms"]) == (100, "live", 0)


def test_a_conversation_reads_only_what_is_new(keeping: LegatoProcess) -> None:
    talk = [{"role": "user", "content": "Tell me about rivers."}]
    known = 0
    for turn in range(3):
        reply = ask(keeping.openai(), "chat", talk, max_tokens=10, extra_body={"ignore_eos": True})
        timings = timings_of(reply)
        assert timings is not None
        # The answer's last token was never computed, and the template's words around it are new.
        assert timings["cached_tokens"] >= known - 2
        known = reply.usage.total_tokens
        talk += [
            {"role": "assistant", "content": reply.choices[0].message.content},
            {"role": "user", "content": f"And then? ({turn})"},
        ]


def test_a_fork_shares_the_beginning_and_leaves_the_other_as_it_was(keeping: LegatoProcess) -> None:
    text, _ = times_of(keeping, book(2))
    fork = [*book(2)[:600], *(20_000 + i for i in range(50))]
    _, forked = times_of(keeping, fork)
    assert forked["cached_tokens"] == 600
    again, other = times_of(keeping, book(2))
    assert other["cached_tokens"] == 700 - READ_AT_LEAST
    assert again == text


def test_it_comes_from_memory_once_its_cells_are_used_by_others(keeping: LegatoProcess) -> None:
    text, _ = times_of(keeping, book(3))
    wait_until(lambda: remembered(keeping)["tiers"]["memory"]["tokens"] >= 700, "it is saved")
    for name in (4, 5, 6):
        times_of(keeping, book(name, 300))
    again, timings = times_of(keeping, book(3))
    assert (timings["cached_tokens"], timings["cached_in"]) == (700 - READ_AT_LEAST, "memory")
    assert again == text
    assert timings["recall_ms"] > 0


def test_it_survives_a_restart(serve: ServerFactory, tmp_path: Path) -> None:
    options = ("smollm2", *ROOM, "--cache-dir", str(tmp_path / "cache"))
    environment = {"LEGATO_CACHE_DISK_MIB": "200"}
    server = serve(*options, environment=environment)
    text, _ = times_of(server, book(7))
    server.terminate()
    server.wait_ended(timeout_s=30)
    files = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert any(path.stat().st_size > 700 * 10_000 for path in files)
    assert {stat.S_IMODE(path.stat().st_mode) & 0o077 for path in files} == {0}
    server = serve(*options, environment=environment)
    assert remembered(server)["tiers"]["disk"]["tokens"] >= 700
    again, timings = times_of(server, book(7))
    assert (timings["cached_tokens"], timings["cached_in"]) == (700 - READ_AT_LEAST, "disk")
    assert again == text
    (newest,) = server.get("/api/requests", params={"limit": 1}).json()["requests"]
    sentences = server.get(f"/api/requests/{newest['id']}").json()["verdict"]["sentences"]
    assert any("696 of 700 prompt tokens were remembered from disk" in sentence for sentence in sentences)


def test_a_damaged_file_is_read_again_and_removed(serve: ServerFactory, tmp_path: Path) -> None:
    options = ("smollm2", *ROOM, "--cache-dir", str(tmp_path))
    environment = {"LEGATO_CACHE_DISK_MIB": "200"}
    server = serve(*options, environment=environment)
    text, _ = times_of(server, book(8))
    server.terminate()
    server.wait_ended(timeout_s=30)
    (file,) = tmp_path.rglob("*.kv")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    server = serve(*options, environment=environment)
    again, timings = times_of(server, book(8))
    assert (again, timings["cached_tokens"]) == (text, 0)
    assert not file.exists() or file.read_bytes() != data


def test_many_at_once_with_the_same_beginning_read_it_once(keeping: LegatoProcess) -> None:
    prompts = [[*book(9), *(30_000 + 10 * i + j for j in range(8))] for i in range(5)]

    async def all_of_them() -> list[dict[str, Any]]:
        async with keeping.async_openai() as client:
            replies = await asyncio.gather(
                *(client.completions.create(model="smollm2", prompt=prompt, max_tokens=3) for prompt in prompts)
            )
        return [reply.model_extra["timings"] for reply in replies]

    found = asyncio.run(all_of_them())
    assert sorted(timings["cached_tokens"] for timings in found) == [0, 700, 700, 700, 700]


def test_keys_that_are_kept_apart_hit_only_their_own(serve: ServerFactory) -> None:
    server = serve("smollm2", *ROOM, "--cache-scope", "key", "--api-key", "ana=a-secret", "--api-key", "ben=b-secret")

    def cached(secret: str) -> int:
        reply = ask(server.openai(api_key=secret), "completions", book(10, 200), max_tokens=2)
        tokens: int = reply.usage.prompt_tokens_details.cached_tokens
        return tokens

    assert [cached(secret) for secret in ("a-secret", "b-secret", "a-secret")] == [0, 0, 200 - READ_AT_LEAST]


def test_a_document_that_is_answered_with_one_token_is_remembered(keeping: LegatoProcess) -> None:
    """Long prompts are read in a context of their own, which such an answer ends in."""
    text, _ = times_of(keeping, book(15), 1)
    again, timings = times_of(keeping, book(15), 1)
    assert (again, timings["cached_tokens"]) == (text, 700 - READ_AT_LEAST)


def test_nothing_is_remembered_if_that_is_off(serve: ServerFactory) -> None:
    server = serve("smollm2", *ROOM, "--cache-scope", "off")
    assert [times_of(server, book(11, 200))[1]["cached_tokens"] for _ in range(2)] == [0, 0]
    assert [times_of(server, book(11), 1)[1]["cached_tokens"] for _ in range(2)] == [0, 0]
    assert remembered(server)["entries"] == []


def test_clearing_forgets(keeping: LegatoProcess) -> None:
    times_of(keeping, book(12, 200))
    assert times_of(keeping, book(12, 200))[1]["cached_tokens"] > 0
    assert httpx.delete(f"{keeping.url}/api/cache").status_code == 200
    assert remembered(keeping)["entries"] == []
    assert times_of(keeping, book(12, 200))[1]["cached_tokens"] == 0


def test_a_clock_in_the_first_line_is_named_with_its_cost(keeping: LegatoProcess) -> None:
    rules = " ".join(f"Rule {i}: be kind to number {i}." for i in range(30))
    reread = []
    for minute in (14, 27):
        system = {"role": "system", "content": f"It is 10:{minute} now. {rules}"}
        reply = ask(keeping.openai(), "chat", [system, {"role": "user", "content": "Hello!"}], max_tokens=3)
        timings = timings_of(reply)
        assert timings is not None
        reread.append(timings["reread"])
    assert reread[0] is None
    assert reread[1]["kind"] == "number"
    assert (reread[1]["was"].strip(), reread[1]["now"].strip()) == ("14", "27")
    assert 0.8 * reply.usage.prompt_tokens < reread[1]["lost_tokens"] < reply.usage.prompt_tokens
    record = keeping.get(f"/api/requests/{reply.id}").json()
    assert record["request"]["timings"]["reread"]["now"] is None
    assert any("a number changed" in sentence for sentence in record["verdict"]["sentences"])


def test_metrics_tell_hits_and_bytes_by_tier(keeping: LegatoProcess) -> None:
    times_of(keeping, book(13, 200))
    times_of(keeping, book(13, 200))
    text = keeping.get("/metrics").text
    values = {line.split(" ")[0]: float(line.split(" ")[1]) for line in text.splitlines() if line[0] != "#"}
    assert values['legato_cache_hits_total{tier="live"}'] >= 1
    assert values["legato_cache_saved_seconds_total"] > 0
    assert values['legato_rereads_total{kind="number"}'] >= 1
    assert values['legato_cache_budget_bytes{tier="disk"}'] == 500 * 2**20
    assert values["legato_kv_cells_parked"] > 0


def test_a_model_with_sliding_windows_goes_on_where_it_was(serve: ServerFactory, gemma_path: Path) -> None:
    server = serve("gemma3-270m", "--parallel", "2", "--ctx", "2048")
    counting = ("one two three four five six seven eight nine ten " * 90).strip()
    # Both are longer than its window of 512 tokens.
    fork = counting[: 5 * len(counting) // 6] + "and then he said one two three four"
    found = [times_of(server, prompt, 8, model="gemma3-270m") for prompt in (counting, fork, counting, fork)]
    texts, times = zip(*found, strict=True)
    assert texts[:2] == texts[2:]
    assert texts[0].split()[:3] == ["one", "two", "three"]
    assert texts[1].split()[0] == "five"
    assert times[0]["cached_tokens"] == 0
    assert [timings["cached_tokens"] >= 700 for timings in times[1:]] == [True] * 3
