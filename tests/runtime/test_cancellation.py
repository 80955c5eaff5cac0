"""A client that goes away frees its sequence: the next one need not wait for thousands of tokens."""

from __future__ import annotations

import fcntl
import socket
import struct
import termios
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import openai
import psutil
import pytest

from tests.support.asking import ask, text_of
from tests.support.raw import raw_post
from tests.support.server import LegatoProcess
from tests.support.streams import ENDLESS, endless, first_text, is_refused, opened
from tests.support.waiting import wait_until

TIMES = 20
SOON_S = 15.0
"""Enough for a token on a busy machine; what was cancelled would have gone on for longer than a minute."""
BOOK = "It was the best of times, it was the worst of times. " * 550
"""About 7,000 tokens."""


def short_answer(server: LegatoProcess) -> str:
    """The next request's answer, which has to come soon."""

    def ask_once() -> str | None:
        options: dict[str, Any] = {"max_tokens": 1, "timeout": SOON_S}
        with server.openai() as client:
            try:
                return text_of(ask(client, "completions", "The capital of France is", **options).choices[0])
            except openai.RateLimitError:
                # The one who left has not been noticed yet.
                return None

    return wait_until(ask_once, "there is a place in the queue", timeout_s=SOON_S)


def leave_in_the_middle_of_a_stream(server: LegatoProcess) -> None:
    with endless(server.openai()):
        pass


def leave_while_the_prompt_is_read(server: LegatoProcess) -> None:
    with opened(server.openai(), BOOK):
        pass


def leave_a_stream_of_several_answers(server: LegatoProcess) -> None:
    """One of them is written, the other waits."""
    with endless(server.openai(), n=2):
        pass


@pytest.mark.parametrize(
    "leave",
    [leave_in_the_middle_of_a_stream, leave_while_the_prompt_is_read, leave_a_stream_of_several_answers],
    ids=lambda leave: leave.__name__,
)
def test_whoever_leaves_a_stream_frees_its_sequence(
    narrow: LegatoProcess, leave: Callable[[LegatoProcess], None]
) -> None:
    for _ in range(TIMES):
        leave(narrow)
        assert short_answer(narrow) == " Paris"
    assert_nothing_leaked(narrow)


@pytest.mark.parametrize("prompt", ["Count: one, two,", BOOK], ids=["in its answer", "in its prompt"])
@pytest.mark.parametrize("n", [1, 2])
def test_whoever_leaves_a_plain_request_frees_its_sequence(narrow: LegatoProcess, prompt: str, n: int) -> None:
    body = {"prompt": prompt, "max_tokens": 1_000_000, "ignore_eos": True, "n": n}
    for _ in range(TIMES // 4):
        with wait_until(lambda: taken(narrow, body), "the plain request holds its places"):
            pass
        assert short_answer(narrow) == " Paris"
    assert_nothing_leaked(narrow)


def taken(server: LegatoProcess, body: dict[str, Any]) -> socket.socket | None:
    """The connection of a plain request that the server has taken; None if the questions crowded it out."""
    connection = raw_post(server, "/v1/completions", body)
    # One sequence, and one place to wait in: what the request leaves of them is all that others get.
    wait_until(lambda: bytes_waiting(connection) or is_full(server, after=2 - body["n"]), "it is taken or refused")
    if bytes_waiting(connection):
        connection.close()
        return None
    return connection


def is_full(server: LegatoProcess, *, after: int) -> bool:
    """True if exactly so many further requests are taken, and the next one is refused."""
    with ExitStack() as stack:
        try:
            for _ in range(after):
                stack.enter_context(opened(server.openai(), "Hi"))
        except openai.RateLimitError:
            return False
        return is_refused(server)


def test_whoever_leaves_the_queue_frees_its_place(narrow: LegatoProcess) -> None:
    with endless(narrow.openai()) as running:
        for _ in range(TIMES):
            # The queue has one place: the next one gets in when the last one's going has been noticed.
            wait_until(lambda: not is_refused(narrow), "there is a place in the queue", timeout_s=SOON_S)
        assert first_text(running)
    assert short_answer(narrow) == " Paris"
    assert_nothing_leaked(narrow)


def test_whoever_reads_nothing_and_leaves_frees_its_sequence(narrow: LegatoProcess) -> None:
    """The server cannot send on: the going is noticed all the same."""
    body = {
        "messages": [{"role": "user", "content": "Count to a million."}],
        "stream": True, "ignore_eos": True, "logprobs": True, "top_logprobs": 20,
    }  # fmt: skip
    for _ in range(2):
        with raw_post(narrow, "/v1/chat/completions", body, receive_buffer=4096) as connection:
            wait_until(lambda: is_stuck(connection), "nothing more can be received")
            # The buffers on the way fill up too, with another hundred tokens.
            wait_until(works_on(narrow.worker(), cpu_seconds=3), "nothing more can be sent")
        assert short_answer(narrow) == " Paris"
    assert_nothing_leaked(narrow)


def is_stuck(connection: socket.socket) -> bool:
    """True if bytes have come and no more are coming."""
    before = bytes_waiting(connection)
    time.sleep(0.3)
    return 0 < bytes_waiting(connection) == before


def works_on(process: psutil.Process, *, cpu_seconds: float) -> Callable[[], bool]:
    """Whether the process has worked for so long since now."""

    def used_s() -> float:
        times = process.cpu_times()
        return times.user + times.system

    end_s = used_s() + cpu_seconds
    return lambda: used_s() > end_s


def bytes_waiting(connection: socket.socket) -> int:
    return struct.unpack("i", fcntl.ioctl(connection, termios.FIONREAD, b"\0" * 4))[0]


def test_a_client_that_times_out_frees_its_sequence(narrow: LegatoProcess) -> None:
    with pytest.raises(openai.APITimeoutError):
        ask(narrow.openai(), "completions", "Count:", timeout=0.5, **ENDLESS)
    assert short_answer(narrow) == " Paris"


def test_one_that_leaves_does_not_disturb_its_neighbours(server: LegatoProcess) -> None:
    client = server.openai()
    options: dict[str, Any] = {"max_tokens": 60, "extra_body": {"ignore_eos": True}}
    expected = text_of(ask(client, "completions", "one, two, three,", **options).choices[0])
    found: list[str] = []

    def neighbour() -> None:
        found.append(text_of(ask(client, "completions", "one, two, three,", **options).choices[0]))

    thread = threading.Thread(target=neighbour)
    with endless(client, "Once upon a time"):
        thread.start()
        for _ in range(5):
            with opened(client, "Tell me a story."):
                pass
    thread.join()
    assert found == [expected]


def test_all_connections_of_those_who_left_are_closed(narrow: LegatoProcess) -> None:
    leave_in_the_middle_of_a_stream(narrow)
    process = psutil.Process(narrow.process.pid)
    wait_until(lambda: not established(process, narrow.port), "no connections are left")


def established(process: psutil.Process, port: int) -> list[Any]:
    return [c for c in process.net_connections("tcp") if c.status == psutil.CONN_ESTABLISHED and c.laddr.port == port]


def assert_nothing_leaked(server: LegatoProcess) -> None:
    """One is answered, one may wait, and the third is one too many: exactly as at first."""
    with endless(server.openai()):
        wait_until(lambda: is_full(server, after=1), "one may wait, and no more", timeout_s=SOON_S)
    assert short_answer(server) == " Paris"
