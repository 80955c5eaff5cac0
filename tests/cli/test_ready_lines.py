"""What `legato serve` says when its model is ready."""

from __future__ import annotations

import time

import msgspec
import pytest

from legato.cli.serve import ready_lines
from legato.client.status import Ready
from legato.core.choices import PolicyName
from tests.server.models import COSTS, PROFILE, model_info

TUNED_AT = time.mktime((2026, 11, 30, 12, 0, 0, 0, 0, -1))


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ("adaptive", "2 threads; adaptive, gaps of at most 62.5 ms."),
        ("chunked", "2 threads; chunked, 64 prompt tokens a step."),
        ("whole", "2 threads; whole."),
    ],
)
def test_the_policy_is_told_with_what_bounds_it(policy: PolicyName, words: str) -> None:
    state = Ready(model_info(COSTS, policy=policy), 1.25)
    first, second, last = ready_lines("tiny", "http://here", state, 62.5, None).splitlines()
    assert first == "Ready after 1.2 s: tiny (a model) at http://here/v1"
    assert second == f"4 answers at once, 2048 tokens each; {words}"
    assert "legato chat" in last


def test_tuned_settings_are_told_in_a_line() -> None:
    profile = msgspec.structs.replace(PROFILE, tuned_at=TUNED_AT, gap_target_s=0.1)
    lines = ready_lines("tiny", "http://here", Ready(model_info(COSTS), 1.0), 50, profile).splitlines()
    assert "gaps of at most 50 ms" in lines[1]
    assert lines[2] == "Tuned on 2026-11-30 for gaps of 100 ms."
