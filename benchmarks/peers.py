"""Legato and llama.cpp's own server on the same model file, measured by `legato bench` in one run, with a report.

python -m benchmarks.peers [solo|interference|cache …] [--rounds 3]

All servers are up at once, and each is measured while the others are idle. Writes a JSON file with every raw time and
an HTML report a scenario to `benchmarks/results/`.
"""

from __future__ import annotations

import argparse
import asyncio
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

from benchmarks.report import RESULTS
from benchmarks.servers import Target, legato, llama_server, running
from legato.bench.progress import BenchProgress
from legato.bench.report import write_report
from legato.bench.runner import connect_all, run_bench
from legato.bench.scenarios import Cache, Interference, Scenario, Solo
from legato.bench.table import print_run
from legato.models import default_store


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenarios", nargs="*", default=["solo", "interference", "cache"])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    measure(options.scenarios, options.rounds)


def measure(names: list[str], rounds: int) -> None:
    """Run the scenarios of those names against all servers."""
    with ExitStack() as stack:
        texts = []
        for target in targets(default_store().resolve("smollm2").path):
            server = stack.enter_context(running(target))
            texts.append(f"{target.name}=http://127.0.0.1:{server.port}")
        for name in names:
            asyncio.run(_measure(_scenario(name, rounds), texts))


def targets(model: Path) -> list[Target]:
    """Legato under each policy, and the peer at its defaults and at its best for gaps."""
    window = ("-c", "32768")
    peers = [
        llama_server("llama-server", model, *window),
        llama_server("llama-server b64", model, *window, "-b", "64", "-ub", "64", "-fa", "off"),
    ]
    return [
        legato("Legato", model),
        legato("Legato chunked", model, "--policy", "chunked"),
        legato("Legato whole", model, "--policy", "whole"),
        *(peer for peer in peers if peer is not None),
    ]


def _scenario(name: str, rounds: int) -> Scenario:
    match name:
        case "solo":
            return Solo(rounds=rounds)
        case "interference":
            return Interference(rounds=rounds)
        case "cache":
            return Cache(rounds=rounds)
        case _:
            raise SystemExit(f"There is no scenario {name!r} here; there are solo, interference and cache.")


async def _measure(scenario: Scenario, texts: list[str]) -> None:
    with BenchProgress() as progress:
        run = await run_bench(scenario, await connect_all(texts), progress)
    print_run(run, Console(width=160))
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"peers-{scenario.name}.json"
    run.save(path)
    write_report(run, path.with_suffix(".html"))


if __name__ == "__main__":
    main()
