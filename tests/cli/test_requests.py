"""`legato requests`, `legato explain`, `legato top`: what they draw, and how they talk to a server."""

from __future__ import annotations

import contextlib
import dataclasses
import http.server
import json
import os
import pty
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest
import typer
from click.testing import Result
from rich.console import Console, RenderableType
from typer.testing import CliRunner

from legato.cli.api_client import Explained, Listing, MachineUse, Status, readable_json
from legato.cli.background_server import server_address
from legato.cli.explain import bar, chunks_summary, explain_command, explanation
from legato.cli.plain_text import plain
from legato.cli.requests import requests_command, requests_table
from legato.cli.top import Snapshot, _quit_typed, lanes_table, picture, progress, top_command
from legato.core.causes import Blame, CauseTimes
from legato.core.timings import ChunkRead, Stall, Timings
from legato.errors import LegatoError
from legato.telemetry.record import LiveRequest, RequestRecord
from legato.telemetry.summary import RequestSummary
from legato.telemetry.verdict import verdict
from tests.support.ports import free_port

HOSTILE = "[red]a[/nothing]\x1b]0;owned\x07\r\n\u202eb"
HOSTILE_SHOWN = "[red]a[/nothing]\\x1b]0;owned\\x07\\r\\n\\u202eb"
DEADLINE_S = 20.0

TIMINGS = Timings(
    load_ms=0.0,
    queue_ms=100.0,
    prefill_ms=5900.0,
    prefill_tokens=4812,
    cached_tokens=188,
    prefill_tokens_per_second=815.0,
    ttft_ms=6000.0,
    decode_ms=4000.0,
    decode_tokens=51,
    decode_tokens_per_second=12.5,
    itl_p50_ms=30.0,
    itl_p95_ms=40.0,
    itl_max_ms=2100.0,
    total_ms=10_000.0,
    prefill_parts=CauseTimes(own_prefill_ms=5800.0, engine_ms=100.0, delivery_ms=-3.0),
    decode_parts=CauseTimes(own_decode_ms=1500.0, others_prefill_ms=2500.0, blamed=[Blame("other", 512, 2500.0)]),
    stalls=3,
    stalled_ms=2500.0,
)
RECORD = RequestRecord(
    id="chatcmpl-abc",
    endpoint="chat",
    model="smollm2",
    client="ana",
    arrived_at=1_700_000_000.0,
    end="stop",
    error="",
    prompt_tokens=5000,
    timings=TIMINGS,
    stalls=[
        Stall(
            7000.0, 2100.0, "others_prefill", CauseTimes(others_prefill_ms=2100.0, blamed=[Blame("other", 512, 2000)])
        )
    ],
    chunks=[ChunkRead(100.0, 500.0, 188, 512), ChunkRead(600.0, 700.0, 700, 300), ChunkRead(1300.0, 600.0, 1000, 512)],
)
LIVE = LiveRequest(
    id="chatcmpl-live",
    endpoint="chat",
    client=None,
    phase="prefill",
    since_ms=3200.0,
    prompt_tokens=4000,
    cached_tokens=0,
    read_tokens=2000,
    answer_tokens=0,
    prefill_left_ms=2500.0,
    decode_tokens_per_second=None,
    gap_ms=None,
    gap_max_ms=None,
)
STATUS = Status(
    model="smollm2",
    state="ready",
    running=2,
    waiting=1,
    parallel=4,
    kv_cells_used=2048,
    kv_cells=8192,
    decode_tokens_per_second=31.0,
    prefill_tokens_per_second=815.0,
    utilisation=MachineUse(cpu_percent=87.4, memory_percent=40.0),
)


def a_summary(**changes: Any) -> RequestSummary:
    summary = RequestSummary(
        id="chatcmpl-abc",
        arrived_at=1_700_000_000.0,
        endpoint="chat",
        model="smollm2",
        client="ana",
        end="stop",
        prompt_tokens=5000,
        cached_tokens=188,
        answer_tokens=51,
        load_ms=0.0,
        queue_ms=100.0,
        prefill_ms=5900.0,
        ttft_ms=6000.0,
        decode_ms=4000.0,
        total_ms=10_000.0,
        itl_max_ms=2100.0,
        stalls=3,
        verdict="5.9 of 10.0 s went into reading.",
    )
    return msgspec.structs.replace(summary, **changes)


def live(**changes: Any) -> LiveRequest:
    return msgspec.structs.replace(LIVE, **changes)


