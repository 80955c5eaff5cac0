"""Whose prompt is prefilled next.

Between clients: whoever was given least prefill time so far. A client who was away is owed nothing for it.

Among one client's prompts: the oldest, but one with less than half as much left overtakes it, for a short question
should not wait behind a long document. For the time that others overtake it, the oldest is owed a third as much, and
gets it back once that is more than `MOST_OWED_S`: it has at least a quarter of its client's prefill time, less that
and one turn, whatever comes after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Listing
from dataclasses import dataclass, field, replace

from legato.scheduling.sequence import Sequence

OVERTAKING = 0.5
"""A prompt overtakes an older one if it has less than this share of what that one has left."""
OLDEST_PER_OVERTAKING = 1 / 3
"""Time that the oldest prompt is owed for the time that others overtake it."""
MOST_OWED_S = 0.2
"""What may be owed before the oldest has its turn: a question prefilled in three times this is not interrupted."""


@dataclass(frozen=True, slots=True)
class Turns:
    """The account of prefill time, and whose turn it is by it. It never changes: what is done makes another one."""

    given_s: Mapping[str | None, float] = field(default_factory=dict)
    """Prefill time by client, of those who have something to prefill, counted from who had least."""
    owed_s: Mapping[str | None, float] = field(default_factory=dict)
    """Time that others of its client have overtaken the oldest for, and that it is to be given."""
    overtaking: frozenset[int] = frozenset()
    """Prompts that are not their client's oldest."""

    def order(self, prefilling: Listing[Sequence]) -> tuple[list[Sequence], Turns]:
        """The prompts, the one whose turn it is first, and the account of those who are here now.

        Args:
            prefilling: Those that are not prefilled to their end.
        """
        if not prefilling:
            return [], NOBODY
        if len(prefilling) == 1 and self.given_s.keys() == {prefilling[0].client} and not self.overtaking:
            return list(prefilling), self  # the usual case
        by_client: dict[str | None, list[Sequence]] = {}
        for sequence in sorted(prefilling, key=_age):
            by_client.setdefault(sequence.client, []).append(sequence)
        least_s = min((self.given_s[client] for client in by_client if client in self.given_s), default=0.0)
        turns = Turns(
            {client: self.given_s.get(client, least_s) - least_s for client in by_client},
            {client: self.owed_s.get(client, 0.0) for client in by_client},
            frozenset(sequence.id for own in by_client.values() for sequence in own[1:]),
        )
        clients = sorted(by_client, key=turns.given_s.__getitem__)
        return [sequence for client in clients for sequence in turns._order_of_client(by_client[client])], turns

    def _order_of_client(self, own: list[Sequence]) -> list[Sequence]:
        oldest, *others = own
        others.sort(key=_left)
        is_patient = self.owed_s[oldest.client] <= MOST_OWED_S
        if is_patient and others and others[0].prefill_left < OVERTAKING * oldest.prefill_left:
            return [others[0], oldest, *others[1:]]
        return [oldest, *others]

    def after(self, sequence: Sequence, took_s: float) -> Turns:
        """The account once time was given to a prompt.

        Args:
            sequence: Whose.
            took_s: Seconds.
        """
        client = sequence.client
        if client not in self.given_s:
            return self  # it has nothing to prefill any more
        if sequence.id in self.overtaking:
            owed_s = self.owed_s[client] + OLDEST_PER_OVERTAKING * took_s
        else:
            owed_s = max(0.0, self.owed_s[client] - took_s)  # what it gets beyond its due is not held against it
        return replace(
            self,
            given_s={**self.given_s, client: self.given_s[client] + took_s},
            owed_s={**self.owed_s, client: owed_s},
        )


NOBODY = Turns()
"""Nobody has anything to prefill."""


def _age(sequence: Sequence) -> tuple[float, int]:
    return (sequence.arrived_s, sequence.id)


def _left(sequence: Sequence) -> tuple[int, float, int]:
    return (sequence.prefill_left, *_age(sequence))
