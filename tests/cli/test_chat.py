"""`legato chat`, its lines typed through standard input."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.asking import ANSWER, QUESTION
from tests.support.command import refused, run_legato
from tests.support.ports import free_port
from tests.support.server import LegatoProcess

PHASES = ("waited", "read", "tokens in", "first token after", "wrote")


def chat(server: LegatoProcess, lines: str | bytes, *options: str, **keywords: object):
    return run_legato("chat", "--url", server.url, "--temperature", "0", *options, stdin=lines, **keywords)


@pytest.fixture(scope="module")
def guarded(model_path: Path) -> Iterator[LegatoProcess]:
    with LegatoProcess("smollm2", "--ctx", "256", "--parallel", "1", "--api-key", "sesame") as process:
        process.wait_ready()
        yield process


def test_a_line_is_answered_with_its_phases_beneath(server: LegatoProcess) -> None:
    done = chat(server, f"{QUESTION}\n")
    assert done.returncode == 0
    assert done.stdout == f"{ANSWER}\n"
    assert all(word in done.stderr for word in PHASES)
    assert f"Talking to smollm2 at {server.url}." in done.stderr


def test_the_conversation_goes_on_from_line_to_line(server: LegatoProcess) -> None:
    done = chat(server, f"{QUESTION}\nAnd of Germany?\n")
    assert done.stdout.splitlines()[0] == ANSWER
    assert "Berlin" in done.stdout
    assert done.stderr.count("wrote") == 2


def test_new_starts_over(server: LegatoProcess) -> None:
    with_history = chat(server, f"{QUESTION}\n{QUESTION}\n")
    afresh = chat(server, f"{QUESTION}\n/new\n{QUESTION}\n")
    assert afresh.stdout == f"{ANSWER}\n{ANSWER}\n"
    read = [line for line in afresh.stderr.splitlines() if "wrote" in line]
    assert tokens_read(read[0]) == tokens_read(read[1])
    grown = [line for line in with_history.stderr.splitlines() if "wrote" in line]
    assert tokens_read(grown[0]) < tokens_read(grown[1])


def tokens_read(line: str) -> int:
    return int(line.split("read ")[1].split()[0])


def test_quit_ends_it_before_later_lines(server: LegatoProcess) -> None:
    done = chat(server, f"/quit\n{QUESTION}\n")
    assert (done.returncode, done.stdout) == (0, "")


def test_nothing_typed_is_nothing_asked(server: LegatoProcess) -> None:
    for lines in ("", "\n", "   \n\n"):
        done = chat(server, lines)
        assert (done.returncode, done.stdout) == (0, "")


def test_an_unknown_command_is_explained_and_not_sent(server: LegatoProcess) -> None:
    done = chat(server, "/help\n/qiut\n")
    assert done.stdout == ""
    assert done.stderr.count("/quit") >= 2


def test_options_are_sent_along(server: LegatoProcess) -> None:
    assert chat(server, f"{QUESTION}\n", "--max-tokens", "3").stdout == "The capital of\n"
    assert "wrote 1 " in chat(server, f"{QUESTION}\n", "--max-tokens", "1", "--system", "Be brief.").stderr


def test_the_url_may_end_as_openai_clients_write_it(server: LegatoProcess) -> None:
    for end in ("/v1", "/v1/", "/"):
        done = run_legato("chat", "--url", server.url + end, "--temperature", "0", stdin=f"{QUESTION}\n")
        assert done.stdout == f"{ANSWER}\n"


def test_what_the_server_refuses_is_said_and_the_chat_goes_on(server: LegatoProcess) -> None:
    done = chat(server, f"{'word ' * 3000}\n{QUESTION}\n")
    assert done.returncode == 0
    assert "Error: The prompt has" in done.stderr
    assert done.stdout == f"{ANSWER}\n"


def test_other_scripts_come_through(server: LegatoProcess) -> None:
    done = chat(server, "Repeat after me: 日本 🎉 é\n", "--max-tokens", "8")
    assert done.returncode == 0
    assert "wrote" in done.stderr


@pytest.mark.parametrize("locale", ["C.UTF-8", "C"])
def test_bytes_that_are_no_text_are_no_accident(server: LegatoProcess, locale: str) -> None:
    environment = {"LC_ALL": locale, "PYTHONUTF8": "0"}
    done = chat(server, b"What is \xff\xfe?\n" + QUESTION.encode() + b"\n", environment=environment)
    assert done.returncode in (0, 1)
    assert done.returncode == 1 or ANSWER in done.stdout


def test_bytes_that_are_no_text_are_no_accident_in_strict_input(server: LegatoProcess) -> None:
    done = chat(server, b"What is \xff\xfe?\n", environment={"PYTHONIOENCODING": "utf-8:strict"})
    assert done.returncode in (0, 1)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1", "nonsense", "ftp://127.0.0.1", "http://", "http://[::1", "x" * 300]
)
def test_a_server_that_does_not_answer_is_refused(url: str) -> None:
    assert "legato serve" in refused("chat", "--url", url)


def test_another_model_than_the_servers_is_refused(server: LegatoProcess) -> None:
    sentence = refused("chat", "gemma3-270m", "--url", server.url)
    assert "smollm2" in sentence
    assert "gemma3-270m" in sentence


def test_the_servers_model_may_be_named(server: LegatoProcess) -> None:
    done = run_legato("chat", "smollm2", "--url", server.url, "--temperature", "0", stdin=f"{QUESTION}\n")
    assert done.stdout == f"{ANSWER}\n"


def test_a_key_is_sent(guarded: LegatoProcess) -> None:
    assert chat(guarded, f"{QUESTION}\n", "--api-key", "sesame").stdout == f"{ANSWER}\n"


def test_a_key_from_the_environment_is_sent(guarded: LegatoProcess) -> None:
    done = chat(guarded, f"{QUESTION}\n", environment={"LEGATO_CHAT_KEY": "sesame"})
    assert (done.stdout, done.returncode) == (f"{ANSWER}\n", 0), done.stderr


def test_without_the_key_the_server_says_what_is_missing(guarded: LegatoProcess) -> None:
    done = chat(guarded, f"{QUESTION}\n")
    assert done.stdout == ""
    assert "Error: An API key is needed" in done.stderr


@pytest.mark.parametrize("options", [("--temperature", "3"), ("--max-tokens", "0"), ("--temperature", "warm")])
def test_a_wrong_option_is_a_usage_error(options: tuple[str, str]) -> None:
    done = run_legato("chat", *options)
    assert done.returncode == 2
    assert options[0] in done.stderr


def own_server(**settings: str) -> dict[str, str]:
    """Settings under which no server runs yet."""
    return {"LEGATO_PORT": str(free_port()), "LEGATO_CTX": "256", "LEGATO_PARALLEL": "1", **settings}


def has(process: psutil.Process, mark: dict[str, str]) -> bool:
    """Whether a process was started, by whatever way, with a variable of this test."""
    try:
        return mark.items() <= process.environ().items()
    except psutil.Error:
        return False


def test_without_a_server_it_starts_one_and_takes_it_away_again() -> None:
    mark = {"MARK_OF_A_TEST": uuid.uuid4().hex}
    done = run_legato("chat", "--temperature", "0", stdin=f"{QUESTION}\n", environment=own_server() | mark)
    assert (done.stdout, done.returncode) == (f"{ANSWER}\n", 0), done.stderr
    assert "Starting a server for smollm2" in done.stderr
    assert not [process for process in psutil.process_iter() if has(process, mark)]


def test_a_server_of_its_own_has_its_key() -> None:
    """Whoever set a key for the server need not give it again to the chat that starts it."""
    done = run_legato(
        "chat", "--temperature", "0", stdin=f"{QUESTION}\n", environment=own_server(LEGATO_API_KEYS="sesame")
    )
    assert done.stdout == f"{ANSWER}\n", done.stderr


def test_a_model_that_its_own_server_cannot_load_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "diary.gguf"
    path.write_text("Dear diary")
    assert "not a GGUF file" in refused("chat", str(path), environment=own_server())
