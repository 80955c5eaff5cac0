"""How running answers fare while prompts are read, beside llama.cpp's own server on the same file, in one run.

python -m benchmarks.scheduling [CASE …] [--rounds 2]; `--help` names the cases.

`legato tune` chooses Legato's configuration if it was run before; no flag is set by hand but the number of sequences.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np

from benchmarks.http_stream import Stream, run
from benchmarks.prompts import Prompts
from benchmarks.report import Figure, save
from benchmarks.servers import Target, legato, llama_server, running
from legato.bench.scenarios.trace import load_trace
from legato.core.choices import FlashAttention
from legato.engine.batch import Batch
from legato.engine.context import Context, ContextSettings
from legato.engine.model import Model
from legato.engine.quantize import convert
from legato.models import default_store
from legato.scheduling.adaptive import Adaptive
from legato.scheduling.costs import Coefficients, CostModel
from legato.scheduling.sequence import Sequence as Request
from legato.telemetry.figures import percentile
from legato.worker.sizing import default_threads

TARGET_S = 0.1
"""The gap target: the server's default."""
LOW_TARGET_S = 0.02
"""A target that several chats beside a document can't have on such machines."""
DOCUMENT = 6000
"""Tokens of the long prompt."""


@dataclass(frozen=True)
class Bench:
    """What every case needs."""

    model: Path
    prompts: Prompts
    rounds: int
    trace: Path | None
    seed: int = int(time.time())

    def stream(self, name: str, tokens: int, answer: int, after_s: float = 0.0, **more: object) -> Stream:
        """A request of so many prompt tokens, which no cache knows, for so many tokens of answer."""
        prompt = self.prompts.tokens(abs(hash((self.seed, name, after_s))) % 2**31, tokens)
        body = {"prompt": prompt, "max_tokens": answer, "temperature": 0, "ignore_eos": True, **more}
        return Stream(name, "/v1/completions", body, after_s)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=list(CASES), metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--trace", type=Path, help="CSV of the Azure conversation trace, for the case trace")
    parser.add_argument("--model", default="smollm2", help="as legato serve takes it")
    options = parser.parse_args()
    if unknown := set(options.cases) - set(CASES):
        parser.error(f"there is no case {unknown.pop()}; there are {', '.join(CASES)}")
    measure(options.cases, options.rounds, trace_file=options.trace, model_name=options.model)


def measure(cases: Sequence[str], rounds: int, *, trace_file: Path | None = None, model_name: str = "smollm2") -> None:
    """Run cases one after the other, and save each."""
    model = default_store().resolve(model_name).path
    bench = Bench(model, Prompts(model), rounds, trace_file)
    for case in cases:
        save(f"scheduling-{case}", CASES[case](bench))


def peers(bench: Bench, parallel: int) -> list[Target]:
    """Legato as it starts, and llama.cpp's server at its defaults and at its best settings for gaps."""
    window = ("-c", str(8192 * parallel), "-np", str(parallel))
    found = [
        legato("Legato", bench.model, "--parallel", str(parallel)),
        llama_server("llama-server", bench.model, *window),
        llama_server("llama-server -b 64 -fa off", bench.model, *window, "-b", "64", "-ub", "64", "-fa", "off"),
        llama_server("llama-server -b 128 -fa on", bench.model, *window, "-b", "128", "-ub", "128", "-fa", "on"),
    ]
    return [target for target in found if target is not None]


# A chat, a long prompt, a question


def reading(bench: Bench) -> list[Figure]:
    """A chat goes on while 6,000 tokens are read, and a question of 10 tokens comes 0.3 s behind them."""
    return [figure for target in peers(bench, 4) for figure in read_beside_chat(bench, target)]


def settings(bench: Bench) -> list[Figure]:
    """The same with llama.cpp's server at each of its settings, from which its best are chosen."""
    window = ("-c", str(4 * 8192), "-np", "4")
    targets = [legato("Legato", bench.model, "--parallel", "4"), llama_server("llama-server", bench.model, *window)]
    for size, attention in itertools.product(("64", "128", "256", "512"), ("on", "off")):
        options = ("-b", size, "-ub", size, "-fa", attention)
        targets.append(llama_server(f"llama-server -b {size} -fa {attention}", bench.model, *window, *options))
    return [figure for target in targets if target is not None for figure in read_beside_chat(bench, target)]


