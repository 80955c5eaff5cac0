"""Random runs of the fake engine."""

from __future__ import annotations

from hypothesis import strategies as st

from legato.core.choices import PolicyName
from tests.scheduling.runs import STEP_TOKENS, Run, Wish

wishes = st.builds(
    Wish,
    arrives=st.integers(0, 40),
    prompt_tokens=st.integers(1, 500),
    answer_tokens=st.integers(1, 50),
    max_new_tokens=st.integers(1, 50),
    patience=st.none() | st.integers(0, 40),
)
mixed_wishes = st.builds(
    Wish,
    arrives=st.integers(0, 40),
    prompt_tokens=st.integers(1, 500),
    answer_tokens=st.integers(1, 50),
    max_new_tokens=st.integers(1, 50),
    patience=st.none() | st.integers(0, 40),
    client=st.sampled_from([None, "ana", "ben"]),
    gap_target_s=st.none() | st.floats(0.001, 1.0),
    background=st.booleans(),
)
"""Of several clients, some of them in no hurry."""


def runs(*policies: PolicyName, of: st.SearchStrategy[Wish] = wishes) -> st.SearchStrategy[Run]:
    """Runs that have come to their end, under any of the policies."""
    return st.builds(
        Run,
        policy=st.sampled_from(policies),
        chunk=st.integers(1, STEP_TOKENS),
        slots=st.integers(1, 8),
        wishes=st.lists(of, max_size=10).map(lambda them: sorted(them, key=lambda wish: wish.arrives)),
        gains=st.lists(st.integers(1, 4), min_size=1, max_size=4),
        by_parts=st.booleans(),
        gap_target_s=st.floats(0.001, 0.5),
        background_wait_s=st.floats(0, 5),
        interruptible=st.booleans(),
    ).map(Run.run)
