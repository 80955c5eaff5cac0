"""A loopback server that answers as it is told: well, oddly, or not at all."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Literal

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

Behaviour = Literal[
    "stream", "merge", "stop early", "fail", "error event", "refuse", "hang", "hang midway", "plain", "garbage",
    "no done", "not found",
]  # fmt: skip

TEMPLATE_TOKENS = 10
TOKENS_PER_WORD = 2


@dataclass
class Script:
    """What the server does. `wait_s` passes before the first token, `gap_s` between tokens."""

    behaviour: Behaviour = "stream"
    wait_s: float = 0.0
    gap_s: float = 0.0
    models: list[str] = field(default_factory=lambda: ["tiny"])
    api: Literal["openai", "ollama"] = "openai"
    key: str | None = None
    counts: bool = True
    """Whether usage is sent."""
    knows_ignore_eos: bool = True
    timings: dict[str, Any] | None = None
    healthy_requests: int = 0
    """So many chats are answered well before the behaviour begins: 2 let a warm-up pass."""


class FakeServer:
    """Runs in a thread; keeps the bodies of all chats."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.bodies: list[dict[str, Any]] = []
        self.gone = 0
        """Clients that hung up during an answer."""
        routes = [
            Route("/v1/models", self._models),
            Route("/api/tags", self._tags),
            Route("/v1/chat/completions", self._chat, methods=["POST"]),
            Route("/api/chat", self._ollama_chat, methods=["POST"]),
        ]
        config = uvicorn.Config(
            Starlette(routes=routes), port=0, log_level="critical", lifespan="off", timeout_graceful_shutdown=0
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)

    def __enter__(self) -> FakeServer:
        self._thread.start()
        while not self._server.started:
            threading.Event().wait(0.005)
        self.url = f"http://127.0.0.1:{self._server.servers[0].sockets[0].getsockname()[1]}"
        return self

    def __exit__(self, *_: object) -> None:
        """Told to end, which it does by itself: waiting for each server would be most of the tests' time."""
        self._server.should_exit = True

    def stop(self) -> None:
        """End now."""
        self._server.should_exit = True
        self._thread.join(10)

    def prompts(self) -> list[str]:
        """The last message of every chat."""
        return [body["messages"][-1]["content"] for body in self.bodies]

    async def _models(self, request: Request) -> Response:
        if self.script.api != "openai":
            return JSONResponse({"error": "not found"}, 404)
        if self.script.key and request.headers.get("authorization") != f"Bearer {self.script.key}":
            return JSONResponse({"error": {"message": "No."}}, 401)
        return JSONResponse({"data": [{"id": name} for name in self.script.models]})

    async def _tags(self, request: Request) -> Response:
        if self.script.api != "ollama":
            return JSONResponse({"error": "not found"}, 404)
        return JSONResponse({"models": [{"name": name} for name in self.script.models]})

    async def _chat(self, request: Request) -> Response:
        body = await request.json()
        if "ignore_eos" in body and not self.script.knows_ignore_eos:
            return JSONResponse({"error": {"message": "Unknown parameter ignore_eos."}}, 400)
        self.bodies.append(body)
        behaviour = self._behaviour()
        if behaviour == "refuse":
            return JSONResponse({"error": {"message": "The queue is full."}}, 429)
        if behaviour == "not found":
            return Response("nothing here", 404)
        if behaviour == "plain":
            await asyncio.sleep(self.script.wait_s)
            tokens = _tokens(body["max_tokens"])
            return JSONResponse(
                {"choices": [{"message": {"content": "".join(tokens)}}], **self._usage(body, len(tokens))}
            )
        return StreamingResponse(self._events(body, behaviour), media_type="text/event-stream")

    async def _events(self, body: dict[str, Any], behaviour: Behaviour) -> AsyncIterator[str]:
        finished = False
        try:
            async for text in self._pieces(body["max_tokens"], behaviour):
                yield text if behaviour == "garbage" else _sse({"choices": [{"delta": {"content": text}}]})
            if behaviour == "error event":
                yield _sse({"error": {"message": "The engine failed."}})
                return
            sent = self._sent(body["max_tokens"], behaviour)
            yield _sse({"choices": [{"delta": {}, "finish_reason": "length"}]})
            yield _sse({"choices": [], **self._usage(body, sent)})
            if behaviour != "no done":
                yield "data: [DONE]\n\n"
            finished = True
        finally:
            self.gone += not finished

    async def _ollama_chat(self, request: Request) -> Response:
        body = await request.json()
        self.bodies.append(body)
        behaviour = self._behaviour()
        if behaviour == "refuse":
            return JSONResponse({"error": "model not loaded"}, 500)
        return StreamingResponse(self._lines(body, behaviour), media_type="application/x-ndjson")

    async def _lines(self, body: dict[str, Any], behaviour: Behaviour) -> AsyncIterator[str]:
        wanted = body["options"]["num_predict"]
        async for text in self._pieces(wanted, behaviour):
            yield json.dumps({"message": {"role": "assistant", "content": text}, "done": False}) + "\n"
        if behaviour == "error event":
            yield json.dumps({"error": "The runner stopped."}) + "\n"
            return
        counts = {"prompt_eval_count": _prompt_tokens(body), "eval_count": self._sent(wanted, behaviour)}
        end = {"message": {"role": "assistant", "content": ""}, "done": True, "eval_duration": 5, **counts}
        yield json.dumps(end) + "\n"

    async def _pieces(self, wanted: int, behaviour: Behaviour) -> AsyncIterator[str]:
        await asyncio.sleep(self.script.wait_s)
        tokens = _tokens(self._sent(wanted, behaviour))
        if behaviour == "merge":
            tokens = ["".join(tokens[i : i + 4]) for i in range(0, len(tokens), 4)]
        for position, token in enumerate(tokens):
            if behaviour == "garbage":
                yield "data: {broken\n\n"
                return
            if behaviour == "hang" or (behaviour == "hang midway" and position == 2):
                for _ in range(200):
                    yield ""
                    await asyncio.sleep(0.05)
            if behaviour == "fail" and position == 2:
                raise ConnectionError("scripted")
            if behaviour == "error event" and position == 2:
                return
            if position:
                await asyncio.sleep(self.script.gap_s)
            yield token

    def _behaviour(self) -> Behaviour:
        return "stream" if len(self.bodies) <= self.script.healthy_requests else self.script.behaviour

    def _sent(self, wanted: int, behaviour: Behaviour) -> int:
        return max(1, wanted // 2) if behaviour == "stop early" else wanted

    def _usage(self, body: dict[str, Any], sent: int) -> dict[str, Any]:
        timings = {"timings": self.script.timings} if self.script.timings else {}
        if not self.script.counts:
            return timings
        details = {"prompt_tokens_details": {"cached_tokens": 3}}
        return {"usage": {"prompt_tokens": _prompt_tokens(body), "completion_tokens": sent, **details}, **timings}


def _tokens(count: int) -> list[str]:
    return [f"w{i} " for i in range(count)]


def _prompt_tokens(body: dict[str, Any]) -> int:
    words = sum(len(message["content"].split()) for message in body["messages"])
    return TEMPLATE_TOKENS + TOKENS_PER_WORD * words


def _sse(event: dict[str, Any]) -> str:
    return f"data: {json.dumps(event)}\n\n"
