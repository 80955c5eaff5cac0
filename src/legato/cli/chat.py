"""`legato chat`: a conversation in the terminal, with the phases of each answer under it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import httpx
import typer

from legato.cli.api_client import refusal
from legato.cli.background_server import running_or_started
from legato.cli.console import err, out, print_error, say
from legato.cli.plain_text import replace_what_is_no_text
from legato.errors import LegatoError

HELP = "Type a message. /new starts over, /quit or Ctrl-D ends, Ctrl-C stops an answer."

Message = dict[str, str]


def command(
    model: Annotated[
        str | None, typer.Argument(help="Model to talk to; what the running server serves, if left out.")
    ] = None,
    url: Annotated[str | None, typer.Option(help="Server to talk to, such as http://127.0.0.1:8383.")] = None,
    api_key: Annotated[str | None, typer.Option(envvar="LEGATO_CHAT_KEY", help="API key of that server.")] = None,
    system: Annotated[str | None, typer.Option(help="System prompt.")] = None,
    temperature: Annotated[float | None, typer.Option(min=0, max=2, help="0 is always the likeliest answer.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Longest answer, in tokens.")] = None,
) -> None:
    """Chat in the terminal, with a running server or one started for the occasion.

    Under each answer stands where its time went: waiting, reading the prompt, writing.
    """
    options = {"temperature": temperature, "max_tokens": max_tokens}
    given = {name: value for name, value in options.items() if value is not None}
    with (
        running_or_started(url, model, api_key) as server,
        httpx.Client(base_url=server.base_url, headers=server.headers, timeout=None) as client,
    ):
        _converse(client, system and _readable(system), given)


def _converse(client: httpx.Client, system: str | None, options: dict[str, Any]) -> None:
    err.print(HELP, style="dim", markup=False)
    start: list[Message] = [{"role": "system", "content": system}] if system else []
    messages = list(start)
    for text in _typed():
        if text == "/quit":
            return
        if text == "/new":
            messages = list(start)
            continue
        if text.startswith("/"):
            say(HELP)
            continue
        messages.append({"role": "user", "content": text})
        try:
            answer = _answer(client, messages, options)
        except LegatoError as error:
            print_error(str(error))
            messages.pop()
            continue
        messages.append({"role": "assistant", "content": answer})


def _typed() -> Iterator[str]:
    """What the person types, line by line, until Ctrl-D or Ctrl-C."""
    replace_what_is_no_text()
    interactive = sys.stdin.isatty()
    if interactive:
        import readline  # noqa: F401 - line editing and history come with the import
    while True:
        try:
            text = input("\n> " if interactive else "").strip()
        except (EOFError, KeyboardInterrupt):
            return
        if text:
            yield text


def _readable(argument: str) -> str:
    """An argument with U+FFFD for its bytes that are no text."""
    return argument.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _answer(client: httpx.Client, messages: list[Message], options: dict[str, Any]) -> str:
    """Stream one answer to the terminal; Ctrl-C stops it and keeps what came.

    Raises:
        LegatoError: The server refused, failed, or went away.
    """
    parts: list[str] = []
    body = {"messages": messages, "stream": True, **options}
    try:
        with client.stream("POST", "/v1/chat/completions", json=body) as response:
            if response.status_code != 200:
                response.read()
                raise LegatoError(refusal(response, response.url.host))
            for event in _events(response):
                if "error" in event:
                    raise LegatoError(event["error"]["message"])
                for choice in event["choices"]:
                    text = choice["delta"].get("content") or ""
                    parts.append(text)
                    print(text, end="", flush=True)  # noqa: T201 - as it comes, without rich's wrapping
                if timings := event.get("timings"):
                    out.print()
                    err.print(phases_line(timings), style="dim", markup=False, soft_wrap=True)
    except KeyboardInterrupt:
        out.print("\n(stopped)", style="dim")
    except httpx.HTTPError as error:
        raise LegatoError(f"The server at {client.base_url} can't be reached: {error}.") from error
    return "".join(parts)


def _events(response: httpx.Response) -> Iterator[Any]:
    for line in response.iter_lines():
        if line.startswith("data: ") and line != "data: [DONE]":
            yield json.loads(line.removeprefix("data: "))


def phases_line(timings: dict[str, Any]) -> str:
    """Where an answer's time went, in one line."""
    parts = [
        f"waited {_duration(timings['load_ms'] + timings['queue_ms'])}",
        f"read {timings['prefill_tokens']} tokens in {_duration(timings['prefill_ms'])}"
        + _rate(timings["prefill_tokens_per_second"]),
        f"wrote {timings['decode_tokens']} in {_duration(timings['decode_ms'])}"
        + _rate(timings["decode_tokens_per_second"]),
    ]
    if timings["ttft_ms"] is not None:
        parts.insert(2, f"first token after {_duration(timings['ttft_ms'])}")
    if timings["itl_max_ms"] is not None:
        parts.append(f"longest gap {_duration(timings['itl_max_ms'])}")
    return " · ".join(parts)


def _duration(ms: float) -> str:
    return f"{ms / 1000:.1f} s" if ms >= 1000 else f"{ms:.0f} ms"


def _rate(tokens_per_second: float | None) -> str:
    return "" if tokens_per_second is None else f" ({tokens_per_second:.0f}/s)"