def drawn(view: RenderableType, width: int = 200) -> str:
    console = Console(width=width, color_system=None, force_terminal=False)
    with console.capture() as capture:
        console.print(view)
    return capture.get()


# What is drawn.


def test_requests_are_listed_running_ones_first() -> None:
    text = drawn(requests_table(Listing([LIVE], [a_summary(), a_summary(id="old", client=None)]), width=200))
    heading, running, ended, old = text.splitlines()
    assert heading.split()[:4] == ["ID", "ARRIVED", "CLIENT", "STATE"]
    assert running.split()[:6] == ["chatcmpl-live", "3.2", "s", "ago", "-", "prefill"]
    assert all(part in ended for part in ("ana", "stop", "5,000    188", "100 ms", "5.9 s", "4.0 s", "2.1 s"))
    assert ended.rstrip().endswith("5.9 of 10.0 s went into reading.")
    assert old.startswith("old")


def test_reasons_are_left_out_where_there_is_no_room_or_none() -> None:
    assert "WHY" not in drawn(requests_table(Listing([], [a_summary()]), width=160))
    assert "WHY" not in drawn(requests_table(Listing([], [a_summary(verdict="")]), width=200))


def test_a_moment_that_is_none_is_no_failure() -> None:
    assert "?" in drawn(requests_table(Listing([], [a_summary(arrived_at=1e300)]), width=160))


def test_an_explanation_has_sentences_and_the_figures_behind_them() -> None:
    found = verdict(RECORD)
    text = drawn(explanation(Explained(RECORD, found)))
    lines = text.splitlines()
    assert lines[0].startswith("chatcmpl-abc · smollm2 · ana · ")
    assert lines[2 : 2 + len(found.sentences)] == found.sentences
    reading = next(line for line in lines if line.startswith("reading"))
    assert reading.split()[1:4] == ["5.9", "s", "59%"]
    assert reading.count("█") == 18
    assert next(line for line in lines if line.startswith("delivery to")).split()[-4:] == ["-3.0", "ms", "0", "ms"]
    assert "Longest gaps (2 shorter ones are not listed):" in lines
    assert "  after 7.0 s: 2.1 s, 2.1 s for others' prompts (512 tokens of other)" in lines
    assert lines[-1] == (
        "Its prompt was read in 3 pieces of 300 to 512 tokens: half of them took 600 ms or less, "
        "the slowest 700 ms, at token 700."
    )


def test_an_explanation_without_parts_stalls_or_chunks() -> None:
    bare = dataclasses.replace(TIMINGS, prefill_parts=None, decode_parts=None, stalls=0)
    record = msgspec.structs.replace(RECORD, timings=bare, stalls=[], chunks=[], client=None)
    text = drawn(explanation(Explained(record, verdict(record))))
    assert "WENT INTO" not in text
    assert "gap" not in text
    assert "piece" not in text


def test_a_prompt_read_in_one_piece() -> None:
    assert (
        chunks_summary([ChunkRead(1.0, 50.0, 0, 1)]) == "Its prompt was read in 1 piece of 1 token, which took 50 ms."
    )


@pytest.mark.parametrize(
    ("begin", "share", "expected"),
    [
        (0, 0, ""),
        (0, 1, "█" * 10),
        (0.5, 0.5, " " * 5 + "█" * 5),
        (0, 0.001, "▏"),
        (1, 0.001, " " * 9 + "▏"),
        (0.99, 0.5, " " * 9 + "█"),
    ],
)
def test_bars(begin: float, share: float, expected: str) -> None:
    assert bar(begin, share, cells=10) == expected


def test_top_shows_the_server_and_a_line_for_each_request() -> None:
    running = [
        live(id="waits", phase="queue", ahead=2),
        live(),
        live(
            id="writes",
            client="ben",
            phase="decode",
            answer_tokens=1234,
            decode_tokens_per_second=31.2,
            gap_ms=30.0,
            gap_max_ms=900.0,
        ),
    ]
    lines = drawn(picture(Snapshot(STATUS, running), "http://here", 200)).splitlines()
    assert lines[0] == "smollm2 · ready · http://here"
    assert lines[1] == "2 of 4 running · 1 waiting · KV cells 2,048 of 8,192 (25%)"
    assert lines[2] == "reading 815 tokens/s · writing 31 tokens/s · CPU 87 % · memory 40 %"
    writes, reads, waits = lines[-3:]
    assert " ".join(writes.split()) == "writes ben writing 1,234 31/s 30 ms 900 ms 3.2 s"
    assert "████████░░░░░░░░ 2,000/4,000, 2.5 s left" in reads
    assert "2 ahead" in waits


