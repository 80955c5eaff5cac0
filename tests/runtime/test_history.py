"""Requests are remembered beyond the server's life, whatever happens to it or to the file."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.asking import ask
from tests.support.server import LegatoProcess
from tests.support.waiting import wait_until

SMALL = ("smollm2", "--ctx", "256", "--parallel", "1")


def remembering(path: Path) -> LegatoProcess:
    return LegatoProcess(*SMALL, environment={"LEGATO_HISTORY": str(path)})


def one_answer(server: LegatoProcess) -> str:
    return ask(server.openai(), "completions", [42], max_tokens=1).id


def listed(server: LegatoProcess) -> list[str]:
    return [summary["id"] for summary in server.get("/api/requests").json()["requests"]]


def test_a_restart_and_a_kill_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "history.sqlite"
    with remembering(path) as server:
        server.wait_ready()
        first = one_answer(server)
        server.terminate()
        server.wait_ended(timeout_s=20)
    with remembering(path) as server:
        server.wait_ready()
        second = one_answer(server)
        assert listed(server) == [second, first]
        assert server.get(f"/api/requests/{first}").json()["request"]["id"] == first
        server.process.kill()
        server.process.wait()
    assert path.stat().st_mode & 0o077 == 0
    with remembering(path) as server:
        server.wait_ready()
        assert listed(server) == [second, first]
        pages = server.get("/api/requests", params={"limit": 1}).json()
        rest = server.get("/api/requests", params={"limit": 1, "before": pages["next"]}).json()
        assert [summary["id"] for summary in rest["requests"]] == [first]
        assert server.get("/api/requests", params={"before": "nowhere"}).status_code == 400


def test_a_damaged_file_is_set_aside_and_serving_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    path.write_bytes(os.urandom(8192))
    with remembering(path) as server:
        server.wait_ready()
        answer = one_answer(server)
        assert listed(server) == [answer]
        assert str(path) in server.get("/api/status").json()["history_problem"]
        assert str(path) in server.output()
    assert list(tmp_path.glob("history.sqlite.damaged-*"))


@pytest.mark.parametrize("place", ["/dev/full/history.sqlite", "/proc/history.sqlite"])
def test_without_a_place_for_it_serving_goes_on(place: str) -> None:
    with remembering(Path(place)) as server:
        server.wait_ready()
        answer = one_answer(server)
        assert listed(server) == [answer]
        assert server.get("/api/status").json()["history_problem"]
        assert "Traceback" not in server.output()


def test_a_full_disk_turns_it_off_in_one_sentence(small_disk: Path) -> None:
    with remembering(small_disk / "history.sqlite") as server:
        server.wait_ready()
        (small_disk / "filler").write_bytes(b"x" * fill_size(small_disk))
        answers = [one_answer(server) for _ in range(20)]
        wait_until(lambda: server.get("/api/status").json()["history_problem"], "the history is off")
        assert listed(server)[0] == answers[-1]
        assert "Traceback" not in server.output()


def fill_size(folder: Path) -> int:
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize


@pytest.fixture
def small_disk(tmp_path: Path) -> Any:
    """A disk of 1 MiB; where one can't be mounted, /dev/full stands for it in the unit tests."""
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(tmp_path)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("no disk can be mounted here")
    yield tmp_path
    subprocess.run(["umount", str(tmp_path)], check=True)
