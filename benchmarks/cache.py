"""What remembering prompts saves, and what it costs running answers; beside llama.cpp's own server where it can.

python -m benchmarks.cache [again|turns|together|beside|same|clock|lookup|keeping …]
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from benchmarks.http_stream import Stream, run
from benchmarks.prompts import Prompts
from benchmarks.report import Figure, save
from benchmarks.scheduling import figure, gaps_between, share_within
from benchmarks.servers import Running, Target, legato, llama_server, running
from legato.kv.entries import Entries, Entry
from legato.kv.prefixes import PrefixTree
from legato.models import default_store

DOCUMENT = 6000
"""Tokens of the long prompt."""
SETTLE_S = 4.0
"""Time for what is remembered to be saved and written."""


@dataclass(frozen=True)
class Bench:
    """What every case needs."""

    model: Path
    prompts: Prompts
    rounds: int
    seed: int = int(time.time())

    def tokens(self, name: str, length: int) -> list[int]:
        """Tokens that no other name has, and no earlier run had."""
        return self.prompts.tokens(abs(hash((self.seed, name))) % 2**31, length)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=list(CASES), metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--model", default="smollm2", help="as legato serve takes it")
    options = parser.parse_args()
    if unknown := set(options.cases) - set(CASES):
        parser.error(f"there is no case {unknown.pop()}; there are {', '.join(CASES)}")
    measure(options.cases, options.rounds, options.model)


def measure(cases: Sequence[str], rounds: int, model_name: str = "smollm2") -> None:
    """Run cases one after the other, and save each."""
    model = default_store().resolve(model_name).path
    bench = Bench(model, Prompts(model), rounds)
    for case in cases:
        save(f"cache-{case}", CASES[case](bench))


# The same prompt again


def again(bench: Bench) -> list[Figure]:
    """6,000 tokens read once, then asked for again from each tier; beyond what moving the bytes took."""
    found: dict[str, list[float]] = {}
    cold: list[float] = []
    same = True
    for number in range(bench.rounds):
        document = bench.tokens(f"document {number}", DOCUMENT)
        with tempfile.TemporaryDirectory() as folder:
            target = legato("Legato", bench.model, "--parallel", "1", "--cache-dir", folder)
            with running(target) as server:
                warm_up(server, bench)
                first = ask(server, document)
                cold.append(first.timings["ttft_ms"] / 1000)
                answers = [first]
                live = ask(server, document)
                time.sleep(SETTLE_S)
                ask(server, bench.tokens(f"somebody else {number}", 200))
                memory = ask(server, document)
                time.sleep(SETTLE_S)
            drop_page_cache(Path(folder))
            read_s = bare_read_s(Path(folder))
            drop_page_cache(Path(folder))
            with running(target) as server:
                warm_up(server, bench)
                disk = ask(server, document)
            answers += [live, memory, disk]
            for name, answer, bare_ms in (("live", live, 0.0), ("memory", memory, 0.0), ("disk", disk, 1000 * read_s)):
                times = answer.timings
                if times["cached_in"] != name:
                    raise RuntimeError(f"expected a hit from {name}, and it came from {times['cached_in']}")
                found.setdefault(name, []).append(times["ttft_ms"] - times["recall_ms"] - bare_ms)
                found.setdefault(f"{name}: whole", []).append(times["ttft_ms"])
            same &= len({answer.text for answer in answers}) == 1
    goals = {"live": "<= 30", "memory": "<= 150", "disk": "<= 500"}
    return [
        figure("cold: first token", cold, "s"),
        *(figure(f"{name}: first token", found[f"{name}: whole"], "ms") for name in goals),
        *(figure(f"{name}: beyond moving the bytes", found[name], "ms", goal) for name, goal in goals.items()),
        figure("greedy answers are the same from every tier", [float(same)], "", "= 1"),
    ]


def drop_page_cache(folder: Path) -> None:
    """Have files read from disk again, as far as an unprivileged process can ask for it."""
    os.sync()
    for path in folder.rglob("*.kv"):
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def bare_read_s(folder: Path) -> float:
    """Reading the largest file."""
    path = max(folder.rglob("*.kv"), key=lambda p: p.stat().st_size)
    begun = time.perf_counter()
    buffer = np.empty(path.stat().st_size, dtype=np.uint8)
    with path.open("rb", buffering=0) as file:
        view = memoryview(buffer)
        while count := file.readinto(view):
            view = view[count:]
    return time.perf_counter() - begun


# Conversations


def turns(bench: Bench) -> list[Figure]:
    """Ten turns of a chat, those of five others in between: more than fit into two sequences."""
    figures: list[Figure] = []
    targets: list[Target | None] = [
        legato("Legato", bench.model, "--parallel", "2", "--cache-disk-mib", "0"),
        llama_server("llama-server", bench.model, "-c", "16384", "-np", "2"),
    ]
    for target in targets:
        if target is None:
            continue
        beyond: list[float] = []
        ttfts: list[float] = []
        with running(target) as server:
            warm_up(server, bench)
            talks: list[list[dict[str, str]]] = [
                [{"role": "system", "content": bench.prompts.text(bench.seed + 17 * i, 300)}] for i in range(6)
            ]
            known = [0] * len(talks)
            for turn in range(10):
                for number, talk in enumerate(talks):
                    talk.append({"role": "user", "content": bench.prompts.text(100 * number + turn, 40)})
                    body = {"messages": talk, "max_tokens": 20, "temperature": 0, "ignore_eos": True}
                    answer = stream_of(server, "/v1/chat/completions", body)
                    if turn:
                        # All of the turn before, but for the token that was never computed and the template's.
                        beyond.append(known[number] - answer.cached_tokens)
                        ttfts.append(1000 * answer.ttft_s)
                    known[number] = answer.prompt_tokens + answer.answer_tokens
                    talk.append({"role": "assistant", "content": answer.text})
                    time.sleep(0.3)
        figures += [
            figure(f"{target.name}: tokens read beyond the new ones, a turn", beyond, "", "about 0"),
            figure(f"{target.name}: first token", ttfts, "ms"),
        ]
    return figures


def together(bench: Bench) -> list[Figure]:
    """Ten requests at once that begin with the same 2,000 tokens."""
    ratios: list[float] = []
    read: list[float] = []
    with running(legato("Legato", bench.model, "--parallel", "10", "--cache-disk-mib", "0")) as server:
        warm_up(server, bench)
        for number in range(bench.rounds):
            alone = bench.tokens(f"alone {number}", 2000)
            begun = time.perf_counter()
            ask(server, alone + bench.tokens(f"alone's end {number}", 30), answer=1)
            reading_s = time.perf_counter() - begun
            rest_s = timed(server, [alone + bench.tokens(f"rest {number} {i}", 30) for i in range(10)])[0]
            system = bench.tokens(f"system {number}", 2000)
            whole_s, streams = timed(server, [system + bench.tokens(f"ten {number} {i}", 30) for i in range(10)])
            ratios.append(whole_s / (reading_s + rest_s))
            read.append(sum(last_timings(stream)["prefill_tokens"] for stream in streams))
    return [
        figure("ten with the same beginning, over one reading and the rest", ratios, "", "<= 1.2"),
        figure("tokens read by all ten (2,000 and 10 times 30 are new)", read, ""),
    ]


def timed(server: Running, prompts: Sequence[list[int]]) -> tuple[float, list[Stream]]:
    """Send all at once; how long they took together."""
    streams = [Stream(f"{i}", "/v1/completions", body_of(prompt, 8)) for i, prompt in enumerate(prompts)]
    begun = time.perf_counter()
    run(server.port, streams, timeout_s=600)
    return time.perf_counter() - begun, streams


# Running answers


def beside(bench: Bench) -> list[Figure]:
    """A chat while others' remembered prompts are moved, saved and given up; and without them."""
    shares: dict[str, list[float]] = {"without": [], "beside": []}
    worst: dict[str, list[float]] = {"without": [], "beside": []}
    with running(legato("Legato", bench.model, "--parallel", "2", "--cache-memory-mib", "220")) as server:
        warm_up(server, bench)
        documents = [bench.tokens(f"document {i}", 1500) for i in range(4)]
        for document in documents:
            ask(server, document)
            time.sleep(1.0)
        for number in range(bench.rounds):
            for case in shares:
                chat = Stream("chat", "/v1/completions", body_of(bench.tokens(f"chat {case} {number}", 40), 400))
                moves = [
                    Stream(f"{i}", "/v1/completions", body_of(documents[i % 4], 2), start_after_s=3.0 + 1.5 * i)
                    for i in range(12)
                ]
                run(server.port, [chat, *(moves if case == "beside" else [])], until=[chat], timeout_s=600)
                gaps = gaps_between(chat, chat.times_s[0], chat.times_s[-1])
                shares[case].append(share_within(gaps))
                worst[case].append(1000 * max(gaps))
    return [
        *(figure(f"chat's gaps within 100 ms, {case}", values, "%") for case, values in shares.items()),
        *(figure(f"chat's longest gap, {case}", values, "ms") for case, values in worst.items()),
    ]