def test_top_tells_background_work_and_how_often_it_gave_way() -> None:
    running = [
        live(id="writes", phase="decode", service_tier="flex", preemptions=2),
        live(id="reads", service_tier="flex", preemptions=1),
        live(id="waits", phase="queue", ahead=2, service_tier="flex", preemptions=1),
        live(id="begins", phase="queue", service_tier="flex", since_ms=1.0),
    ]
    writes, reads, waits, begins = drawn(lanes_table(running, 200)).splitlines()[1:]
    assert "writing background, gave way 2x" in " ".join(writes.split())
    assert "reading 2,000/4,000, 2.5 s left, background" in " ".join(reads.split())
    assert "waiting 2 ahead, background, gave way 1x" in " ".join(waits.split())
    assert "waiting next, background" in " ".join(begins.split())
    assert "background" not in drawn(lanes_table([live()], 200))


def test_an_explanation_of_background_work_says_so() -> None:
    record = msgspec.structs.replace(RECORD, service_tier="flex")
    title = drawn(explanation(Explained(record, verdict(record)))).splitlines()[0]
    assert title.endswith(" · background · stop")


def test_top_of_an_idle_server_that_is_still_loading() -> None:
    text = drawn(picture(Snapshot(Status(model=None, state="loading"), []), "http://here", 200))
    assert "no model · loading" in text
    assert "reading - · writing -" in text
    assert "No request is running." in text


def test_top_says_that_the_server_is_gone() -> None:
    text = drawn(picture(Snapshot(STATUS, [LIVE], lost="No server."), "http://here", 200))
    assert "No server. Trying again; below is what was known last." in text
    assert "chatcmpl-live" in text


@pytest.mark.parametrize("width", [80, 100, 115, 150, 200])
def test_a_row_is_a_line_however_narrow_the_terminal(width: int) -> None:
    long_id = "chatcmpl-7f3a9b2c4d5e6f708192a3b4c5d6e7f8"
    running = live(id=long_id, client="the kitchen tablet", answer_tokens=123, gap_ms=30.0, gap_max_ms=900.0)
    ended = a_summary(id=long_id, client="the kitchen tablet", end="cancelled")
    background = msgspec.structs.replace(running, service_tier="flex", preemptions=12)
    for table in (requests_table(Listing([running], [ended]), width=width), lanes_table([running, background], width)):
        lines = drawn(table, width).rstrip("\n").split("\n")
        assert len(lines) == 3
        assert all(line.startswith("chatcmpl-7f3a9b2c") for line in lines[1:])
        assert "…" not in lines[0]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"phase": "load"}, ""),
        ({"phase": "queue"}, "next"),
        ({"prompt_tokens": 0}, ""),
        ({"read_tokens": 9000, "prefill_left_ms": None}, "█" * 16 + " 9,000/4,000"),
        ({"read_tokens": 0, "prefill_left_ms": None}, "░" * 16 + " 0/4,000"),
    ],
)
def test_progress(changes: dict[str, Any], expected: str) -> None:
    assert progress(live(**changes)) == expected


def test_hostile_names_are_shown_and_not_obeyed() -> None:
    hostile = msgspec.structs.replace(RECORD, id=HOSTILE, model=HOSTILE, client=HOSTILE, end="failed", error=HOSTILE)
    views = [
        requests_table(
            Listing([live(id=HOSTILE, client=HOSTILE)], [a_summary(id=HOSTILE, client=HOSTILE, verdict=HOSTILE)]),
            width=200,
        ),
        explanation(Explained(hostile, verdict(hostile))),
        lanes_table([live(id=HOSTILE)], 200),
        picture(
            Snapshot(msgspec.structs.replace(STATUS, model=HOSTILE, state=HOSTILE), [], lost=HOSTILE), HOSTILE, 200
        ),
    ]
    for view in views:
        text = drawn(view, width=400)
        assert HOSTILE_SHOWN in text
        assert not set(text) & set("\x1b\x07\r\u202e")


def test_plain_text_keeps_what_is_seen() -> None:
    assert plain("Zoë 日本 [x] 🙂") == "Zoë 日本 [x] 🙂"
    assert plain("\x9b\x7f\ud800") == "\\x9b\\x7f\\ud800"


