from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from legato.bench.target import Target
from tests.bench.fake_server import FakeServer, Script

FakeFactory = Callable[..., FakeServer]


@pytest.fixture
def fake() -> Iterator[FakeFactory]:
    """Starts scripted servers that end with the test: `fake("merge", gap_s=0.01)`."""
    with ExitStack() as stack:

        def start(behaviour: Any = "stream", **script: Any) -> FakeServer:
            return stack.enter_context(FakeServer(Script(behaviour, **script)))

        yield start


def target_of(server: FakeServer) -> Target:
    return Target("fake", server.url, server.script.api, "tiny")