# The same answers


def same(bench: Bench) -> list[Figure]:
    """Greedy answers to prompts that are remembered, wholly or in part, beside a server that remembers nothing."""
    prompts = [bench.tokens(f"base {i % 3}", 400) + bench.tokens(f"end {i}", 10 + 7 * i) for i in range(12)]
    with running(legato("cold", bench.model, "--cache-scope", "off")) as server:
        cold = [ask(server, prompt, answer=40).text for prompt in prompts]
    with running(legato("Legato", bench.model, "--cache-disk-mib", "0")) as server:
        answers = [ask(server, prompt, answer=40) for _ in range(2) for prompt in prompts]
    hits = sum(answer.cached_tokens > 0 for answer in answers)
    alike = sum(answer.text == text for answer, text in zip(answers, cold * 2, strict=True))
    return [
        figure("requests that began with a remembered prompt", [float(hits)], f"of {len(answers)}"),
        figure("greedy answers that are the same as cold", [100 * alike / len(answers)], "%", "= 100"),
    ]


def clock(bench: Bench) -> list[Figure]:
    """Five turns of a chat whose system prompt begins with a clock: is the reader told?"""
    told = 0
    lost: list[float] = []
    with running(legato("Legato", bench.model, "--cache-disk-mib", "0")) as server:
        messages: list[dict[str, str]] = []
        rules = bench.prompts.text(bench.seed, 600)
        for turn in range(6):
            system = {"role": "system", "content": f"It is 10:{14 + 3 * turn}:{11 + 7 * turn}. {rules}"}
            messages.append({"role": "user", "content": f"Tell me about the river, part {turn}."})
            body = {"messages": [system, *messages], "max_tokens": 20, "temperature": 0}
            answer = post(server, "/v1/chat/completions", body)
            messages.append({"role": "assistant", "content": answer["choices"][0]["message"]["content"]})
            reread = answer["timings"]["reread"]
            if turn and reread is not None and reread["kind"] == "number":
                told += 1
                lost.append(reread["lost_tokens"])
    return [
        figure("turns after the first whose reader was told that a number changed", [float(told)], "", "= 5"),
        figure("tokens that it cost", lost or [0.0], ""),
    ]


