"""A running chat, a long prompt that arrives, a short question behind it: on Legato and on llama.cpp's own server.

python -m benchmarks.interference [--rounds 3] [--prompt-tokens 6000]

The servers run in turn, each alone on the machine. The chat writes for 3 seconds, then the prompt arrives, and 0.3
seconds later a one-line question. The chat's gaps are counted from the prompt's arrival to its first token.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from benchmarks.http_stream import Stream, run
from benchmarks.prompts import Prompts
from benchmarks.report import Figure, save
from benchmarks.servers import Target, legato, llama_server, running
from legato.models import default_store

CHAT_ALONE_S = 3.0
QUESTION_AFTER_S = 0.3
CHAT = "/v1/chat/completions"


@dataclass(frozen=True)
class Outcome:
    """What one round saw, in seconds."""

    chat_alone_gap: float
    """Median gap of the chat before the prompt arrives."""
    worst_gap: float
    """The chat's longest gap while the prompt is read."""
    median_gap: float
    prompt_read: float
    """From the prompt's arrival to its first token."""
    question_ttft: float


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--prompt-tokens", type=int, default=6000)
    options = parser.parse_args()
    save("interference", measure(options.rounds, options.prompt_tokens))


def targets(model: Path) -> list[Target]:
    """Legato under each policy, and the peer at its defaults and at its best for gaps."""
    window = ("-c", "32768")
    peers = [
        llama_server("llama-server", model, *window),
        llama_server("llama-server -b 64 -ub 64 -fa off", model, *window, "-b", "64", "-ub", "64", "-fa", "off"),
    ]
    return [
        legato("legato whole", model, "--policy", "whole"),
        legato("legato chunked", model, "--policy", "chunked"),
        *(peer for peer in peers if peer is not None),
    ]


def measure(rounds: int, prompt_tokens: int) -> list[Figure]:
    """Figures of every server, and the ratio that the chunked policy must reach."""
    model = default_store().resolve("smollm2").path
    prompts = Prompts(model)
    outcomes: dict[str, list[Outcome]] = {}
    for number in range(rounds):
        for target in targets(model):
            with running(target) as server:
                one_round(server.port, prompts, 1000, 200)  # a warm-up
                outcome = one_round(server.port, prompts, number, prompt_tokens)
            outcomes.setdefault(target.name, []).append(outcome)
            print(f"{target.name}: {outcome}", flush=True)
    figures = [figure for name, measured in outcomes.items() for figure in _figures(name, measured)]
    pairs = zip(outcomes["legato whole"], outcomes["legato chunked"], strict=True)
    ratios = [whole.worst_gap / chunked.worst_gap for whole, chunked in pairs]
    figures.append(Figure("worst gap, whole over chunked", statistics.median(ratios), "ratio", ratios, ">= 20"))
    return figures


def _figures(name: str, outcomes: list[Outcome]) -> Iterable[Figure]:
    for what, unit, factor, values in (
        ("chat alone, median gap", "ms", 1000, [o.chat_alone_gap for o in outcomes]),
        ("chat beside prompt, median gap", "ms", 1000, [o.median_gap for o in outcomes]),
        ("chat beside prompt, worst gap", "ms", 1000, [o.worst_gap for o in outcomes]),
        ("prompt read in", "s", 1, [o.prompt_read for o in outcomes]),
        ("question's first token after", "s", 1, [o.question_ttft for o in outcomes]),
    ):
        scaled = [value * factor for value in values]
        yield Figure(f"{name}: {what}", statistics.median(scaled), unit, scaled)


def one_round(port: int, prompts: Prompts, seed: int, prompt_tokens: int) -> Outcome:
    """Chat, prompt, question."""
    chat = _stream("chat", "Write a very long story about a lighthouse keeper.", 6000, 0.0)
    prompt = _stream("prompt", prompts.text(seed, prompt_tokens), 1, CHAT_ALONE_S)
    question = _stream("question", "What is the capital of France?", 8, CHAT_ALONE_S + QUESTION_AFTER_S)
    run(port, [chat, prompt, question], until=prompt)
    read_s = prompt.times_s[0]
    alone = [b - a for a, b in pairwise(chat.times_s) if b < prompt.sent_s]
    # The chat may be silent from before the prompt's arrival until after its end: that is its gap too.
    beside = [
        min(b, read_s) - max(a, prompt.sent_s)
        for a, b in zip(chat.times_s, [*chat.times_s[1:], read_s], strict=False)
        if b > prompt.sent_s and a < read_s
    ]
    if not question.times_s:
        question.times_s.append(read_s)  # not answered before the prompt was read: at least this long
    return Outcome(statistics.median(alone), max(beside), statistics.median(beside), prompt.ttft_s, question.ttft_s)


def _stream(name: str, text: str, tokens: int, start_after_s: float) -> Stream:
    body = {
        "messages": [{"role": "user", "content": text}],
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": True,
    }
    return Stream(name, CHAT, body, start_after_s)


if __name__ == "__main__":
    main()
