"""This version of Legato beside another one: the same work on both, alternately, in one run.

python -m benchmarks.versions OTHER [--rounds 5] [--prompt 3000]

OTHER is another checkout, for example of `git worktree add ../before REVISION`; both run with this environment's
library. Figures are this version's over the other's.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.http_stream import Stream, run
from benchmarks.prompts import Prompts
from benchmarks.report import Figure, save
from benchmarks.servers import ROOT, Running, Target, running
from legato.models import default_store

CHAT_TOKENS = 200
TARGET_S = 0.1
PLANS = """
import statistics, time
try:
    from legato.scheduling.sequence import Sequence
except ImportError:
    from legato.scheduling.state import Sequence
from legato.scheduling.adaptive import Adaptive
from legato.scheduling.costs import Coefficients, CostModel
policy = Adaptive(CostModel(Coefficients(0.01, 0.001, 3e-6, 0.002, 0.006, 1e-6)), gap_target_s=0.1, step_tokens=512)
admitted = [
    Sequence(i, 500, 100, slot=i, computed_tokens=500 if i % 4 else 0, new_tokens=int(i % 4 > 0), last_token_s=0.0)
    for i in range(64)
]
found = []
for _ in range(20):
    begun = time.perf_counter()
    for _ in range(200):
        policy.plan(admitted, 0.05)
    found.append((time.perf_counter() - begun) / 200)
print(statistics.median(found) * 1e6)
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prompt", type=int, default=3000)
    arguments = parser.parse_args()
    save("versions", measure(arguments.other, arguments.rounds, arguments.prompt))


def measure(other: Path, rounds: int, prompt_tokens: int) -> list[Figure]:
    """Ratios of both versions, one a round.

    Args:
        other: The other checkout.
        rounds: How often each is started; which one is first changes.
        prompt_tokens: Of the long prompt.
    """
    model = default_store().resolve("smollm2").path
    prompts = Prompts(model)
    with tempfile.TemporaryDirectory() as scratch:
        targets = {name: version(name, tree, model, Path(scratch)) for name, tree in (("this", ROOT), ("other", other))}
        rows: list[dict[str, dict[str, float]]] = []
        for number in range(rounds + 1):
            order = ("this", "other") if number % 2 else ("other", "this")
            row: dict[str, dict[str, float]] = {}
            for name in order:
                with running(targets[name]) as server:
                    row[name] = work(server, prompts, number, prompt_tokens)
                row[name]["a plan for 64 sequences, us"] = plan_us(targets[name])
            if number:  # in the first one both calibrate
                rows.append(row)
    return [ratio(rows, what) for what in rows[0]["this"]]


def version(name: str, tree: Path, model: Path, scratch: Path) -> Target:
    """A version's server, with a memory of its own."""
    cache = str(scratch / f"{name}-cache")
    options = ("--alias", "any", "--history", "off", "--cache-dir", cache, "--ctx", "8192", "--port")
    environment = {"PYTHONPATH": str(tree / "src"), "LEGATO_TUNING": str(scratch / f"{name}-tuning.json")}
    return Target(name, [sys.executable, "-m", "legato", "serve", str(model), *options], environment)


def work(server: Running, prompts: Prompts, seed: int, prompt_tokens: int) -> dict[str, float]:
    """One stream alone, a long prompt beside a chat, and that prompt again."""

    def stream(name: str, prompt: list[int], tokens: int, after_s: float = 0.0) -> Stream:
        body = {"model": "any", "prompt": prompt, "max_tokens": tokens, "ignore_eos": True, "temperature": 0}
        return Stream(name, "/v1/completions", body, after_s)

    run(server.port, [stream("warm-up", prompts.tokens(seed + 1000, 20), 20)])
    alone = stream("alone", prompts.tokens(seed + 2000, 30), CHAT_TOKENS)
    run(server.port, [alone])
    chat = stream("chat", prompts.tokens(seed + 3000, 20), 4000)
    book = stream("book", prompts.tokens(seed + 4000, prompt_tokens), 1, 0.5)
    question = stream("question", prompts.tokens(seed + 5000, 12), 1, 1.0)
    run(server.port, [chat, book, question], until=[book, question])
    gaps = sorted(
        b - a for a, b in zip(chat.times_s, chat.times_s[1:], strict=False) if b > book.sent_s and a < book.times_s[0]
    )
    again = stream("again", book.body["prompt"], 1)
    run(server.port, [again])
    return {
        "one stream, ms a token": 1000 * statistics.median(alone.gaps_s),
        "long prompt beside a chat, s": book.ttft_s,
        "chat's gaps meanwhile, 99th percentile, ms": 1000 * gaps[int(0.99 * (len(gaps) - 1))],
        "chat's gaps meanwhile within 100 ms, share": sum(gap <= TARGET_S for gap in gaps) / len(gaps),
        "question's first token meanwhile, ms": 1000 * question.ttft_s,
        "the same prompt again, first token, ms": 1000 * again.ttft_s,
    }


def plan_us(target: Target) -> float:
    """What planning takes."""
    environment = {**os.environ, **target.environment}
    return float(subprocess.run([sys.executable, "-c", PLANS], env=environment, check=True, capture_output=True).stdout)


def ratio(rows: list[dict[str, dict[str, float]]], what: str) -> Figure:
    """This version's over the other's, with what they are ratios of."""
    this, other = ([row[name][what] for row in rows] for name in ("this", "other"))
    values = [a / b for a, b in zip(this, other, strict=True)]
    medians = f"{statistics.median(this):.2f} over {statistics.median(other):.2f}"
    return Figure(f"{what}: {medians}", statistics.median(values), "x", values, "1")


if __name__ == "__main__":
    main()
