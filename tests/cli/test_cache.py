"""`legato cache`: what it draws and says, against the real API of a server whose worker is none."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import httpx
import msgspec
import pytest
import uvicorn
from click.testing import Result
from fastapi import FastAPI
from rich.console import Console
from typer.testing import CliRunner

from legato.cli.api_client import CacheContents, CacheTier, CacheTiers, RememberedPrompt
from legato.cli.cache import cache_app, cache_table, totals
from legato.core.cache import CacheEntry
from legato.errors import LegatoError
from tests.server.test_cache_api import ALL, BOTH, PARKED, make_app, remembering
from tests.support.command import run_legato
from tests.support.ports import free_port

LONG_ID = "0123456789abcdef" * 2
HOSTILE = "[red]a\x1b]0;owned\x07\u202e"
HOSTILE_SHOWN = "[red]a\\x1b]0;owned\\x07\\u202e"


@contextmanager
def serving(app: FastAPI) -> Iterator[str]:
    """An application over HTTP, in a thread; its address."""
    server = uvicorn.Server(
        uvicorn.Config(app, port=0, log_level="critical", lifespan="off", timeout_graceful_shutdown=0)
    )
    threading.Thread(target=server.run, daemon=True).start()
    while not server.started:
        threading.Event().wait(0.005)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True


def ran(*arguments: str, environment: dict[str, str] | None = None) -> Result:
    """Run the command in this process; a refusal comes as the exception that the command line makes a sentence of."""
    env = {"COLUMNS": "220", "NO_COLOR": "1", **(environment or {})}
    return CliRunner().invoke(cache_app, list(arguments), env=env, catch_exceptions=False)


def said(*arguments: str) -> str:
    done = ran(*arguments)
    assert done.exit_code == 0, done.output
    return done.stdout


def refusal(*arguments: str) -> str:
    with pytest.raises(LegatoError) as caught:
        ran(*arguments)
    sentence = str(caught.value)
    assert sentence.endswith(".")
    return sentence


def a_cache(**changes: Any) -> CacheContents:
    entry = RememberedPrompt(LONG_ID, "", 4812, 113_200_000, 1234, 3700.0, ["disk", "memory"], pinned=True)
    cache = CacheContents(
        "server",
        CacheTiers(
            live=CacheTier(1, 50),
            memory=CacheTier(1, 4812, 113_200_000, 536_870_912),
            disk=CacheTier(0, 0, 0, 8_000_000_000),
        ),
        [entry],
    )
    return msgspec.structs.replace(cache, **changes)


def rows(cache: CacheContents, width: int = 200) -> list[str]:
    console = Console(width=width, color_system=None, force_terminal=False)
    with console.capture() as capture:
        console.print(cache_table(cache, width=width))
    return capture.get().rstrip("\n").split("\n")


# What is drawn


def test_a_row_says_how_much_where_how_used_and_whose() -> None:
    heading, row = rows(a_cache())
    assert heading.split() == ["ID", "TOKENS", "SIZE", "WHERE", "HITS", "UNUSED", "PINNED", "WHOSE"]
    assert " ".join(row.split()) == "0123456789ab 4,812 113.2 MB disk, memory 1,234 1 h 2 min pinned everybody"


def test_what_is_in_the_cells_has_neither_id_nor_size() -> None:
    parked = RememberedPrompt("", "ana", 50, 0, 0, 2.0, ["live"], pinned=False)
    assert rows(a_cache(entries=[parked]))[1].split() == ["-", "50", "-", "live", "0", "2.0", "s", "ana"]


def test_where_each_key_has_its_own_what_is_nobodys_is_not_everybodys() -> None:
    assert rows(a_cache(scope="key"))[1].rstrip().endswith(" -")


@pytest.mark.parametrize(
    ("width", "left_out"), [(200, 0), (90, 0), (80, 1), (74, 2), (64, 3), (60, 3)], ids=lambda value: str(value)
)
def test_a_row_is_a_line_however_narrow_the_terminal(width: int, left_out: int) -> None:
    entry = a_cache().entries[0]
    other = msgspec.structs.replace(entry, scope="the kitchen tablet", unused_s=360_000.0, bytes=999_900_000)
    heading, *others = rows(a_cache(entries=[entry, other]), width)
    assert len(others) == 2
    assert len(heading.split()) == 8 - left_out
    for row in others:
        assert row.startswith("0123456789ab ")
        assert "disk, memory" in row
        assert "…" not in row.removesuffix("the kitchen…")
    assert "100 h 0 min" in others[1]


def test_totals_set_each_place_against_its_budget() -> None:
    assert totals(a_cache()) == [
        "In cells that no request holds: 1 prompt, 50 tokens.",
        "In memory: 1 prompt, 4,812 tokens, 113.2 MB of at most 536.9 MB.",
        "On disk: nothing, of at most 8.0 GB.",
    ]


def test_totals_of_places_that_keep_nothing() -> None:
    nothing = CacheTier(0, 0)
    lines = totals(a_cache(scope="key", tiers=CacheTiers(nothing, nothing, nothing)))
    assert lines == [
        "Of all keys together:",
        "In cells that no request holds: nothing.",
        "In memory: nothing is kept there.",
        "On disk: nothing is kept there.",
    ]


# The command against a server


def test_the_list() -> None:
    with serving(remembering()[0]) as url:
        lines = said("--url", f"{url}/v1/").splitlines()
    assert [line.split()[0] for line in lines[:5]] == ["ID", "-", "abd222", "abc111", "fff333"]
    assert lines[5] == ""
    assert lines[6:] == [
        "In cells that no request holds: 1 prompt, 50 tokens.",
        "In memory: 2 prompts, 1,400 tokens, 7.0 kB of at most 10.0 kB.",
        "On disk: 2 prompts, 1,300 tokens, 6.5 kB of at most 20.0 kB.",
    ]


def test_as_json_it_is_the_servers_own() -> None:
    with serving(remembering()[0]) as url:
        assert json.loads(said("--json", "--url", url)) == httpx.get(f"{url}/api/cache").json()


@pytest.mark.parametrize(
    ("scope", "expected"),
    [
        ("server", "Nothing is remembered yet.\n"),
        ("off", "This server remembers no prompts: its cache_scope is off.\n"),
    ],
)
def test_nothing_to_list(scope: str, expected: str) -> None:
    with serving(remembering([], cache_scope=scope)[0]) as url:
        assert said("--url", url) == expected


def test_nothing_that_this_key_may_begin_with() -> None:
    app, _ = remembering(api_keys=("zoe=z",), cache_scope="key")
    with serving(app) as url:
        lines = said("--url", url, "--api-key", "z").splitlines()
    assert lines[0] == "Nothing is remembered that requests with this key may begin with."
    assert lines[2] == "Of all keys together:"
    assert lines[4].startswith("In memory: 2 prompts")


def test_clearing_all_says_what_that_freed() -> None:
    app, worker = remembering()
    with serving(app) as url:
        assert said("clear", "--url", url) == "Forgotten: 4 prompts, 1,750 tokens; 13.5 kB are free again.\n"
        assert worker.entries == []
        assert said("clear", "--url", url) == "Nothing was remembered.\n"


def test_what_was_in_the_cells_alone_frees_no_bytes() -> None:
    with serving(remembering([PARKED])[0]) as url:
        assert said("clear", "--url", url) == "Forgotten: 1 prompt, 50 tokens.\n"


def test_clearing_one() -> None:
    app, worker = remembering()
    with serving(app) as url:
        assert said("clear", "abc", "--url", url) == "Forgotten: 1 prompt, 1,000 tokens; 10.0 kB are free again.\n"
    assert worker.entries == [entry for entry in ALL if entry is not BOTH]


def test_pinning_and_letting_go() -> None:
    app, worker = remembering()
    with serving(app) as url:
        done = said("pin", "abc", "--url", url)
        assert done == "abc111 is pinned: it stays, whatever room others need.\n"
        assert worker.entries[1].pinned
        assert said("unpin", "abc1", "--url", url) == "abc111 is not pinned any more.\n"
        assert not worker.entries[1].pinned


@pytest.mark.parametrize("command", ["clear", "pin", "unpin"])
@pytest.mark.parametrize("entry", ["", ".", "..", "../..", "nobody", "a/b?c#d", "\x1b", "é"])
@pytest.mark.parametrize("entries", [ALL, (BOTH,)])
def test_what_is_no_id_is_refused_and_changes_nothing(command: str, entry: str, entries: Sequence[CacheEntry]) -> None:
    app, worker = remembering(entries)
    with serving(app) as url:
        sentence = refusal(command, entry, "--url", url)
    assert sentence.isprintable()
    assert worker.entries == list(entries)


def test_sentences_for_ids() -> None:
    with serving(remembering()[0]) as url:
        assert "No remembered prompt has the id 'nobody'" in refusal("clear", "nobody", "--url", url)
        assert "write more of the id" in refusal("pin", "ab", "--url", url)


@pytest.mark.parametrize("command", [["clear"], ["clear", "abc"], ["pin", "abc"], ["unpin", "abc"]])
def test_a_key_that_is_no_admins_is_refused(command: list[str]) -> None:
    app, worker = remembering(api_keys=("root=admin", "ana=a"), admins=("root",))
    with serving(app) as url:
        assert "--admin NAME" in refusal(*command, "--url", url, "--api-key", "a")
        assert "An API key is needed" in refusal(*command, "--url", url)
        assert worker.asked == []
        assert said(*command, "--url", url, "--api-key", "admin")


def test_the_key_can_come_from_the_environment() -> None:
    with serving(remembering(api_keys=("sesame",))[0]) as url:
        assert ran("--url", url, environment={"LEGATO_CHAT_KEY": "sesame"}).exit_code == 0


COMMANDS = [[], ["--json"], ["clear"], ["pin", "abc"], ["unpin", "abc"]]


@pytest.mark.parametrize("command", COMMANDS)
def test_without_a_server_one_sentence_says_so(command: list[str]) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    sentence = refusal(*command, "--url", url)
    assert sentence == f"No Legato server answers at {url}; start one with `legato serve`."


@pytest.mark.parametrize("command", COMMANDS)
def test_while_the_model_is_loaded(command: list[str]) -> None:
    with serving(make_app()) as url:
        assert "is being loaded" in refusal(*command, "--url", url)


@pytest.mark.parametrize("before", [["--json"], ["--url", "http://127.0.0.1:9"], ["--api-key", "x"]])
def test_no_option_is_ignored_silently(before: list[str]) -> None:
    done = ran(*before, "clear")
    assert done.exit_code == 2
    assert f"{before[0]} before clear has no effect" in " ".join(done.output.split())


@pytest.mark.parametrize("arguments", [["pin"], ["unpin"], ["clear", "a", "b"], ["clare"]])
def test_what_it_does_not_take_is_a_usage_error(arguments: list[str]) -> None:
    assert ran(*arguments).exit_code == 2


def test_hostile_names_are_shown_and_not_obeyed() -> None:
    entry = CacheEntry(HOSTILE, HOSTILE, 1, 1, 0, 0.0, [HOSTILE], pinned=False)
    app, _ = remembering([entry, msgspec.structs.replace(BOTH, id=f"x{HOSTILE}")])
    with serving(app) as url:
        texts = [said("--url", url), said("pin", "x", "--url", url)]
    for text in texts:
        assert not set(text) & set("\x1b\x07\u202e")
    assert f" {HOSTILE_SHOWN} " in texts[0]
    assert texts[1].startswith(f"x{HOSTILE_SHOWN} is pinned")


def test_the_help_lists_it() -> None:
    lines = run_legato("--help").stdout.splitlines()
    assert any("cache " in line and "List what the running server remembers" in line for line in lines)