def converted(bench: Bench) -> list[Figure]:
    """The same with the model's weights converted to Q8_0, beside llama.cpp's server on both files."""
    window = ("-c", str(4 * 8192), "-np", "4")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"{bench.model.stem}.Q8_0.gguf"
        convert(bench.model, file, "Q8_0")
        targets = [
            legato("Legato, Q8_0", file, "--parallel", "4"),
            llama_server("llama-server, Q8_0", file, *window),
            llama_server("llama-server, the file as it is", bench.model, *window),
        ]
        return [figure for target in targets if target is not None for figure in read_beside_chat(bench, target)]


def read_beside_chat(bench: Bench, target: Target) -> list[Figure]:
    """A chat, 6,000 tokens, and a question behind them, on one server."""
    shares, worst, times, questions, alone = [], [], [], [], []
    undisturbed_shares, undisturbed_worst = [], []
    is_ours = target.name.startswith("Legato")
    with running(target) as server:
        run(server.port, [bench.stream("warm up", 100, 30)])
        for number in range(bench.rounds):
            chat = bench.stream(f"chat {number}", 40, 7000)
            document = bench.stream(f"document {number}", DOCUMENT, 8, after_s=4.0)
            question = bench.stream(f"question {number}", 10, 8, after_s=4.3)
            run(server.port, [chat, document, question], until=[document, question], timeout_s=600)
            gaps = gaps_between(chat, document.sent_s, document.times_s[0])
            shares.append(share_within(gaps))
            worst.append(1000 * max(gaps))
            if is_ours:
                undisturbed = undisturbed_gaps(chat, document.sent_s, document.times_s[0])
                undisturbed_shares.append(share_within(undisturbed))
                undisturbed_worst.append(1000 * max(undisturbed))
            times.append(document.ttft_s)
            questions.append(1000 * question.ttft_s)
            alone.append(1000 * statistics.median(gaps_between(chat, chat.times_s[3], document.sent_s)))
        error = prediction_error(server.port) if is_ours else None
    figures = [
        figure(f"{target.name}: chat's gaps within 100 ms", shares, "%", ">= 99" if is_ours else ""),
        figure(f"{target.name}: chat's longest gap", worst, "ms", "<= 150" if is_ours else ""),
        figure(f"{target.name}: document read in", times, "s"),
        figure(f"{target.name}: question's first token", questions, "ms", "<= 400" if is_ours else ""),
        figure(f"{target.name}: a token of the chat alone", alone, "ms"),
    ]
    if error is not None:
        what = "where the host took no processor time"
        figures.append(figure(f"{target.name}: chat's gaps within 100 ms, {what}", undisturbed_shares, "%"))
        figures.append(figure(f"{target.name}: chat's longest gap, {what}", undisturbed_worst, "ms"))
        figures.append(figure(f"{target.name}: error of predicted calls, median", [100 * error], "%", "<= 10"))
    return figures


def groups(bench: Bench) -> list[Figure]:
    """Several chats and long prompts at once, at the usual target and at the lowest that is possible.

    What is possible the server says itself: it raises a target that it can't keep.
    """
    figures: list[Figure] = []
    with running(legato("Legato", bench.model, "--parallel", "10")) as server:
        run(server.port, [bench.stream("warm up", 100, 30)])
        for chats, documents in ((4, 2), (8, 1)):
            for target_s in (TARGET_S, LOW_TARGET_S):
                shares, worst, possible = [], [], []
                for number in range(bench.rounds):
                    name = f"{chats} {target_s} {number}"
                    more = {"gap_target_ms": 1000 * target_s}
                    talking = [bench.stream(f"chat {name} {i}", 30, 7000, **more) for i in range(chats)]
                    reading = [bench.stream(f"document {name} {i}", 2000, 4, after_s=5.0) for i in range(documents)]
                    run(server.port, [*talking, *reading], until=reading, timeout_s=600)
                    begun, ended = reading[0].sent_s, max(d.times_s[0] for d in reading)
                    gaps = [gap for chat in talking for gap in gaps_between(chat, begun, ended)]
                    possible_s = max(target_s, raised_target_s(server.port, talking))
                    possible.append(1000 * possible_s)
                    shares.append(share_within(gaps, possible_s))
                    worst.append(max(gaps) / possible_s)
                what = f"{chats} chats, {documents} documents, target {1000 * target_s:.0f} ms"
                figures += [
                    figure(f"{what}: what is possible", possible, "ms"),
                    figure(f"{what}: gaps within it", shares, "%", ">= 99"),
                    figure(f"{what}: longest gap over it", worst, "", "<= 1.5"),
                ]
    return figures


