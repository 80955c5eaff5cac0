"""Synthetic bench runs: no server is needed to test what becomes of the figures."""

from __future__ import annotations

import random
from itertools import accumulate

from legato.bench.results import BenchRun, MeasuredRequest, ScenarioName, TargetRun

HOSTILE = '<script>alert("x")</script>\x1b[31m & [red]'


def request(
    role: str = "question",
    *,
    sent: float = 0.0,
    ttft: float = 0.5,
    gaps: list[float] | None = None,
    prompt: int | None = 100,
    cached: int | None = 0,
    tokens: int | None = None,
    error: str = "",
    in_round: int = 0,
) -> MeasuredRequest:
    events = list(accumulate(gaps or [], initial=ttft))
    return MeasuredRequest(
        role=role,
        round=in_round,
        sent_s=sent,
        prompt_tokens=prompt,
        cached_tokens=cached,
        answer_tokens=tokens if tokens is not None else len(events),
        wanted_tokens=len(events),
        event_s=events,
        ended_s=events[-1] + 0.01,
        error=error,
    )


def failed(role: str = "question", *, sent: float = 0.0, error: str = "The server answered 503.") -> MeasuredRequest:
    return MeasuredRequest(role=role, sent_s=sent, wanted_tokens=20, ended_s=0.2, error=error)


def in_one_piece(sent: float = 0.0) -> MeasuredRequest:
    return MeasuredRequest(
        role="question",
        sent_s=sent,
        prompt_tokens=100,
        answer_tokens=20,
        wanted_tokens=20,
        event_s=[3.0],
        ended_s=3.0,
        streamed=False,
    )


def bench(
    *runs: TargetRun, scenario: ScenarioName = "solo", options: dict[str, object] | None = None, complete: bool = True
) -> BenchRun:
    return BenchRun(
        scenario=scenario,
        options=options or {},
        started_at=1_760_000_000.0,
        machine="8 cores, 16 GiB",
        runs=list(runs),
        complete=complete,
    )


def target(
    name: str, requests: list[MeasuredRequest], notes: list[str] | None = None, model: str = "small"
) -> TargetRun:
    url = "http://127.0.0.1:8000"
    return TargetRun(target=name, url=url, api="openai", model=model, requests=requests, notes=notes or [])


def interference(rounds: int = 3) -> BenchRun:
    """One target keeps the chat going at a slower pace, the other one stops it while it reads."""
    steady, stopping = random.Random(1), random.Random(2)
    return bench(
        target("legato", [one for n in range(rounds) for one in _interference_round(steady, n, None)]),
        target(
            "one-queue",
            [one for n in range(rounds) for one in _interference_round(stopping, n, 12.0 + n)],
            notes=["It merges about 2 tokens into one event, so its gaps are gaps between events."],
        ),
        scenario="interference",
        options={"document_tokens": 6000, "answer_tokens": 300, "rounds": rounds, "seed": 1},
    )


def _interference_round(noise: random.Random, number: int, stall: float | None) -> list[MeasuredRequest]:
    begin = number * 60.0
    gaps = [0.05 * noise.lognormvariate(0, 0.2) for _ in range(300)]
    if stall:
        gaps[50] = stall
        document, question = stall - 0.3, stall + 0.4
    else:
        gaps[50:150] = [0.14 * noise.lognormvariate(0, 0.2) for _ in range(100)]
        document, question = 14.0, 0.9
    chat = request("chat", sent=begin, ttft=0.3, gaps=gaps, prompt=40, in_round=number)
    if stall:
        chat.answer_tokens = 2 * len(chat.event_s)
    read = request("document", sent=begin + 3, ttft=document, gaps=[0.07] * 30, prompt=6000, cached=10, in_round=number)
    asked = request("question", sent=begin + 3.4, ttft=question, gaps=[0.09] * 20, prompt=25, in_round=number)
    asked.timings = {"load_ms": 0.0, "queue_ms": 200.0} if stall is None else None
    # The scenario ends the chat itself.
    chat.hung_up, chat.ended_s, chat.wanted_tokens = True, None, 4000
    return [chat, read, asked]


def crowd(people: int = 12) -> BenchRun:
    noise = random.Random(3)

    def requests(pace: float) -> list[MeasuredRequest]:
        made = [
            request(
                f"person {n}",
                sent=n * 0.8,
                ttft=pace * (1 + 4 * noise.random()),
                gaps=[pace * 0.1 * noise.lognormvariate(0, 0.5) for _ in range(60)],
                prompt=int(50 * noise.lognormvariate(1, 1)),
                cached=40 if n % 3 == 0 else 0,
            )
            for n in range(1, people)
        ]
        return [*made, failed(f"person {people}", sent=people * 0.8)]

    options: dict[str, object] = {"ttft_target_s": 3.0, "gap_target_s": 0.25, "people": people}
    return bench(target("legato", requests(0.7)), target("other", requests(1.2)), scenario="crowd", options=options)


def cache(rounds: int = 2) -> BenchRun:
    noise = random.Random(4)
    shares = {"cold": 1.0, "again": 0.05, "other": 0.35, "in turns": 0.06, "after pause": 0.06}

    def requests(forgets: bool) -> list[MeasuredRequest]:
        return [
            request(
                role,
                sent=40.0 * n + 5 * i,
                ttft=8.0 * (1.0 if forgets and role == "in turns" else share) * noise.lognormvariate(0, 0.05),
                gaps=[0.05] * 31,
                prompt=3000,
                cached=int(3000 * (1 - share)),
                in_round=n,
            )
            for n in range(rounds)
            for i, (role, share) in enumerate(shares.items())
        ]

    return bench(target("legato", requests(False)), target("one-slot", requests(True)), scenario="cache")
