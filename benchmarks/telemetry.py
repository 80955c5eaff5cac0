"""What telemetry costs a running answer: recording on against off, and three scrapers against none.

python -m benchmarks.telemetry [--rounds 15] [--tokens 120] [--same]

All servers are up at once, and rounds alternate between them, so that a slow minute of the machine hits all. With
--same both record, which shows how far apart two equal servers come out. Beside the ratios stands what recording a
token costs the server's process, measured in this one.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from benchmarks.http_stream import Stream, run
from benchmarks.report import Figure, save
from benchmarks.servers import legato, running
from legato.core.calls import Call
from legato.models import default_store
from legato.sinks.metrics import Metrics
from legato.telemetry.attribution import Attribution
from legato.telemetry.timeline import Timeline

SETTLE_S = 0.3
SCRAPERS = 3
ROUNDS_OF_COST = 9
TOKENS_OF_COST = 5_000
SCRAPE = """
import sys, time, urllib.request
while True:
    urllib.request.urlopen(sys.argv[1]).read()
    time.sleep(1)
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--tokens", type=int, default=120)
    parser.add_argument("--same", action="store_true")
    options = parser.parse_args()
    save("telemetry", [*measure(options.rounds, options.tokens, same=options.same), cost()])


def measure(rounds: int, tokens: int, *, same: bool = False) -> list[Figure]:
    """Ratios of decode rates, medians over rounds; with `same` of two servers that both record."""
    model = default_store().resolve("smollm2").path
    options = ("--parallel", "2", "--ctx", "1024")
    recorded: list[float] = []
    scraped: list[float] = []
    with ExitStack() as stack:
        on = stack.enter_context(running(legato("on", model, *options)))
        other = options if same else (*options, "--no-telemetry")
        off = stack.enter_context(running(legato("off", model, *other)))
        for number in range(-1, rounds):
            # Whoever comes second in a round finds the machine otherwise: they take turns.
            order = [on.port, off.port] if number % 2 else [off.port, on.port]
            rates = {port: _rate(port, tokens) for port in order}
            with scrapers(on.port):
                beside = _rate(on.port, tokens)
            if number < 0:
                continue  # a warm-up of both
            recorded.append(rates[on.port] / rates[off.port])
            scraped.append(beside / rates[on.port])
    what = "decode rate, one of two equal servers over the other" if same else "decode rate, telemetry on over off"
    return [
        Figure(what, statistics.median(recorded), "ratio", recorded, ">= 0.99"),
        Figure("decode rate, three scrapers over none", statistics.median(scraped), "ratio", scraped, ">= 0.99"),
    ]


def cost() -> Figure:
    """CPU time of what the server's process does for each token of an answer alone, beside sending it."""
    attribution, timeline = Attribution(), Timeline(0.0, admitted_s=0.0)
    metrics = Metrics(lambda: None, processes=dict, build={})
    attribution.admit(1, "answer", 0.0)
    took_us = []
    for round_number in range(ROUNDS_OF_COST):
        begun = time.perf_counter()
        for step in range(TOKENS_OF_COST):
            at_s = (round_number * TOKENS_OF_COST + step) * 0.01
            call = Call(at_s + 0.001, at_s + 0.009, [1])
            attribution.call(call)
            metrics.call(call)
            timeline.add_token(call.ended_s, attribution.stretch(1, call.ended_s))
        took_us.append((time.perf_counter() - begun) / TOKENS_OF_COST * 1e6)
    return Figure("recording a token", statistics.median(took_us), "us", took_us)


@contextmanager
def scrapers(port: int) -> Iterator[None]:
    """Programs that ask for `/metrics` every second."""
    url = f"http://127.0.0.1:{port}/metrics"
    started = [subprocess.Popen([sys.executable, "-c", SCRAPE, url]) for _ in range(SCRAPERS)]
    time.sleep(SETTLE_S)
    try:
        yield
    finally:
        for scraper in started:
            scraper.kill()
            scraper.wait()


def _rate(port: int, tokens: int) -> float:
    time.sleep(SETTLE_S)
    body = {"prompt": [42] * 16, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
    stream = Stream("answer", "/v1/completions", body)
    run(port, [stream])
    # By tokens: some have no whole character and so no event of their own.
    return (tokens - 1) / (stream.times_s[-1] - stream.times_s[0])


if __name__ == "__main__":
    main()