def ways(bench: Bench) -> list[Figure]:
    """2,000 tokens beside a chat: interrupted, in pieces, whole; and what a shorter or a longer gap target costs."""
    figures: list[Figure] = []
    targets = [
        legato("interrupted", bench.model),
        legato("in pieces that fit", bench.model, "--no-interruptible"),
        legato("whole", bench.model, "--policy", "whole"),
    ]
    for target in targets:
        with running(target) as server:
            run(server.port, [bench.stream("warm up", 100, 30)])
            for target_ms in (50, 100, 200, 400) if target.name == "interrupted" else (100,):
                times, worst, tails = [], [], []
                for number in range(bench.rounds):
                    chat = bench.stream(f"chat {number}", 40, 7000, gap_target_ms=target_ms)
                    document = bench.stream(f"{target.name} {target_ms} {number}", 2000, 2, after_s=3.0)
                    run(server.port, [chat, document], until=[document], timeout_s=600)
                    gaps = sorted(gaps_between(chat, document.sent_s, document.times_s[0]))
                    times.append(document.ttft_s)
                    tails.append(1000 * percentile(gaps, 99))
                    worst.append(1000 * gaps[-1])
                what = f"{target.name}, target {target_ms} ms"
                figures += [
                    figure(f"{what}: 2,000 tokens read in", times, "s"),
                    figure(f"{what}: 99th percentile of the chat's gaps", tails, "ms"),
                    figure(f"{what}: longest gap", worst, "ms"),
                ]
    return figures


def attention(bench: Bench) -> list[Figure]:
    """FlashAttention off and on: reading 2,000 tokens whole, then decodes at that depth."""
    figures: list[Figure] = []
    for choice in ("off", "on"):
        with running(legato(choice, bench.model, "--policy", "whole", "--flash-attention", choice)) as server:
            run(server.port, [bench.stream("warm up", 100, 30)])
            rates, decodes = [], []
            for number in range(bench.rounds):
                document = bench.stream(f"{choice} {number}", 2000, 30)
                run(server.port, [document])
                rates.append(2000 / document.ttft_s)
                decodes.append(1000 * statistics.median(document.gaps_s))
        figures += [
            figure(f"FlashAttention {choice}: reading", rates, "/s"),
            figure(f"FlashAttention {choice}: a decode at that depth", decodes, "ms"),
        ]
    return figures


def chunks(bench: Bench) -> list[Figure]:
    """The bare library reads 6,000 tokens: FlashAttention off and on, in chunks of several sizes, turn by turn.

    And the longest of its operations in a chunk at their end: reading can't be interrupted within one.
    """
    model, threads = Model(bench.model), default_threads()
    tokens = np.array(bench.prompts.tokens(bench.seed, DOCUMENT), dtype=np.int32)
    times: dict[tuple[FlashAttention, int], list[float]] = {}
    longest: dict[tuple[FlashAttention, int], list[float]] = {}
    cases: list[tuple[FlashAttention, int]] = [("on", 512), ("off", 64), ("on", 128), ("off", 512), ("off", 128)]
    for _ in range(bench.rounds):
        for attention, size in cases:
            context = Context(model, ContextSettings(1, 8192, size, threads, threads, flash_attention=attention))
            batch = Batch(size)
            begun = time.perf_counter()
            for start in range(0, DOCUMENT, size):
                batch.clear()
                batch.add(0, tokens[start : start + size], start, want_logits=False)
                context.evaluate(batch)
            times.setdefault((attention, size), []).append(time.perf_counter() - begun)
            context.remove(0, DOCUMENT - size)
            batch.clear()
            batch.add(0, tokens[-size:], DOCUMENT - size, want_logits=False)
            longest.setdefault((attention, size), []).append(1000 * longest_operation_s(context, batch))
            context.close()
    return [
        *(figure(f"FlashAttention {attention}, chunks of {n}", found, "s") for (attention, n), found in times.items()),
        *(figure(f"FlashAttention {a}, chunks of {n}: longest operation", ms, "ms") for (a, n), ms in longest.items()),
    ]


def longest_operation_s(context: Context, batch: Batch) -> float:
    """The longest time between two of the library's questions whether to go on, while it evaluates a batch."""
    asked_s = [time.perf_counter()]

    def ask() -> bool:
        asked_s.append(time.perf_counter())
        return False

    context.set_abort(ask)
    context.evaluate(batch)
    return max(b - a for a, b in itertools.pairwise(asked_s))


