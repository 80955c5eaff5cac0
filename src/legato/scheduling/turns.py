"""Whose prompt is read next.

Between clients: whoever was given least reading time so far. A client who was away is owed nothing for it.

Among one client's prompts: the oldest, but one with less than half as much left to read overtakes it, for a short
question should not wait behind a long document. For the time that others overtake it, the oldest is owed a third as
much, and gets it back once that is more than `MOST_OWED_S`: it has at least a quarter of its client's reading time,
less that and one turn, whatever comes after it.
"""

from __future__ import annotations

from collections.abc import Sequence as Listing

from legato.scheduling.state import Sequence

OVERTAKING = 0.5
"""A prompt overtakes an older one if it has less than this share of what that one has left."""
OLDEST_PER_OVERTAKING = 1 / 3
"""Time that the oldest prompt is owed for the time that others overtake it."""
MOST_OWED_S = 0.2
"""What may be owed before the oldest has its turn: a question read in three times this is not interrupted."""


class ReadingTurns:
    """Orders the prompts that are being read, and keeps account of the time that each client was given."""

    def __init__(self) -> None:
        self._given_s: dict[str | None, float] = {}
        """Reading time by client, of those who have something to read."""
        self._owed_s: dict[str | None, float] = {}
        """Time that others of its client have overtaken the oldest for, and that it is to be given."""
        self._overtaking: set[int] = set()
        """Prompts that are not their client's oldest."""

    def order(self, reading: Listing[Sequence]) -> list[Sequence]:
        """The prompts, the one whose turn it is first.

        Args:
            reading: Those that are being read.
        """
        if len(reading) == 1 and self._given_s.keys() == {reading[0].client}:
            self._overtaking = set()
            return list(reading)  # the usual case
        by_client: dict[str | None, list[Sequence]] = {}
        for sequence in sorted(reading, key=_age):
            by_client.setdefault(sequence.client, []).append(sequence)
        known = [self._given_s[client] for client in by_client if client in self._given_s]
        least_s = min(known, default=0.0)
        self._given_s = {client: self._given_s.get(client, least_s) - least_s for client in by_client}
        self._owed_s = {client: self._owed_s.get(client, 0.0) for client in by_client}
        self._overtaking = {sequence.id for own in by_client.values() for sequence in own[1:]}
        clients = sorted(by_client, key=self._given_s.__getitem__)
        return [sequence for client in clients for sequence in self._order_of_client(by_client[client])]

    def _order_of_client(self, own: list[Sequence]) -> list[Sequence]:
        oldest, *others = own
        others.sort(key=_left)
        is_patient = self._owed_s[oldest.client] <= MOST_OWED_S
        if is_patient and others and others[0].unread_tokens < OVERTAKING * oldest.unread_tokens:
            return [others[0], oldest, *others[1:]]
        return [oldest, *others]

    def account(self, sequence: Sequence, took_s: float) -> None:
        """Time was given to a prompt.

        Args:
            sequence: Whose.
            took_s: Seconds.
        """
        client = sequence.client
        if client not in self._given_s:
            return  # it has nothing to read any more
        self._given_s[client] += took_s
        if sequence.id in self._overtaking:
            self._owed_s[client] += OLDEST_PER_OVERTAKING * took_s
        else:
            # What it gets beyond its due is not held against it.
            self._owed_s[client] = max(0.0, self._owed_s[client] - took_s)


def _age(sequence: Sequence) -> tuple[float, int]:
    return (sequence.arrived_s, sequence.id)


def _left(sequence: Sequence) -> tuple[int, float, int]:
    return (sequence.unread_tokens, *_age(sequence))
