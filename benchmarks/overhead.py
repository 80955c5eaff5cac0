"""What the server costs beside a bare loop over the same library: one stream, eight streams, and the first token.

python -m benchmarks.overhead [--rounds 7] [--tokens 200]

Both are loaded at once, and rounds alternate between them, so that a slow minute of the machine hits both.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from typing import Any

import psutil

from benchmarks.http_stream import Stream, run
from benchmarks.prompts import Prompts
from benchmarks.report import Figure, save
from benchmarks.servers import legato, running
from legato.models import default_store
from legato.worker.sizing import default_threads

SEQUENCES = 8
CONTEXT = 1024
PROMPT_TOKENS = 64
CHUNK = 64
SETTLE_S = 0.3
"""Pause between turns: the library's threads go on spinning for a moment after their last call."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tokens", type=int, default=200)
    options = parser.parse_args()
    save("overhead", measure(options.rounds, options.tokens))


def measure(rounds: int, tokens: int) -> list[Figure]:
    """Ratios of the server to the bare loop, medians over rounds."""
    model = default_store().resolve("smollm2").path
    prompts = Prompts(model)
    command = [
        sys.executable,
        "-m",
        "benchmarks.bare",
        str(model),
        str(SEQUENCES),
        str(CONTEXT),
        str(default_threads()),
    ]
    options = ("--parallel", str(SEQUENCES), "--ctx", str(CONTEXT), "--chunk", str(CHUNK))
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as bare,
        running(legato("legato", model, *options)) as server,
    ):
        assert bare.stdin is not None
        assert bare.stdout is not None
        bare.stdout.readline()
        ratios: dict[int, list[float]] = {1: [], SEQUENCES: []}
        later_ms: list[float] = []
        serving = psutil.Process(server.pid)
        meter = psutil.Process()
        cpu_us: dict[str, list[float]] = {"server": [], "meter": []}
        for round_number in range(-1, rounds):
            for streams in ratios:
                prompt = prompts.tokens(round_number + 1000 * streams, PROMPT_TOKENS)
                wanted = {"streams": streams, "prompt": prompt, "tokens": tokens, "chunk": CHUNK}
                time.sleep(SETTLE_S)
                print(json.dumps(wanted), file=bare.stdin, flush=True)
                loop = json.loads(bare.stdout.readline())
                time.sleep(SETTLE_S)
                before = _cpu_s(serving), _cpu_s(meter)
                mine = _through_http(server.port, streams, prompt, tokens)
                after = _cpu_s(serving), _cpu_s(meter)
                if round_number < 0:
                    continue  # a warm-up of both
                ratios[streams].append(mine["tokens_per_s"] / loop["tokens_per_s"])
                if streams == 1:
                    later_ms.append((mine["first_token_s"] - loop["first_token_s"]) * 1000)
                    cpu_us["server"].append((after[0] - before[0]) / tokens * 1e6)
                    cpu_us["meter"].append((after[1] - before[1]) / tokens * 1e6)
                print(f"{streams} streams: {mine['tokens_per_s']:.1f} and bare {loop['tokens_per_s']:.1f} tokens/s")
        bare.stdin.close()
    return [
        Figure(
            "one stream's decode rate over a bare loop's", statistics.median(ratios[1]), "ratio", ratios[1], ">= 0.97"
        ),
        Figure(
            "eight streams' total rate over a bare batched loop's",
            statistics.median(ratios[SEQUENCES]),
            "ratio",
            ratios[SEQUENCES],
            ">= 0.95",
        ),
        Figure("first token later than a bare loop's", statistics.median(later_ms), "ms", later_ms, "<= 15"),
        Figure("CPU time of the server's process a token", statistics.median(cpu_us["server"]), "us", cpu_us["server"]),
        Figure("CPU time of this meter a token", statistics.median(cpu_us["meter"]), "us", cpu_us["meter"]),
    ]


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def _through_http(port: int, count: int, prompt: list[int], tokens: int) -> dict[str, Any]:
    body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
    streams = [Stream(f"stream {i}", "/v1/completions", body) for i in range(count)]
    run(port, streams)
    # While all of them write: from the last one's first token to the first one's last.
    begin = max(stream.times_s[0] for stream in streams)
    end = min(stream.times_s[-1] for stream in streams)
    written = sum(sum(begin < at <= end for at in stream.times_s) for stream in streams)
    # Tokens that are no whole characters come with later ones: count tokens, not events.
    per_event = tokens * count / sum(len(stream.times_s) for stream in streams)
    return {"first_token_s": streams[0].ttft_s, "tokens_per_s": written * per_event / (end - begin)}


if __name__ == "__main__":
    main()
