"""The scheduler: the queue, admission to KV cells, and the state that a policy plans from."""

from __future__ import annotations

from collections import deque

from legato.errors import LegatoError
from legato.kv.slots import KvSlots
from legato.scheduling.policies import Policy
from legato.scheduling.state import Outcome, Plan, Sequence


class NeverFitsError(LegatoError):
    """The prompt is longer than any sequence's cells: it could wait for ever."""


class Scheduler:
    """Continuous batching: requests join and leave at the borders of steps (Yu et al., Orca, OSDI 2022).

    Use: `add` and `cancel` at any border, then `admit`, `plan`, run the plan, `commit` its outcome.

    Args:
        policy: Plans the steps.
        slots: The KV sequences that requests are admitted to, first come first served.
    """

    def __init__(self, policy: Policy, slots: KvSlots) -> None:
        self.policy = policy
        """May be exchanged at the border of a step."""
        self._slots = slots
        self._queue: deque[Sequence] = deque()
        self._admitted: dict[int, Sequence] = {}

    @property
    def queued(self) -> int:
        """Requests that wait for KV cells."""
        return len(self._queue)

    @property
    def running(self) -> int:
        """Requests that hold KV cells."""
        return len(self._admitted)

    def __getitem__(self, sequence_id: int) -> Sequence:
        """A sequence that holds KV cells."""
        return self._admitted[sequence_id]

    def add(self, sequence: Sequence) -> None:
        """Queue a request.

        Raises:
            NeverFitsError: Its prompt can never fit.
        """
        if not self._slots.can_ever_hold(sequence.prompt_tokens):
            raise NeverFitsError(
                f"The prompt has {sequence.prompt_tokens} tokens, and this model's context holds "
                f"{self._slots.cells_per_sequence} with at least one for the answer; send a shorter prompt."
            )
        room = self._slots.cells_per_sequence - sequence.prompt_tokens
        sequence.max_new_tokens = min(sequence.max_new_tokens, room)
        self._queue.append(sequence)

    def cancel(self, sequence_id: int) -> int | None:
        """Forget a request in whatever phase it is.

        Returns:
            The KV sequence that it held and whose cells are to be freed, if it held one.
        """
        sequence = self._admitted.pop(sequence_id, None)
        if sequence is None:
            self._queue = deque(s for s in self._queue if s.id != sequence_id)
            return None
        return self._release(sequence)

    def admit(self) -> list[Sequence]:
        """Give KV sequences to those who have waited longest, while there are any; returns whom."""
        admitted: list[Sequence] = []
        while self._queue and (slot := self._slots.acquire()) is not None:
            sequence = self._queue.popleft()
            sequence.slot = slot
            self._admitted[sequence.id] = sequence
            admitted.append(sequence)
        return admitted

    def plan(self) -> Plan:
        """The next step; empty if there is nothing to do."""
        return self.policy.plan(tuple(self._admitted.values()))

    def commit(self, plan: Plan, outcome: Outcome) -> list[int]:
        """Take in what became of a plan, or of a part of it.

        Returns:
            The KV sequences of finished requests, whose cells are to be freed.
        """
        for chunk in plan.chunks:
            self._admitted[chunk.id].computed_tokens += chunk.length
        for sequence_id in plan.decodes:
            sequence = self._admitted[sequence_id]
            # Of the tokens gained, all but the last are computed already (by the step that confirmed them).
            sequence.computed_tokens += outcome.committed[sequence_id]
        for sequence_id, tokens in outcome.committed.items():
            self._admitted[sequence_id].new_tokens += tokens
        return [self._release(self._admitted.pop(sequence_id)) for sequence_id in outcome.finished]

    def _release(self, sequence: Sequence) -> int:
        slot = sequence.slot
        assert slot is not None, "an admitted sequence holds a slot"
        sequence.slot = None
        self._slots.release(slot)
        return slot