def alone(bench: Bench) -> list[Figure]:
    """A document where nobody writes: the default's chunks against fixed ones."""
    targets = [
        legato("adaptive", bench.model),
        *(
            legato(f"chunks of {n}", bench.model, "--policy", "chunked", "--chunk", str(n))
            for n in (32, 64, 128, 256, 512)
        ),
    ]
    times: dict[str, list[float]] = {target.name: [] for target in targets}
    for number in range(bench.rounds):
        for target in targets:
            with running(target) as server:
                run(server.port, [bench.stream("warm up", 100, 10)])
                document = bench.stream(f"alone {number} {target.name}", DOCUMENT // 2, 2)
                run(server.port, [document])
                times[target.name].append(document.ttft_s)
    fastest = min(statistics.median(found) for name, found in times.items() if name != "adaptive")
    ratios = [found / fastest for found in times["adaptive"]]
    return [
        *(figure(f"{name}: 3,000 tokens read in", found, "s") for name, found in times.items()),
        figure("adaptive over the fastest of them", ratios, "", "<= 1.03"),
    ]


# Background


def background(bench: Bench) -> list[Figure]:
    """A job of 50 prompts beside a person who chats and thinks."""
    jobs, turns = 50, 12
    without: list[float] = []
    beside: list[float] = []
    slowdowns: list[float] = []
    with running(legato("Legato", bench.model)) as server:
        run(server.port, [bench.stream("warm up", 100, 30)])
        for number in range(bench.rounds):
            job = [
                bench.stream(f"job alone {number} {i}", 80, 8, service_tier="flex", gap_target_ms=1000)
                for i in range(jobs)
            ]
            begun = time.perf_counter()
            run(server.port, job)
            job_alone_s = time.perf_counter() - begun
            person = conversation(bench, f"without {number}", turns)
            run(server.port, person)
            busy_s = sum(turn.times_s[-1] - turn.sent_s for turn in person)
            without += person_gaps(person)
            person = conversation(bench, f"beside {number}", turns)
            job = [
                bench.stream(f"job {number} {i}", 80, 8, service_tier="flex", gap_target_ms=1000) for i in range(jobs)
            ]
            begun = time.perf_counter()
            run(server.port, [*person, *job], timeout_s=600)
            job_s = max(stream.times_s[-1] for stream in job) - begun
            beside += person_gaps(person)
            # While the person is answered nothing is idle: those turns that fall into the job's time.
            busy_s = sum(turn.times_s[-1] - turn.sent_s for turn in person if turn.sent_s < begun + job_s)
            slowdowns.append(job_s / (job_alone_s + busy_s))
    medians = statistics.median(beside) / statistics.median(without)
    tails = percentile(sorted(beside), 95) / percentile(sorted(without), 95)
    return [
        figure("chat's gaps beside the job over those without it, median", [medians], "", "<= 1.05"),
        figure("the same, 95th percentile", [tails], "", "<= 1.05"),
        figure("job's time over what idle capacity needs", slowdowns, "", "<= 1.3"),
    ]


def conversation(bench: Bench, name: str, turns: int) -> list[Stream]:
    """Questions of one person, one every four seconds."""
    return [bench.stream(f"{name} turn {i}", 30, 60, after_s=2.0 + 4.0 * i) for i in range(turns)]


def person_gaps(turns: Sequence[Stream]) -> list[float]:
    """The gaps of all answers."""
    return [gap for turn in turns for gap in turn.gaps_s]


# A recorded day


def trace(bench: Bench) -> list[Figure]:
    """The Azure conversation trace, a third of its lengths, its arrivals slowed down to what this machine can do."""
    if bench.trace is None:
        raise SystemExit("The case trace needs --trace FILE, the CSV of the Azure conversation trace.")
    figures: list[Figure] = []
    goodputs: dict[str, float] = {}
    for target in peers(bench, 8)[:3]:
        good: list[float] = []
        with running(target) as server:
            run(server.port, [bench.stream("warm up", 100, 30)])
            own = bench.stream(f"rate of {target.name}", 800, 2)
            run(server.port, [own])
            rate = 800 / own.ttft_s
            for number in range(bench.rounds):
                arrivals = load_trace(bench.trace, rate=TRACE_RATE, length=TRACE_LENGTH, limit_s=TRACE_S).arrivals
                streams = [
                    bench.stream(f"trace {number} {i}", max(8, a.prompt_tokens), max(2, a.answer_tokens), a.at_s)
                    for i, a in enumerate(arrivals)
                ]
                run(server.port, streams, timeout_s=600)
                met = [is_good(stream, rate) for stream in streams]
                good.append(60 * sum(met) / TRACE_S)
        goodputs[target.name] = statistics.median(good)
        figures.append(figure(f"{target.name}: requests a minute that met both targets", good, ""))
    best = max((value for name, value in goodputs.items() if name != "Legato"), default=0.0)
    ratio = goodputs["Legato"] / best if best else float("inf")
    return [*figures, figure(f"of {60 * len(arrivals) / TRACE_S:.1f}; Legato over the best peer", [ratio], "", ">= 3")]


TRACE_RATE = 0.2
"""Of the arrivals: 25 requests a minute."""
TRACE_LENGTH = 0.3
"""Of prompts and answers. With both, two cores that read 130 tokens/s and write 40 are busy most of the time."""
TRACE_S = 180.0


def is_good(stream: Stream, rate: float) -> bool:
    """TTFT within 2 s and the prompt's own reading time, gaps within 100 ms at the 99th percentile."""
    own_s = len(stream.body["prompt"]) / rate
    gaps = sorted(stream.gaps_s)
    return stream.ttft_s <= 2 + own_s and (not gaps or percentile(gaps, 99) <= TARGET_S)


# Planning


def planning(bench: Bench) -> list[Figure]:
    """Planning a step of 64 sequences."""
    costs = CostModel(Coefficients(0.01, 0.001, 3e-6, 0.002, 0.006, 1e-6))
    policy = Adaptive(costs, gap_target_s=TARGET_S, step_tokens=512)
    admitted = [
        Request(i, 500, 100, slot=i, computed_tokens=500 if i % 4 else 0, new_tokens=int(i % 4 > 0), last_token_s=0.0)
        for i in range(64)
    ]
    found = []
    for _ in range(max(5, bench.rounds)):
        begun = time.perf_counter()
        for _ in range(1000):
            policy.plan(admitted, 0.05)
        found.append(1000 * (time.perf_counter() - begun))
    return [figure("a plan for 64 sequences", found, "us", "<= 100")]


# Measures


def gaps_between(stream: Stream, begun_s: float, ended_s: float) -> list[float]:
    """The gaps of a stream that overlap with a time."""
    times = stream.times_s
    return [b - a for a, b in itertools.pairwise(times) if b > begun_s and a < ended_s]


def undisturbed_gaps(stream: Stream, begun_s: float, ended_s: float) -> list[float]:
    """Those in which the machine's host gave no processor time to others, in its counter's steps of 10 ms."""
    tokens = itertools.pairwise(zip(stream.times_s, stream.stolen_s, strict=True))
    return [b - a for (a, before), (b, after) in tokens if b > begun_s and a < ended_s and after == before]


def share_within(gaps: Sequence[float], limit_s: float = TARGET_S) -> float:
    """Percent of the gaps that are not longer."""
    return 100 * sum(gap <= limit_s for gap in gaps) / len(gaps)


def raised_target_s(port: int, streams: Sequence[Stream]) -> float:
    """The longest gap target that the server told of these streams, 0 if it raised none."""
    raised: list[float] = []
    for stream in streams:
        path = f"http://127.0.0.1:{port}/api/requests/{stream.events()[0]['id']}"
        while (answer := httpx.get(path)).status_code == 404:  # its end is not recorded yet
            time.sleep(0.1)
        raised.append(answer.json()["request"]["timings"].get("raised_gap_target_ms") or 0.0)
    return max(raised) / 1000


def prediction_error(port: int) -> float | None:
    """The cost model's own account."""
    found: float | None = httpx.get(f"http://127.0.0.1:{port}/api/status").json()["prediction_error_p50"]
    return found


def figure(what: str, values: list[float], unit: str, goal: str = "") -> Figure:
    """Several rounds of one measure."""
    return Figure(what, statistics.median(values), unit, values, goal)


CASES: dict[str, Callable[[Bench], list[Figure]]] = {
    "reading": reading,
    "settings": settings,
    "converted": converted,
    "groups": groups,
    "ways": ways,
    "attention": attention,
    "chunks": chunks,
    "alone": alone,
    "background": background,
    "trace": trace,
    "planning": planning,
}


if __name__ == "__main__":
    main()
