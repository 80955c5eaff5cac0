"""What open dashboards cost the answers, how soon the page is there, and whether it grows while it is left open.

python -m benchmarks.dashboard [cost|paint|day …] [--rounds 7]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import uvicorn
from fastapi import FastAPI
from playwright.sync_api import Page, sync_playwright
from starlette.responses import Response, StreamingResponse
from tests.support.browser import FLAGS, browser_path

from benchmarks.http_stream import Stream, run
from benchmarks.prompts import Prompts
from benchmarks.report import Figure, save
from benchmarks.scheduling import figure
from benchmarks.servers import legato, running
from legato.models import default_store
from legato.server import pages

PAGES = 3
TOKENS = 150
DAY_S = 86_400
FASTER = 400
"""How much faster a simulated day goes: its events, and the page's clock."""
TICK_S = 4
"""Simulated time between two groups of events: 10 ms of real time."""
STEPS_A_S = 5
"""Steps of the engine, and tokens of each answer, in a simulated second."""
ANSWER_S = 20
"""How long each of three simulated answers at a time takes, and how often one begins."""
MOST_LATE_S = 30.0
"""Simulated time by which events may lag behind the page's clock, which keeps a minute of them."""
CLOCK = f"const begin = Date.now(), now = Date.now; Date.now = () => begin + (now.call(Date) - begin) * {FASTER};"
LOOKS = 5
"""How often the heap is measured in a simulated day."""
STATUS = {
    "model": "model",
    "state": "ready",
    "running": 3,
    "waiting": 0,
    "parallel": 4,
    "policy": "adaptive",
    "gap_target_ms": 100,
    "kv_cells_used": 100,
    "kv_cells": 1000,
    "cache": None,
    "decode_tokens_per_second": 60,
    "prefill_tokens_per_second": 9,
    "utilisation": {},
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=list(CASES), metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    if unknown := set(options.cases) - set(CASES):
        parser.error(f"there is no case {unknown.pop()}; there are {', '.join(CASES)}")
    measure(options.cases, options.rounds)


def measure(cases: Sequence[str], rounds: int) -> None:
    """Run cases one after the other, and save each."""
    model = default_store().resolve("smollm2").path
    for case in cases:
        save(f"dashboard-{case}", CASES[case](model, rounds))


def cost(model: Path, rounds: int) -> list[Figure]:
    """Decode rate of one answer with three pages watching, over that without, turn by turn.

    The pages are bare readers of the stream: what a browser spends on drawing is spent on another machine.
    """
    prompts = Prompts(model)
    ratios: list[float] = []
    shares: list[float] = []
    with running(legato("Legato", model, "--cache-scope", "off")) as server:
        process = psutil.Process(server.pid)
        rate_of(server.port, prompts, 0)
        process.cpu_percent()  # each asks for the time since the one before
        for number in range(1, rounds + 1):
            without, share_without = rate_of(server.port, prompts, number), process.cpu_percent()
            with watched(server.port):
                process.cpu_percent()
                beside, share_beside = rate_of(server.port, prompts, -number), process.cpu_percent()
            ratios.append(beside / without)
            shares.append(share_beside - share_without)
            process.cpu_percent()
    return [
        figure("decode rate with three pages open, over that without", ratios, "", ">= 0.99"),
        figure("the server's process, of one core, with three pages more than without", shares, "%"),
    ]


def rate_of(port: int, prompts: Prompts, seed: int) -> float:
    """Tokens a second of one answer, from the median of its gaps."""
    body = {"prompt": prompts.tokens(abs(seed) + 1, 40), "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True}
    stream = Stream("answer", "/v1/completions", body)
    run(port, [stream])
    return 1 / statistics.median(stream.gaps_s)


@contextmanager
def watched(port: int) -> Iterator[None]:
    """Three pages read the stream meanwhile."""
    is_over = threading.Event()

    def watch() -> None:
        with httpx.stream("GET", f"http://127.0.0.1:{port}/api/live", timeout=60) as response:
            for _ in response.iter_raw():
                if is_over.is_set():
                    return

    watchers = [threading.Thread(target=watch, daemon=True) for _ in range(PAGES)]
    for watcher in watchers:
        watcher.start()
    time.sleep(1.0)
    yield
    is_over.set()


def paint(model: Path, rounds: int) -> list[Figure]:
    """From opening the page on loopback to its first content, and to its live data."""
    first: list[float] = []
    live: list[float] = []
    with running(legato("Legato", model, "--cache-scope", "off")) as server, browsing() as page:
        for _ in range(rounds):
            page.context.clear_cookies()
            begun = time.perf_counter()
            page.goto(f"http://127.0.0.1:{server.port}/")
            page.wait_for_selector("#connection[data-state=open]", state="attached")
            live.append(1000 * (time.perf_counter() - begun))
            entries = page.evaluate("performance.getEntriesByName('first-contentful-paint').map(e => e.startTime)")
            first.append(entries[0])
    return [
        figure("first contentful paint", first, "ms", "< 1000"),
        figure("live data shown", live, "ms"),
    ]


def day(_model: Path, _rounds: int) -> list[Figure]:
    """The heap of a page that is left open for a day, which goes by faster."""
    shares = [number / LOOKS for number in range(1, LOOKS + 1)]
    heaps: list[float] = []
    nodes: list[float] = []
    simulated = SimulatedDay()
    with served(simulated.app) as port, browsing() as page:
        session = page.context.new_cdp_session(page)
        page.add_init_script(CLOCK)
        page.goto(f"http://127.0.0.1:{port}/")
        for share in shares:
            while simulated.second < share * DAY_S:
                page.wait_for_timeout(200)
            session.send("HeapProfiler.collectGarbage")
            heaps.append(session.send("Runtime.getHeapUsage")["usedSize"] / 2**20)
            nodes.append(page.evaluate("document.getElementsByTagName('*').length"))
    return [
        *(
            figure(f"heap after {24 * share:.0f} hours", [heap], "MiB")
            for share, heap in zip(shares, heaps, strict=True)
        ),
        figure("events behind the page's clock, at most", [simulated.late_s], "s", f"< {MOST_LATE_S:.0f}"),
        figure("elements of the page at the end, over those after the first look", [nodes[-1] / nodes[0]], ""),
        figure("heap at the end over that after the first look", [heaps[-1] / heaps[0]], "", "about 1"),
    ]


class SimulatedDay:
    """A server that tells a day's events: three answers at a time, a new one every 20 s."""

    def __init__(self) -> None:
        self.second = 0
        """How far the day is."""
        self.late_s = 0.0
        """Simulated time by which events lagged behind the page's clock at most."""
        self.app = FastAPI()

        @self.app.get("/api/live")
        async def live() -> Response:
            return StreamingResponse(self._events(), media_type="text/event-stream")

        @self.app.get("/login")
        async def login() -> dict[str, bool]:
            return {"needed": False}

        # After its own: of two routes to one path the first is taken.
        self.app.include_router(pages.router)

    async def _events(self) -> AsyncIterator[bytes]:
        begun = time.time()
        hello = {"server": "a day", "now": begun, "version": "0", "model": "model", "client": None, "admin": True}
        yield event("hello", hello | {"keys": False})
        yield event("status", STATUS)
        for self.second in range(0, DAY_S + 1, TICK_S):
            ahead_s = begun + self.second / FASTER - time.time()
            self.late_s = max(self.late_s, -ahead_s * FASTER)
            await asyncio.sleep(max(0.0, ahead_s))
            number = self.second // ANSWER_S
            ids = [f"request-{number + i}" for i in range(3)]
            tokens = TICK_S * STEPS_A_S
            yield event("gaps", {one: [200.0] * tokens for one in ids})
            is_new = self.second % ANSWER_S == 0
            changed = [live_request(one, STEPS_A_S * (self.second % ANSWER_S)) for one in ids]
            gone = [f"request-{number - 1}"] if is_new else []
            yield event("requests", {"changed": changed, "gone": gone})
            first, at = STEPS_A_S * self.second, begun + self.second
            yield event("steps", {"steps": [step(first + i, at + i / STEPS_A_S, ids) for i in range(tokens)]})
            if gone:
                yield event("ended", {"requests": [ended(gone[0], at)]})


def event(kind: str, data: Any) -> bytes:
    """One server-sent event."""
    return f"event: {kind}\ndata: {json.dumps(data)}\n\n".encode()


def live_request(name: str, tokens: int) -> dict[str, Any]:
    """An answer that goes on."""
    return {
        "id": name,
        "endpoint": "chat",
        "client": None,
        "phase": "decode",
        "since_ms": 1000,
        "prompt_tokens": 100,
        "cached_tokens": 0,
        "read_tokens": 100,
        "answer_tokens": tokens,
        "prefill_left_ms": None,
        "ahead": 0,
        "decode_tokens_per_second": STEPS_A_S,
        "gap_ms": 200,
        "gap_max_ms": 200,
        "service_tier": "default",
        "preemptions": 0,
        "gap_target_ms": 100,
    }


def step(number: int, at: float, ids: list[str]) -> dict[str, Any]:
    """A step of three answers, every tenth with a chunk of a prompt."""
    chunks = [{"request": ids[0], "start": 0, "tokens": 16}] if number % 10 == 0 else []
    return {"number": number, "begun_at": at, "took_ms": 30, "predicted_ms": 30, "decoded": ids, "chunks": chunks}


def ended(name: str, at: float) -> dict[str, Any]:
    """A line of the list of ended requests."""
    return {
        "id": name,
        "arrived_at": at,
        "client": None,
        "model": "model",
        "endpoint": "chat",
        "end": "stop",
        "prompt_tokens": 100,
        "cached_tokens": 0,
        "answer_tokens": 500,
        "queue_ms": 1,
        "load_ms": 0,
        "stalls": 0,
        "prefill_ms": 900,
        "ttft_ms": 901,
        "decode_ms": 20_000,
        "total_ms": 20_901,
        "itl_max_ms": 60,
        "verdict": "It was written at its own pace.",
    }


@contextmanager
def browsing() -> Iterator[Page]:
    """A page of the system's Chromium."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path(), args=list(FLAGS))
        yield browser.new_page(viewport={"width": 1280, "height": 900})
        browser.close()


@contextmanager
def served(app: FastAPI) -> Iterator[int]:
    """An application on a free port of loopback."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    thread.join(5)


CASES: dict[str, Callable[[Path, int], list[Figure]]] = {"cost": cost, "paint": paint, "day": day}


if __name__ == "__main__":
    main()
