"""`legato top`: what the server does now, request by request."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from legato.cli.api_client import ApiClient, Status
from legato.cli.console import out
from legato.cli.plain_text import plain_text
from legato.cli.server_options import ApiKey, Url, asked_server
from legato.cli.tables import (
    CLIENT_CELLS,
    PHASE_NAMES,
    Column,
    client_text,
    columns,
    id_text,
    optional_duration,
    optional_rate,
    print_view,
    table_of,
)
from legato.errors import LegatoError
from legato.telemetry.breakdown import PHASES
from legato.telemetry.record import LiveRequest
from legato.telemetry.wording import duration

REFRESH_S = 0.5
TIMEOUT_S = 2.0
PROGRESS_CELLS = 16
ROOMY_FROM = 112
"""Columns of the terminal from which on every figure is shown."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The server at one moment."""

    status: Status
    running: list[LiveRequest]
    lost: str = ""
    """Why this is old news: the sentence of the latest failed try; empty if it is fresh."""


def top_command(url: Url = None, api_key: ApiKey = None) -> None:
    """Show the running server's requests as they go; q or Ctrl-C ends it.

    Where the output is no terminal, one picture is printed.
    """
    with asked_server(url, api_key, timeout_s=TIMEOUT_S) as server:
        seen = snapshot(server)
        if not out.is_terminal:
            print_view(picture(seen, server.base_url, columns()))
            return
        with (
            contextlib.suppress(KeyboardInterrupt),
            _key_reader() as ended,
            Live(console=out, screen=True, auto_refresh=False) as live,
        ):
            while True:
                shown = picture(seen, server.base_url, columns())
                live.update(Group(shown, Text("\nq ends", style="dim")), refresh=True)
                if ended():
                    return
                try:
                    seen = snapshot(server)
                except LegatoError as error:
                    seen = replace(seen, lost=str(error))


def snapshot(server: ApiClient) -> Snapshot:
    """Ask the server.

    Raises:
        LegatoError: It can't be reached or refuses.
    """
    return Snapshot(server.status().decoded(), server.listing(limit=1).decoded().running)


@contextlib.contextmanager
def _key_reader() -> Iterator[Callable[[], bool]]:
    """A function that waits until the next refresh and says whether q was typed meanwhile."""
    if not sys.stdin.isatty():
        yield _wait_without_keys
        return
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    # Keys come at once instead of after Enter; Ctrl-C stays what it is.
    tty.setcbreak(descriptor)
    try:
        yield lambda: _quit_typed(descriptor)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _wait_without_keys() -> bool:
    time.sleep(REFRESH_S)
    return False


def _quit_typed(descriptor: int) -> bool:
    """Wait until the next refresh or a key; whether that was q, or the terminal was closed."""
    if not select.select([descriptor], [], [], REFRESH_S)[0]:
        return False
    # Past Python's own buffer, in which select would not see what is left over.
    keys = os.read(descriptor, 64)
    return not keys or b"q" in keys.lower()


def picture(seen: Snapshot, base_url: str, width: int) -> RenderableType:
    """The whole view: the server, how busy it is, and a line for each running request."""
    status = seen.status
    title = f"{status.model or 'no model'} · {status.state} · {base_url}"
    blocks: list[RenderableType] = [plain_text(title, style="bold")]
    if seen.lost:
        blocks.append(plain_text(f"{seen.lost} Trying again; below is what was known last.", style="bold red"))
    blocks += [Text(load_line(status)), Text(rates_line(status)), Text()]
    blocks.append(lanes_table(seen.running, width) if seen.running else Text("No request is running."))
    return Group(*blocks)


def load_line(status: Status) -> str:
    """How full the server is."""
    of = "" if status.parallel is None else f" of {status.parallel:,}"
    facts = [f"{status.running:,}{of} running", f"{status.waiting:,} waiting"]
    if status.kv_cells and status.kv_cells_used is not None:
        share = status.kv_cells_used / status.kv_cells
        facts.append(f"KV cells {status.kv_cells_used:,} of {status.kv_cells:,} ({share:.0%})")
    return " · ".join(facts)


def rates_line(status: Status) -> str:
    """How fast it reads and writes, and how busy the machine is."""
    busy = status.utilisation
    percents = [("CPU", busy.cpu_percent), ("memory", busy.memory_percent), ("GPU", busy.gpu_percent)]
    facts = [
        f"reading {optional_rate(status.prefill_tokens_per_second)}",
        f"writing {optional_rate(status.decode_tokens_per_second)}",
        *(f"{name} {percent:.0f} %" for name, percent in percents if percent is not None),
    ]
    return " · ".join(facts)


def lanes_table(running: list[LiveRequest], width: int) -> Table:
    """A line for each running request, who writes on top, the longest there first; less of it on a narrow terminal."""

    def short_progress(live: LiveRequest) -> str:
        return progress(live, cells=PROGRESS_CELLS // 2)

    shown: list[Column[LiveRequest]] = [
        Column("ID", lambda live: id_text(live.id, width), right=False),
        Column("CLIENT", lambda live: client_text(live.client), ROOMY_FROM, right=False, max_width=CLIENT_CELLS),
        Column("PHASE", lambda live: PHASE_NAMES[live.phase], right=False),
        Column("PROGRESS", progress_and_tier if width >= ROOMY_FROM else short_progress, right=False),
        Column("ANSWER", lambda live: f"{live.answer_tokens:,}", ROOMY_FROM),
        Column("RATE", _speed),
        Column("GAP", lambda live: optional_duration(live.gap_ms), ROOMY_FROM),
        Column("WORST", lambda live: optional_duration(live.gap_max_ms)),
        Column("SINCE", lambda live: duration(live.since_ms)),
    ]
    lanes = sorted(running, key=lambda live: (PHASES.index(live.phase), live.since_ms), reverse=True)
    return table_of(shown, lanes, width)


def _speed(live: LiveRequest) -> str:
    return "-" if live.decode_tokens_per_second is None else f"{live.decode_tokens_per_second:.0f}/s"


def progress(live: LiveRequest, *, cells: int = PROGRESS_CELLS) -> str:
    """How far a request is: a bar while its prompt is read, its place while it waits."""
    if live.phase == "queue":
        return f"{live.ahead:,} ahead" if live.ahead else "next"
    if live.phase != "prefill" or live.prompt_tokens <= 0:
        return ""
    share = min(1.0, max(0.0, live.read_tokens / live.prompt_tokens))
    filled = int(share * cells)
    left = "" if live.prefill_left_ms is None else f", {duration(live.prefill_left_ms)} left"
    done = "█" * filled + "░" * (cells - filled)
    return f"{done} {live.read_tokens:,}/{live.prompt_tokens:,}{left}".lstrip()


def progress_and_tier(live: LiveRequest) -> str:
    """How far a request is, and of background work that it is some and how often it gave way."""
    if live.service_tier != "flex":
        return progress(live)
    # Words take the room of the bar.
    words = [progress(live, cells=0), "background"]
    if live.preemptions and live.phase != "prefill":
        words.append(f"gave way {live.preemptions:,}x")
    return ", ".join(filter(None, words))