def test_json_steers_no_terminal() -> None:
    text = readable_json(json.dumps({"a": HOSTILE + "\x7f\x9b"}, ensure_ascii=False).encode())
    assert all(char.isprintable() or char == "\n" for char in text)
    assert json.loads(text) == {"a": HOSTILE + "\x7f\x9b"}


def test_a_key_ends_top_only_if_it_is_q() -> None:
    for typed, expected in ((b"x", False), (b"xQ", True), (b"q", True)):
        reading, writing = os.pipe()
        os.write(writing, typed)
        assert _quit_typed(reading) is expected
        os.close(writing)
        assert _quit_typed(reading) is True, "a terminal that is closed ends it, too"
        os.close(reading)


# The commands against a server.


class ScriptedServer:
    """Answers GET by path, ignoring the query; keeps what it was asked."""

    def __init__(self, port: int = 0) -> None:
        self.answers: dict[str, tuple[int, bytes]] = {}
        self.asked: list[tuple[str, dict[str, list[str]], str | None]] = []
        script = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                script.asked.append((parts.path, parse_qs(parts.query), self.headers["Authorization"]))
                status, body = script.answers.get(parts.path, (404, b'{"error": {"message": "No such request."}}'))
                self.send_response(status)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def say(self, path: str, value: Any, status: int = 200) -> None:
        self.answers[path] = (status, msgspec.json.encode(value))


@pytest.fixture
def scripted() -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        server.say("/api/status", STATUS)
        server.say("/api/requests", Listing([LIVE], [a_summary(), a_summary(id="chatcmpl-xyz")]))
        server.say("/api/requests/chatcmpl-abc", Explained(RECORD, verdict(RECORD)))
        yield server


def ran(command: Callable[..., None], *arguments: str, environment: dict[str, str] | None = None) -> Result:
    """Run a command in this process; a refusal comes as the exception that the command line makes a sentence of."""
    app = typer.Typer()
    app.command()(command)
    env = {"COLUMNS": "220", "NO_COLOR": "1", **(environment or {})}
    return CliRunner().invoke(app, list(arguments), env=env, catch_exceptions=False)


def refusal(command: Callable[..., None], *arguments: str) -> str:
    with pytest.raises(LegatoError) as caught:
        ran(command, *arguments)
    sentence = str(caught.value)
    assert sentence.endswith(".")
    assert plain(sentence) == sentence
    return sentence


def test_requests_asks_with_its_filters_and_its_key(scripted: ScriptedServer) -> None:
    options = ["--limit", "7", "--client", "ana", "--slower-than", "250", "--url", f"{scripted.url}/v1/"]
    done = ran(requests_command, *options, environment={"LEGATO_CHAT_KEY": "sesame"})
    assert "chatcmpl-live" in done.stdout
    assert "5.9 of 10.0 s went into reading." in done.stdout
    ((path, query, key),) = scripted.asked
    assert (path, key) == ("/api/requests", "Bearer sesame")
    assert query == {"limit": ["7"], "client": ["ana"], "slower_than_ms": ["250.0"]}


def test_requests_as_json_are_the_servers_own(scripted: ScriptedServer) -> None:
    done = ran(requests_command, "--json", "--url", scripted.url)
    assert json.loads(done.stdout) == json.loads(scripted.answers["/api/requests"][1])


def test_no_requests(scripted: ScriptedServer) -> None:
    scripted.say("/api/requests", Listing([], []))
    assert ran(requests_command, "--url", scripted.url).stdout == "No requests yet.\n"
    assert ran(requests_command, "--url", scripted.url, "--client", "x").stdout == "No such requests.\n"


def test_explain_takes_a_whole_id_its_beginning_or_the_last_one(scripted: ScriptedServer) -> None:
    texts = [
        ran(explain_command, *given, "--url", scripted.url).stdout for given in (["chatcmpl-abc"], ["chatcmpl-a"], [])
    ]
    assert texts[0] == texts[1] == texts[2]
    assert "went into reading 4,812 prompt tokens" in texts[0]


def test_explain_as_json_has_record_and_verdict(scripted: ScriptedServer) -> None:
    done = ran(explain_command, "chatcmpl-abc", "--json", "--url", scripted.url)
    assert msgspec.json.decode(done.stdout, type=Explained) == Explained(RECORD, verdict(RECORD))


def test_explain_refuses_what_is_not_one_ended_request(scripted: ScriptedServer) -> None:
    url = ("--url", scripted.url)
    assert refusal(explain_command, "nobody", *url) == "No such request."
    assert "chatcmpl-abc, chatcmpl-xyz and chatcmpl-live; write more" in refusal(explain_command, "chatcmpl-", *url)
    assert "chatcmpl-live has not ended yet" in refusal(explain_command, "chatcmpl-l", *url)
    scripted.say("/api/requests", Listing([], []))
    assert "No request has ended yet" in refusal(explain_command, *url)


