"""A `legato serve` process under test."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any

import httpx
import openai
import psutil

from tests.support.cores import core_each
from tests.support.ports import free_port

READY_TIMEOUT_S = 60


class LegatoProcess:
    """Started by `start` or as a context; `url` is its address."""

    def __init__(self, *arguments: str, environment: dict[str, str] | None = None) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._command = [sys.executable, "-m", "legato", "serve", *arguments, "--port", str(self.port)]
        usual = {"LEGATO_HISTORY": "off", "LEGATO_CACHE_DISK_MIB": "0", **core_each()}
        self._environment = {**os.environ, **usual, **(environment or {})}
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by stop
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> LegatoProcess:
        self.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.stop()

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log, env=self._environment
        )

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    def stop(self) -> None:
        """End it at once, with everything that it started, however the test left it."""
        if self._process is None:
            return
        if self._process.poll() is None:
            for child in psutil.Process(self._process.pid).children(recursive=True):
                child.kill()
            self._process.kill()
        self._process.wait()
        self._log.close()
        self._process = None

    def terminate(self) -> None:
        """Ask it to stop, as a service manager does: every process of the service is told."""
        for child in self.descendants():
            child.send_signal(signal.SIGTERM)
        self.process.send_signal(signal.SIGTERM)

    def interrupt(self) -> None:
        """Press Ctrl-C, which reaches everything that was started in the terminal."""
        for child in self.descendants():
            child.send_signal(signal.SIGINT)
        self.process.send_signal(signal.SIGINT)

    def wait_ended(self, *, timeout_s: float) -> int:
        """Wait for its end; the exit code."""
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the server did not end in {timeout_s:g} s: {self.output()}") from None

    def output(self) -> str:
        """What it printed so far."""
        # Read at a place of our own: the server writes at the place that its descriptor shares with ours.
        descriptor = self._log.fileno()
        return os.pread(descriptor, os.fstat(descriptor).st_size, 0).decode()

    def descendants(self) -> list[psutil.Process]:
        """Every process that it started, and theirs."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def workers(self) -> list[psutil.Process]:
        """Its engine workers, those that have ended left out."""
        workers = []
        for child in self.descendants():
            with contextlib.suppress(psutil.NoSuchProcess):
                if "legato.worker.main" in " ".join(child.cmdline()):
                    workers.append(child)
        return workers

    def worker(self) -> psutil.Process:
        """Its present engine worker."""
        workers = self.workers()
        assert len(workers) == 1, workers
        return workers[0]

    def health(self) -> tuple[int, dict[str, Any]]:
        answer = httpx.get(f"{self.url}/health", timeout=10, verify=False)
        return answer.status_code, answer.json()

    def wait_for(self, status: str) -> dict[str, Any]:
        """Wait until /health says so."""
        deadline = time.monotonic() + READY_TIMEOUT_S
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise AssertionError(f"the server ended with {self.process.returncode}: {self.output()}")
            try:
                _, body = self.health()
            except httpx.TransportError:
                body = {}
            if body.get("status") == status:
                return body
            if body.get("status") == "failed":
                raise AssertionError(f"the server has failed: {body['reason']}")
            time.sleep(0.02)
        raise AssertionError(f"the server was not {status} in time: {self.output()}")

    def wait_ready(self) -> None:
        self.wait_for("ok")

    def get(self, path: str, **options: Any) -> httpx.Response:
        """GET a path."""
        return httpx.get(self.url + path, timeout=60, verify=False, **options)

    def post(self, path: str, body: Any, **options: Any) -> httpx.Response:
        """Post JSON, for what the official client does not let through, half surrogate pairs included."""
        headers = {"content-type": "application/json", **options.pop("headers", {})}
        options = {"timeout": 60, "verify": False} | options
        return httpx.post(f"{self.url}{path}", content=json.dumps(body), headers=headers, **options)

    def still_answers(self) -> bool:
        """True if it gives a right answer."""
        body = {"prompt": "The capital of France is", "max_tokens": 1, "temperature": 0}
        return self.post("/v1/completions", body).json()["choices"][0]["text"] == " Paris"

    # Certificates are not needed, and reading them takes longer than most answers.

    def openai(self, **options: Any) -> openai.OpenAI:
        """The official client; it tries nothing twice, so that tests see each answer."""
        options = {
            "api_key": "none",
            "max_retries": 0,
            "http_client": openai.DefaultHttpxClient(verify=False),
        } | options
        return openai.OpenAI(base_url=f"{self.url}/v1", **options)

    def async_openai(self, **options: Any) -> openai.AsyncOpenAI:
        """The same for asyncio."""
        client = openai.DefaultAsyncHttpxClient(verify=False)
        options = {"api_key": "none", "max_retries": 0, "http_client": client} | options
        return openai.AsyncOpenAI(base_url=f"{self.url}/v1", **options)
