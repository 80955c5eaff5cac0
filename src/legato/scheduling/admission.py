"""Who is given KV cells next, and who gives them up: questions about requests, without any state.

Clients with the fewest answers running come first, and of one client who came first. Background requests come after all
others, leave one sequence free for them, and make room for them, the youngest first. The oldest of them counts as any
other once it has waited for long enough.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import TypeVar

from legato.scheduling.sequence import Sequence

S = TypeVar("S", bound=Sequence)


def promoted(requests: Iterable[S], now_s: float, background_wait_s: float) -> S | None:
    """The oldest background request, if it has waited for too long.

    Args:
        requests: All, queued or admitted.
        now_s: Now.
        background_wait_s: Longest time that it waits for others.
    """
    oldest = min((s for s in requests if s.background), key=_age, default=None)
    return oldest if oldest is not None and now_s - oldest.arrived_s >= background_wait_s else None


def is_behind(sequence: Sequence, promoted: Sequence | None) -> bool:
    """Whether it gets only what others leave."""
    return sequence.background and sequence is not promoted


def next_in_queue(queue: Collection[S], admitted: Iterable[S], promoted: S | None) -> S:
    """Who is admitted next; somebody must wait."""
    running = Counter(s.client for s in admitted)
    return min(queue, key=lambda s: (is_behind(s, promoted), running[s.client], *_age(s)))


def youngest_background(admitted: Iterable[S], promoted: S | None) -> S | None:
    """Who makes room for others."""
    return max((s for s in admitted if is_behind(s, promoted)), key=_age, default=None)


def served(admitted: Collection[S], promoted: S | None) -> list[S]:
    """Those whom a step is planned for: all but background requests, or those if there are no others.

    Whoever waits for its remembered beginning is not planned for; whoever prefills what such a one waits for is served
    like it.
    """
    followed = {
        s.restore.follows
        for s in admitted
        if s.restore is not None and s.restore.follows is not None and not is_behind(s, promoted)
    }
    ready = [s for s in admitted if s.restore is None]
    return [s for s in ready if not is_behind(s, promoted) or s.id in followed] or ready


def _age(sequence: Sequence) -> tuple[float, int]:
    return (sequence.arrived_s, sequence.id)