def test_an_id_stays_one_part_of_the_path(scripted: ScriptedServer) -> None:
    refusal(explain_command, "../status?x#y\x1b", "--url", scripted.url)
    assert scripted.asked[-1][0] == "/api/requests/..%2Fstatus%3Fx%23y%1B"


def test_top_without_a_terminal_prints_one_picture(scripted: ScriptedServer) -> None:
    done = ran(top_command, "--url", scripted.url)
    assert done.stdout.startswith(f"smollm2 · ready · {scripted.url}\n")
    assert "2,000/4,000, 2.5 s left" in done.stdout
    assert len(scripted.asked) == 2


@pytest.mark.parametrize("command", [requests_command, explain_command, top_command])
def test_without_a_server_one_sentence_says_so(command: Callable[..., None]) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    assert refusal(command, "--url", url) == f"No Legato server answers at {url}; start one with `legato serve`."


@pytest.mark.parametrize("url", ["http://[", "nonsense", "http://\x1b", "http://a b", "ftp://127.0.0.1"])
def test_what_is_no_address_is_refused(url: str) -> None:
    refusal(requests_command, "--url", url)


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (401, b'{"error": {"message": "An API key is \\u001bneeded."}}', "An API key is \\x1bneeded."),
        (500, b"oops", "answered 500, and not as Legato does."),
        (404, b"[]", "answered 404, and not as Legato does."),
        (200, b"<html>", "not as this version of Legato does"),
        (200, b'{"running": 3}', "not as this version of Legato does"),
        (200, b"\xff", "not as this version of Legato does"),
    ],
)
def test_answers_that_are_none(scripted: ScriptedServer, status: int, body: bytes, expected: str) -> None:
    scripted.answers["/api/requests"] = (status, body)
    assert expected in refusal(requests_command, "--url", scripted.url)


def test_json_that_is_none(scripted: ScriptedServer) -> None:
    scripted.answers["/api/requests"] = (200, b"<html>")
    assert "no JSON" in refusal(requests_command, "--json", "--url", scripted.url)


def test_the_settings_say_where_and_with_which_key() -> None:
    def shown(url: str | None = None, api_key: str | None = None) -> None:
        address = server_address(url, api_key)
        typer.echo(f"{address.base_url} {address.api_key}")

    settings = {"LEGATO_HOST": "::1", "LEGATO_PORT": "9", "LEGATO_API_KEYS": "ana=one,two"}
    assert ran(shown, environment=settings).stdout == "http://[::1]:9 one\n"
    assert ran(shown, "--api-key", "mine", environment=settings).stdout == "http://[::1]:9 mine\n"
    assert ran(shown, "--url", "http://there", environment=settings).stdout == "http://there None\n"


class Terminal:
    """`legato top` in a terminal of its own."""

    def __init__(self, *arguments: str) -> None:
        self._ours, theirs = pty.openpty()
        code = "import typer; from legato.cli.top import top_command; typer.run(top_command)"
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "160", "LINES": "30"},
        )
        os.close(theirs)
        self._text = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)

    def type(self, keys: bytes) -> None:
        os.write(self._ours, keys)

    def wait_for(self, words: str) -> None:
        """Read until the words come, after those that were waited for before."""
        deadline = time.monotonic() + DEADLINE_S
        while words.encode() not in self._text:
            assert time.monotonic() < deadline, self._text
            self._text += os.read(self._ours, 65_536)
        self._text = self._text.rpartition(words.encode())[2]


def test_top_in_a_terminal_outlives_its_server_and_ends_with_q() -> None:
    port = free_port()
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(ScriptedServer(port))
        server.say("/api/status", STATUS)
        server.say("/api/requests", Listing([LIVE], []))
        terminal = stack.enter_context(Terminal("--url", server.url))
        terminal.wait_for("chatcmpl-live")
        server.stop()
        terminal.wait_for("Trying again")
        with ScriptedServer(port) as server:
            server.say("/api/status", msgspec.structs.replace(STATUS, model="another"))
            server.say("/api/requests", Listing([], []))
            terminal.wait_for("another")
            terminal.wait_for("No request is running.")
            terminal.type(b"q")
            assert terminal.process.wait(DEADLINE_S) == 0
