"""The scheduler: the queue, admission to KV cells, and the state that a policy plans from."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from legato.errors import LegatoError
from legato.kv.slots import Lease, Lender
from legato.scheduling.policies import Policy, decoding
from legato.scheduling.state import Outcome, Plan, Sequence

PATIENCE = 0.25
"""Share of the time of reading a prefix for which moving it may wait for those who write; then it is read instead."""
RAISED_BY = 1.1
"""A gap target that was raised is news again when what is possible is longer or shorter by this factor."""


class NeverFitsError(LegatoError):
    """The prompt is longer than any sequence's cells: it could wait for ever."""


@dataclass(slots=True)
class Admission:
    """Who was given KV cells at a border, and who gave them up."""

    admitted: list[tuple[Sequence, Lease]] = field(default_factory=list)
    """With the cells that each was lent."""
    preempted: list[Released] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Released:
    """A request that holds cells no more."""

    sequence: Sequence
    slot: int
    """The KV sequence that it held."""
    computed_tokens: int
    """Tokens whose KV state is in there."""
    in_reader: bool = False
    """All of its prompt was read in another context, and is there still."""


class Scheduler:
    """Continuous batching: requests join and leave at the borders of steps (Yu et al., Orca, OSDI 2022).

    Use: `add` and `cancel` at any border, then `admit`, `plan`, run the plan, `commit` its outcome.

    Background requests are admitted to all KV sequences but one, run while nobody else does, and give their cells up
    when others need them. The oldest of them counts as any other once it has been here for `background_wait_s`.

    Args:
        policy: Plans the steps.
        slots: The KV sequences that requests are admitted to.
        background_wait_s: Longest time that the oldest background request waits for others.
    """

    def __init__(self, policy: Policy, slots: Lender, *, background_wait_s: float = 600.0) -> None:
        self.policy = policy
        """May be exchanged at the border of a step."""
        self._slots = slots
        self._background_wait_s = background_wait_s
        self._queue: dict[int, Sequence] = {}
        self._admitted: dict[int, Sequence] = {}

    @property
    def queued(self) -> int:
        """Requests that wait for KV cells."""
        return len(self._queue)

    @property
    def running(self) -> int:
        """Requests that hold KV cells."""
        return len(self._admitted)

    def __contains__(self, sequence_id: int) -> bool:
        """Whether it holds KV cells."""
        return sequence_id in self._admitted

    def __getitem__(self, sequence_id: int) -> Sequence:
        """A sequence that holds KV cells."""
        return self._admitted[sequence_id]

    def add(self, sequence: Sequence) -> None:
        """Queue a request.

        Raises:
            NeverFitsError: Its prompt can never fit.
        """
        if sequence.prompt_tokens >= self._slots.cells_per_sequence:
            raise NeverFitsError(
                f"The prompt has {sequence.prompt_tokens} tokens, and this model's context holds "
                f"{self._slots.cells_per_sequence} with at least one for the answer; send a shorter prompt."
            )
        room = self._slots.cells_per_sequence - sequence.prompt_tokens
        sequence.max_new_tokens = min(sequence.max_new_tokens, room)
        self._queue[sequence.id] = sequence

    def cancel(self, sequence_id: int) -> Released | None:
        """Forget a request in whatever phase it is.

        Returns:
            What it held, if it held cells.
        """
        self._queue.pop(sequence_id, None)
        sequence = self._admitted.pop(sequence_id, None)
        return None if sequence is None else self._release(sequence)

    def admit(self, now_s: float) -> Admission:
        """Give KV sequences to those who wait, while there are any for them.

        Clients with the fewest answers running come first, and of one client who came first. Background requests come
        after all others, leave one sequence free for them, and make room for them, the youngest first.
        """
        result = Admission()
        promoted = self._promoted(now_s)
        while self._queue:
            running = Counter(s.client for s in self._admitted.values())
            is_behind = {s.id: s.background and s is not promoted for s in self._queue.values()}
            sequence = min(self._queue.values(), key=lambda s: (is_behind[s.id], running[s.client], s.arrived_s, s.id))
            if is_behind[sequence.id]:
                is_room = self._slots.free > min(1, self._slots.sequences - 1)
                lease = self._slots.acquire(sequence, now_s) if is_room else None
            else:
                lease = self._slots.acquire(sequence, now_s)
                if lease is None and (victim := self._youngest_background(promoted)) is not None:
                    result.preempted.append(self._preempt(victim))
                    lease = self._slots.acquire(sequence, now_s)
            if lease is None:
                break
            sequence.slot = lease.slot
            self._admitted[sequence.id] = self._queue.pop(sequence.id)
            result.admitted.append((sequence, lease))
        return result

    def plan(self, now_s: float) -> Plan:
        """The next step; empty if there is nothing to do.

        Args:
            now_s: When it begins.
        """
        first = self._first(now_s)
        if moves := self._moves(first, now_s):
            return Plan(decodes=decoding(first), moves=moves)
        plan = self.policy.plan(first, now_s)
        for chunk in plan.chunks:
            if chunk.interruptible:
                self._give_reader_to(chunk.id)
        return plan

    def due_s(self, now_s: float) -> float:
        """When a chunk that is being read interruptibly has to be interrupted.

        Args:
            now_s: Now.
        """
        return self.policy.due_s(self._first(now_s))

    def room_s(self, now_s: float) -> float:
        """What a step that decodes everybody has left for work that can't be cut.

        Args:
            now_s: Now.
        """
        return self.policy.room_s(self._first(now_s))

    def raise_targets(self, plan: Plan, gap_target_s: float) -> list[tuple[int, float]]:
        """Raise the targets that this step can't keep to what is possible, and lower them where that is less again.

        Args:
            plan: What is about to run.
            gap_target_s: Of answers that have none of their own.

        Returns:
            News only: whose target, by id, and what it is raised to in seconds; 0 if it can be kept again.
        """
        raised: list[tuple[int, float]] = []
        for sequence_id in plan.decodes:
            sequence = self._admitted[sequence_id]
            target_s = gap_target_s if sequence.gap_target_s is None else sequence.gap_target_s
            possible_s = plan.shortest_gap_s if plan.shortest_gap_s > target_s else 0.0
            known_s = sequence.raised_gap_target_s
            if possible_s > RAISED_BY * known_s or possible_s * RAISED_BY < known_s:
                sequence.raised_gap_target_s = possible_s
                raised.append((sequence_id, possible_s))
        return raised

    def _first(self, now_s: float) -> tuple[Sequence, ...]:
        """Those who are served: all but background requests, or those if there are no others.

        Whoever reads what one of them waits for is served with them.
        """
        promoted = self._promoted(now_s)
        ready: list[Sequence] = []
        followed: set[int] = set()
        for sequence in self._admitted.values():
            if sequence.recall is None:
                ready.append(sequence)
            elif sequence.recall.follows is not None and (not sequence.background or sequence is promoted):
                followed.add(sequence.recall.follows)
        first = [s for s in ready if not s.background or s is promoted or s.id in followed]
        return tuple(first or ready)

    @property
    def held_back(self) -> list[Sequence]:
        """Those whose remembered beginnings are not where they can be moved from."""
        return [s for s in self._admitted.values() if s.recall is not None and s.recall.move_s is None]

    def _moves(self, first: tuple[Sequence, ...], now_s: float) -> tuple[int, ...]:
        """The sequences whose beginnings can be moved without making an answer's next token late, one at a time.

        A move that takes longer than that waits until nobody writes, but not for longer than makes sense.
        """
        room_s: float | None = None  # asked for only if anything can be moved: plans are made for every token
        for sequence in self._admitted.values():
            recall = sequence.recall
            if recall is None or recall.move_s is None:
                continue
            room_s = self.policy.room_s(first) if room_s is None else room_s
            if recall.move_s <= room_s:
                return (sequence.id,)
            if now_s - recall.since_s > PATIENCE * recall.reading_s:
                sequence.recall = None
        return ()

    def recalled(self, sequence_id: int, tokens: int) -> None:
        """The beginning of a sequence has been moved into its cells.

        Args:
            sequence_id: Whose.
            tokens: How many tokens are there; 0 if that failed and all of them have to be read.
        """
        sequence = self._admitted[sequence_id]
        sequence.recall = None
        sequence.computed_tokens = tokens

    def _give_reader_to(self, sequence_id: int) -> None:
        """Whoever was in there before, background work that has to wait, begins anew later."""
        for sequence in self._admitted.values():
            if sequence.in_reader and sequence.id != sequence_id and sequence.unread_tokens:
                sequence.in_reader = False
                sequence.computed_tokens = 0
        self._admitted[sequence_id].in_reader = True

    def note_read(self, sequence_id: int, took_s: float) -> None:
        """So much time was spent on reading a prompt; nothing happens if it is gone.

        Args:
            sequence_id: Whose.
            took_s: Seconds.
        """
        if sequence := self._admitted.get(sequence_id):
            self.policy.note_read(sequence, took_s)

    def hand_over(self, sequence_id: int) -> None:
        """A sequence's KV state has moved from where it was read into its slot."""
        self._admitted[sequence_id].in_reader = False

    def commit(self, plan: Plan, outcome: Outcome, now_s: float) -> list[Released]:
        """Take in what became of a plan, or of a part of it.

        Args:
            plan: What was run.
            outcome: What became of it.
            now_s: When that was done.

        Returns:
            What finished requests held.
        """
        for chunk in plan.chunks:
            self._admitted[chunk.id].computed_tokens += chunk.length
        for sequence_id in plan.decodes:
            sequence = self._admitted[sequence_id]
            # Of the tokens gained, all but the last are computed already (by the step that confirmed them).
            sequence.computed_tokens += outcome.committed[sequence_id]
        for sequence_id, tokens in outcome.committed.items():
            sequence = self._admitted[sequence_id]
            sequence.new_tokens += tokens
            if sequence.last_token_s is not None and not sequence.background:
                self.policy.note_gap(sequence, now_s - sequence.last_token_s)
            sequence.last_token_s = now_s
        return [self._release(self._admitted.pop(sequence_id)) for sequence_id in outcome.finished]

    def _promoted(self, now_s: float) -> Sequence | None:
        """The oldest background request, if it has waited for too long."""
        background = [s for s in (*self._admitted.values(), *self._queue.values()) if s.background]
        oldest = min(background, key=lambda s: (s.arrived_s, s.id), default=None)
        return oldest if oldest is not None and now_s - oldest.arrived_s >= self._background_wait_s else None

    def _youngest_background(self, promoted: Sequence | None) -> Sequence | None:
        background = [s for s in self._admitted.values() if s.background and s is not promoted]
        return max(background, key=lambda s: (s.arrived_s, s.id), default=None)

    def _preempt(self, sequence: Sequence) -> Released:
        """Back to the queue. What it has written stays; its prompt and that are read again before it goes on."""
        del self._admitted[sequence.id]
        released = self._release(sequence)
        sequence.computed_tokens = 0
        sequence.last_token_s = None
        self._queue[sequence.id] = sequence
        return released

    def _release(self, sequence: Sequence) -> Released:
        assert sequence.slot is not None, "an admitted sequence holds a slot"
        # What was read elsewhere is not in its cells, nor is what was not moved there yet.
        is_there = not sequence.in_reader and sequence.recall is None
        is_read = sequence.in_reader and not sequence.unread_tokens
        released = Released(sequence, sequence.slot, sequence.computed_tokens if is_there else 0, in_reader=is_read)
        self._slots.release(sequence.slot)
        sequence.slot = sequence.recall = None
        sequence.in_reader = False
        return released