# Without a server


def lookup(bench: Bench) -> list[Figure]:
    """The longest remembered prefix of 32,000 tokens among 1,000 entries."""
    random_numbers = np.random.default_rng(bench.seed)
    base = random_numbers.integers(0, 50_000, 32_000).astype(np.int32)
    tree = PrefixTree()
    for number in range(1000):
        shared = int(random_numbers.integers(0, 32_000))
        own = random_numbers.integers(0, 50_000, 2000).astype(np.int32)
        tree.insert(str(number), np.concatenate([base[:shared], own]))
    found = []
    for _ in range(50):
        begun = time.perf_counter()
        tree.longest(base)
        found.append(1000 * (time.perf_counter() - begun))
    return [figure("longest prefix of 32,000 tokens among 1,000 entries", found, "ms", "<= 2")]


def keeping(bench: Bench) -> list[Figure]:
    """Which entries to keep: reading that a chat trace needs, beside keeping those that were used last."""
    figures = []
    for share in (0.05, 0.15, 0.4):
        ratios = []
        for number in range(max(5, bench.rounds)):
            needs = {by_recency: replay(number, share, by_recency=by_recency) for by_recency in (True, False)}
            ratios.append(needs[False] / needs[True])
        what = f"reading needed over that of least recently used, room for {share:.0%} of all conversations"
        figures.append(figure(what, ratios, ""))
    return figures


