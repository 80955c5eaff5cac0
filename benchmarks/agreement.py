"""How far the server's own `timings` and a client's clock on the same machine are apart, under mixed load.

python -m benchmarks.agreement [--requests 200]
"""

from __future__ import annotations

import argparse
import asyncio

from benchmarks.report import Figure, save
from benchmarks.servers import legato, running
from legato.bench.progress import BenchProgress
from legato.bench.results import MeasuredRequest
from legato.bench.runner import connect_all, run_bench
from legato.bench.scenarios import Crowd
from legato.models import default_store
from legato.telemetry.figures import percentile

ALLOWED_MS = 5.0
ALLOWED_SHARE = 0.02


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=200)
    save("agreement", measure(parser.parse_args().requests))


def measure(requests: int) -> list[Figure]:
    """Differences of time to first token and of the whole, at the 95th percentile."""
    found: list[MeasuredRequest] = []
    with running(legato("legato", default_store().resolve("smollm2").path, "--parallel", "8")) as server:
        while len(found) < requests:
            crowd = Crowd(
                people=7,
                duration_s=60,
                think_s=0.5,
                turn_tokens=20,
                answer_tokens=12,
                conversation_tokens=200,
                jobs=1,
                job_tokens=400,
                job_answer_tokens=8,
            )
            found += asyncio.run(_crowd(crowd, server.port))
    ttft = [_apart(m.ttft_s, m.timings["ttft_ms"]) for m in found if m.timings is not None]
    total = [_apart(m.ended_s, m.timings["total_ms"]) for m in found if m.timings is not None]
    return [
        Figure("requests compared", len(ttft), "", [len(ttft)], f">= {requests}"),
        _figure("time to first token", ttft),
        _figure("whole time", total),
    ]


async def _crowd(crowd: Crowd, port: int) -> list[MeasuredRequest]:
    run = await run_bench(crowd, await connect_all([f"legato=http://127.0.0.1:{port}"]), BenchProgress(shown=False))
    requests = run.runs[0].requests
    return [m for m in requests if not m.error and not m.hung_up and m.event_s and m.timings is not None]


def _apart(client_s: float | None, server_ms: float) -> tuple[float, float]:
    """Difference in ms, and the same over what is allowed."""
    assert client_s is not None, "only whole answers are compared"
    apart_ms = abs(client_s * 1000 - server_ms)
    return apart_ms, apart_ms / max(ALLOWED_MS, ALLOWED_SHARE * client_s * 1000)


def _figure(what: str, apart: list[tuple[float, float]]) -> Figure:
    shares = sorted(share for _, share in apart)
    worst_ms = sorted(ms for ms, _ in apart)
    name = f"{what}: apart, over the allowed 5 ms or 2 %, 95th percentile (p95 {percentile(worst_ms, 95):.1f} ms)"
    return Figure(name, percentile(shares, 95), "", shares, "<= 1")


if __name__ == "__main__":
    main()
