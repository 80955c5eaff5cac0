"""The `legato` command under test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.cores import core_each

TIMEOUT_S = 60


def run_legato(
    *arguments: str,
    stdin: str | bytes = "",
    environment: dict[str, str] | None = None,
    folder: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; whatever it did, it must not have shown a traceback."""
    result = subprocess.run(
        [sys.executable, "-m", "legato", *arguments],
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        capture_output=True,
        # Wide and without colours, so that tables and usage texts are not wrapped in the middle of words.
        env={
            **os.environ,
            **core_each(),
            "COLUMNS": "200",
            "NO_COLOR": "1",
            "LEGATO_HISTORY": "off",
            "LEGATO_CACHE_DISK_MIB": "0",
            **(environment or {}),
        },
        cwd=folder,
        timeout=TIMEOUT_S,
        check=False,
    )
    done = subprocess.CompletedProcess(
        result.args, result.returncode, result.stdout.decode("utf-8"), result.stderr.decode("utf-8")
    )
    assert "Traceback" not in done.stderr + done.stdout, done.stderr
    return done


def refused(*arguments: str, **options: object) -> str:
    """Run a command that must fail with exit code 1 and one sentence; returns the sentence."""
    done = run_legato(*arguments, **options)  # type: ignore[arg-type]
    assert done.returncode == 1, (done.stdout, done.stderr)
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    assert lines, "it failed without a word"
    assert lines[-1].startswith("Error: "), done.stderr
    sentence = lines[-1].removeprefix("Error: ")
    assert sentence.endswith("."), sentence
    return sentence
