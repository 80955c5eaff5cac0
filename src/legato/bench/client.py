"""Sends one request after another and measures each; whatever goes wrong is a measurement too."""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import Any

import httpx
import msgspec

from legato.bench.ollama import Ollama
from legato.bench.openai import OpenAi
from legato.bench.reading import Message, Reading, Sampling, WrongAnswerError, sentence_of, user
from legato.bench.results import MeasuredRequest
from legato.bench.target import Target

LAST_BYTES_S = 1.0
"""How long a connection may stay open behind a complete answer; a longer wait tells nothing."""


def http_client() -> httpx.AsyncClient:
    """Connections for any number of people.

    The environment's proxies are left out, as their times are not the server's. No connection is used twice: some
    servers close one after a stream without saying so, and the next request would meet the closing one.
    """
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    return httpx.AsyncClient(timeout=None, limits=limits, trust_env=False)


class Client:
    """Measures requests to one target, over connections that watch no time themselves.

    A request counts as hung after `timeout_s` of silence; comments that keep a connection alive are silence.
    """

    def __init__(self, target: Target, http: httpx.AsyncClient, sampling: Sampling, timeout_s: float = 120.0) -> None:
        self.sampling = sampling
        self.requests: list[MeasuredRequest] = []
        """All that were sent, in that order; they fill up as the answers come."""
        self._target = target
        self._http = http
        self._timeout_s = timeout_s
        self._dialect = OpenAi() if target.api == "openai" else Ollama()
        self._began = perf_counter()

    def start(self) -> None:
        """Begin the run: forget the warm-up, and count times from now on."""
        self.requests = []
        self._began = perf_counter()

    async def ask(
        self, messages: str | list[Message], wanted_tokens: int, *, started: asyncio.Event | None = None, **about: Any
    ) -> Reading:
        """Send a conversation, or a single message of the user, and read its answer to the end.

        Never raises for what a server does. Cancelled, it hangs up, which the measurement says. `started` is set at the
        first text of the answer, or at its end without any; `about` is role, round and depth as in `MeasuredRequest`.
        """
        conversation = [user(messages)] if isinstance(messages, str) else messages
        body = msgspec.json.encode(self._dialect.body(self._target, conversation, wanted_tokens, self.sampling))
        sent = perf_counter()
        measured = MeasuredRequest(wanted_tokens=wanted_tokens, sent_s=sent - self._began, **about)
        self.requests.append(measured)
        reading = Reading(measured, started)
        try:
            await self._exchange(body, reading, sent)
        except asyncio.CancelledError:
            measured.hung_up = not reading.finished
            raise
        except TimeoutError:
            if not reading.finished:
                measured.error = f"No event came for {self._timeout_s:g} s."
        except WrongAnswerError as error:
            measured.error = str(error)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            if not reading.finished:
                measured.error = _lost(error, reading)
        else:
            if not reading.finished:
                measured.error = "The stream ended before the answer did."
        finally:
            if started is not None:
                started.set()
        # An answer of several tokens in a single event was not streamed, whatever the server calls it.
        if len(measured.event_s) == 1 and (measured.answer_tokens or 0) > 1 and not measured.error:
            measured.streamed = False
        return reading

    async def _exchange(self, body: bytes, reading: Reading, sent: float) -> None:
        headers = {"Content-Type": "application/json", **self._target.headers}
        url = self._target.url + self._dialect.path
        async with asyncio.timeout(self._timeout_s) as limit:
            async with self._http.stream("POST", url, content=body, headers=headers) as response:
                if response.status_code != 200:
                    raise WrongAnswerError(_refusal(response.status_code, await response.aread()))
                is_stream = response.headers.get("content-type", "").startswith("text/event-stream")
                if isinstance(self._dialect, OpenAi) and not is_stream:
                    whole = await response.aread()
                    self._dialect.read_whole(whole, reading, perf_counter() - sent)
                else:
                    await self._read_stream(response, reading, sent, limit)

    async def _read_stream(
        self, response: httpx.Response, reading: Reading, sent: float, limit: asyncio.Timeout
    ) -> None:
        """Read line by line; all lines that come together have the same time."""
        rest = b""
        events, loop = reading.measured.event_s, asyncio.get_running_loop()
        async for chunk in response.aiter_bytes():
            at_s = perf_counter() - sent
            *lines, rest = (rest + chunk).split(b"\n")
            known, was_finished = len(events), reading.finished
            for line in lines:
                self._dialect.read_line(line, reading, at_s)
            if reading.finished and not was_finished:
                limit.reschedule(loop.time() + LAST_BYTES_S)
            elif len(events) > known and not was_finished:
                limit.reschedule(loop.time() + self._timeout_s)
        if rest:
            self._dialect.read_line(rest, reading, perf_counter() - sent)


def _refusal(status: int, body: bytes) -> str:
    try:
        answer: Any = msgspec.json.decode(body)
        reason = sentence_of(answer["error"])
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError):
        reason = body[:200].decode("utf-8", "replace").strip()
    return f"The server refused with status {status}" + (f": {reason}" if reason else ".")


def _lost(error: Exception, reading: Reading) -> str:
    reason = str(error) or type(error).__name__
    if reading.measured.event_s:
        return f"The connection was cut off during the answer: {reason}."
    return f"The connection failed: {reason}."