def replay(seed: int, share: float, *, by_recency: bool) -> float:
    """Tokens that have to be read in a chat trace, if so much of it can be remembered.

    Forty people talk; some come back often, some once, a fifth of the talks begin with a long document; half of all
    share one of three system prompts.
    """
    numbers = random.Random(seed)
    systems = [[1_000_000 + 1000 * i + j for j in range(400)] for i in range(3)]
    talks: list[list[int]] = []
    for i in range(40):
        begin = list(numbers.choice(systems)) if numbers.random() < 0.5 else []
        length = numbers.randrange(1500, 4000) if numbers.random() < 0.2 else numbers.randrange(20, 300)
        talks.append(begin + [10_000 * i + j for j in range(length)])
    returns = [numbers.paretovariate(1.2) for _ in talks]
    total = sum(len(talk) for talk in talks) + 600 * 60
    entries = Entries({"memory": int(share * total), "disk": 0})

    def rate(entry: Entry, step: int) -> None:
        if by_recency:  # least recently used goes first, whatever else it is worth
            entry.worth["memory"] = float(step)

    read = 0.0
    for step in range(600):
        (i,) = numbers.choices(range(len(talks)), weights=returns)
        talks[i] += [10_000_000 + 100 * step + j for j in range(60)]
        tokens = np.array(talks[i], dtype=np.int32)
        known, found = entries.longest(tokens, "")
        if found:
            entries.use(found[0], float(step))
            rate(found[0], step)
        read += cost(len(tokens)) - cost(known)
        entry = entries.add(Entry(str(step), "", tokens, len(tokens), cost(len(tokens)), float(step)), "memory")
        for length, shorter in entries.beginnings(tokens, ""):
            if length < len(tokens):
                entry.hits = max(entry.hits, shorter.hits)
                entries.drop(shorter, "memory")
        rate(entry, step)
        entries.shrink("memory")
    return read


def cost(tokens: int) -> float:
    """Reading so many tokens: later ones attend to more."""
    return tokens + tokens**2 / 8000


# Requests


def warm_up(server: Running, bench: Bench) -> None:
    """A first request."""
    ask(server, bench.tokens("warm up", 100), answer=10)


def body_of(prompt: list[int], answer: int) -> dict[str, Any]:
    """A greedy completion."""
    return {"prompt": prompt, "max_tokens": answer, "temperature": 0, "ignore_eos": True}


@dataclass(frozen=True)
class Answer:
    """What came of one streamed request."""

    text: str
    ttft_s: float
    prompt_tokens: int
    answer_tokens: int
    cached_tokens: int
    timings: dict[str, Any]


def ask(server: Running, prompt: list[int], *, answer: int = 8) -> Answer:
    """Send a prompt of tokens."""
    return stream_of(server, "/v1/completions", body_of(prompt, answer))


def stream_of(server: Running, path: str, body: dict[str, Any]) -> Answer:
    """Send a request and read its stream to the end."""
    stream = Stream("one", path, body | {"stream_options": {"include_usage": True}})
    run(server.port, [stream], timeout_s=600)
    events = stream.events()
    choices = [choice for event in events for choice in event.get("choices", ())]
    usage = next(event["usage"] for event in reversed(events) if event.get("usage"))
    return Answer(
        "".join(choice.get("text") or choice.get("delta", {}).get("content") or "" for choice in choices),
        stream.ttft_s,
        usage["prompt_tokens"],
        usage["completion_tokens"],
        (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0),
        next((event["timings"] for event in reversed(events) if event.get("timings")), {}),
    )


def last_timings(stream: Stream) -> dict[str, Any]:
    """Of the end of a stream."""
    timings: dict[str, Any] = next(event["timings"] for event in reversed(stream.events()) if event.get("timings"))
    return timings


def post(server: Running, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """A request that is not streamed."""
    answer: dict[str, Any] = httpx.post(f"http://127.0.0.1:{server.port}{path}", json=body, timeout=600).json()
    return answer


CASES: dict[str, Callable[[Bench], list[Figure]]] = {
    "again": again,
    "turns": turns,
    "together": together,
    "beside": beside,
    "same": same,
    "clock": clock,
    "lookup": lookup,
    "keeping": keeping,
}


if __name__ == "__main__":
    main()
