"""The scheduler: who waits, who holds KV cells, and what becomes of them by what is planned and done."""

from __future__ import annotations

from collections.abc import Sequence as Listing
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, TypeVar

from legato.errors import LegatoError
from legato.kv.sources import Lease, Restore
from legato.scheduling import admission
from legato.scheduling.plan import Outcome, Plan
from legato.scheduling.policies import Policy, decoding
from legato.scheduling.sequence import Sequence

S = TypeVar("S", bound=Sequence)
S_contra = TypeVar("S_contra", bound=Sequence, contravariant=True)

PATIENCE = 0.25
"""Share of the time of prefilling a prefix for which moving it may wait for those who decode; then it is prefilled."""
RAISED_BY = 1.1
"""A gap target that was raised is news again when what is possible is longer or shorter by this factor."""


class NeverFitsError(LegatoError):
    """The prompt is longer than any sequence's cells: it could wait for ever."""


class Lender(Protocol[S_contra]):
    """Whoever owns the KV sequences that requests are admitted to."""

    @property
    def sequences(self) -> int:
        """How many there are."""
        ...

    @property
    def cells_per_sequence(self) -> int:
        """KV cells of each, in tokens."""
        ...

    @property
    def free(self) -> int:
        """Sequences that nobody holds."""
        ...

    def acquire(self, holder: S_contra, now_s: float) -> Lease | None:
        """Lend a sequence, or None if all are lent."""
        ...

    def release(self, slot: int) -> None:
        """Take a sequence back."""
        ...


@dataclass(frozen=True, slots=True)
class Released(Generic[S]):
    """A request that holds cells no more."""

    request: S
    slot: int
    """The KV sequence that it held."""
    computed_tokens: int
    """Tokens whose KV state is in there."""
    in_prefill_context: bool = False
    """All of its prompt was prefilled in another context, and is there still."""


@dataclass(slots=True)
class Admission(Generic[S]):
    """Who was given KV cells between two steps, and who gave them up."""

    admitted: list[tuple[S, Lease]] = field(default_factory=list)
    """With the cells that each was lent."""
    preempted: list[Released[S]] = field(default_factory=list)


class Scheduler(Generic[S]):
    """Continuous batching: requests join and leave between steps (Yu et al., Orca, OSDI 2022).

    Use: `add` and `cancel` between any two steps, then `admit`, `plan`, `apply` the plan, run it, `commit` its outcome.
    `plan` and the other questions change nothing.

    Args:
        policy: Plans the steps.
        lender: Owns the KV sequences that requests are admitted to.
        gap_target_s: Of answers that have none of their own.
        background_wait_s: Longest time that the oldest background request waits for others.
    """

    def __init__(
        self, policy: Policy, lender: Lender[S], *, gap_target_s: float = 0.1, background_wait_s: float = 600.0
    ) -> None:
        self.policy = policy
        """May be exchanged between steps."""
        self.gap_target_s = gap_target_s
        """Of answers that have none of their own; may be changed between steps."""
        self._lender = lender
        self._background_wait_s = background_wait_s
        self._queue: dict[int, S] = {}
        self._admitted: dict[int, S] = {}

    @property
    def queued(self) -> int:
        """Requests that wait for KV cells."""
        return len(self._queue)

    @property
    def admitted(self) -> tuple[S, ...]:
        """Requests that hold KV cells, in the order in which they were admitted."""
        return tuple(self._admitted.values())

    @property
    def running(self) -> int:
        """Requests that hold KV cells."""
        return len(self._admitted)

    def __contains__(self, request_id: int) -> bool:
        """Whether it holds KV cells."""
        return request_id in self._admitted

    def __getitem__(self, request_id: int) -> S:
        """A request that holds KV cells."""
        return self._admitted[request_id]

    def find(self, request_id: int) -> S | None:
        """A request, whether it waits for KV cells or holds them; None if it is gone."""
        return self._admitted.get(request_id) or self._queue.get(request_id)

    @property
    def held_back(self) -> list[S]:
        """Those whose remembered beginnings are not where they can be moved from."""
        return [s for s in self._admitted.values() if s.restore is not None and s.restore.move_s is None]

    # Coming and going

    def add(self, request: S) -> None:
        """Queue a request.

        Raises:
            NeverFitsError: Its prompt can never fit.
        """
        cells = self._lender.cells_per_sequence
        if request.prompt_tokens >= cells:
            raise NeverFitsError(
                f"The prompt has {request.prompt_tokens} tokens, and this model's context holds {cells} with at least "
                "one for the answer; send a shorter prompt."
            )
        request.max_new_tokens = min(request.max_new_tokens, cells - request.prompt_tokens)
        self._queue[request.id] = request

    def cancel(self, request_id: int) -> Released[S] | None:
        """Forget a request in whatever phase it is.

        Returns:
            What it held, if it held cells.
        """
        self._queue.pop(request_id, None)
        request = self._admitted.pop(request_id, None)
        return None if request is None else self._release(request)

    def admit(self, now_s: float) -> Admission[S]:
        """Give KV sequences to those who wait, while there are any for them; see `legato.scheduling.admission`."""
        result: Admission[S] = Admission()
        while self._queue:
            promoted, admitted = self._promoted(now_s), self._admitted.values()
            request = admission.next_in_queue(self._queue.values(), admitted, promoted)
            if admission.is_behind(request, promoted):
                is_room = self._lender.free > min(1, self._lender.sequences - 1)
                lease = self._lender.acquire(request, now_s) if is_room else None
            else:
                lease = self._lender.acquire(request, now_s)
                if lease is None and (victim := admission.youngest_background(admitted, promoted)) is not None:
                    result.preempted.append(self._preempt(victim))
                    lease = self._lender.acquire(request, now_s)
            if lease is None:
                break
            request.slot = lease.slot
            self._admitted[request.id] = self._queue.pop(request.id)
            result.admitted.append((request, lease))
        return result

    def _preempt(self, request: S) -> Released[S]:
        """Back to the queue. What it has written stays; its prompt and that are prefilled again before it goes on."""
        del self._admitted[request.id]
        released = self._release(request)
        request.computed_tokens = 0
        request.last_token_s = None
        self._queue[request.id] = request
        return released

    def _release(self, request: S) -> Released[S]:
        assert request.slot is not None, "an admitted request holds a slot"
        # What was prefilled elsewhere is not in its cells, nor is what was not moved there yet.
        is_there = not request.in_prefill_context and request.restore is None
        is_elsewhere = request.in_prefill_context and not request.prefill_left
        released = Released(request, request.slot, request.computed_tokens if is_there else 0, is_elsewhere)
        self._lender.release(request.slot)
        request.slot = request.restore = None
        request.in_prefill_context = False
        return released

    # Planning

    def plan(self, now_s: float) -> Plan:
        """The next step; empty if there is nothing to do.

        Args:
            now_s: When it begins.
        """
        served = self._served(now_s)
        movable = [s for s in self._admitted.values() if s.restore is not None and s.restore.move_s is not None]
        if not movable:
            return self.policy.plan(served, now_s)
        restores, given_up = self._restores(movable, served, now_s)
        plan = Plan(decodes=decoding(served), restores=restores) if restores else self.policy.plan(served, now_s)
        return replace(plan, given_up=given_up)

    def due_s(self, now_s: float) -> float:
        """When a chunk that is being prefilled interruptibly has to be interrupted.

        Args:
            now_s: Now.
        """
        return self.policy.due_s(self._served(now_s))

    def room_s(self, now_s: float) -> float:
        """What a step that decodes everybody has left for work that can't be cut.

        Args:
            now_s: Now.
        """
        return self.policy.room_s(self._served(now_s))

    def _promoted(self, now_s: float) -> S | None:
        everybody = (*self._admitted.values(), *self._queue.values())
        return admission.promoted(everybody, now_s, self._background_wait_s)

    def _served(self, now_s: float) -> Listing[S]:
        admitted = list(self._admitted.values())
        if any(s.background or s.restore is not None for s in admitted):
            return admission.served(admitted, self._promoted(now_s))
        return admitted  # the usual case

    def _restores(
        self, movable: Listing[S], served: Listing[S], now_s: float
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Whose beginning can be moved without making an answer's next token late, one at a time; who gives that up.

        A move that takes longer than that waits until nobody decodes, but not for longer than makes sense.
        """
        room_s = self.policy.room_s(served)
        given_up: list[int] = []
        for request in movable:
            restore = request.restore
            assert restore is not None, "it was asked for"
            assert restore.move_s is not None, "likewise"
            if restore.move_s <= room_s:
                return (request.id,), tuple(given_up)
            if now_s - restore.since_s > PATIENCE * restore.prefill_s:
                given_up.append(request.id)
        return (), tuple(given_up)

    # What was decided, and what was done

    def apply(self, plan: Plan) -> list[tuple[int, float]]:
        """A plan, or a part of it, is going to be run.

        Returns:
            News of gap targets, by request: what is possible instead, s, where this step can't keep them; 0 where they
            can be kept again.
        """
        for request_id in plan.given_up:
            self._admitted[request_id].restore = None
        if plan.interruptible is not None:
            self._give_prefill_context_to(plan.interruptible.id)
        self.policy.apply(plan)
        return self._raise_targets(plan)

    def _give_prefill_context_to(self, request_id: int) -> None:
        """Whoever was in there before, background work that has to wait, begins anew later."""
        for request in self._admitted.values():
            if request.in_prefill_context and request.id != request_id and request.prefill_left:
                request.in_prefill_context = False
                request.computed_tokens = 0
        self._admitted[request_id].in_prefill_context = True

    def _raise_targets(self, plan: Plan) -> list[tuple[int, float]]:
        raised: list[tuple[int, float]] = []
        for request_id in plan.decodes:
            request = self._admitted[request_id]
            target_s = self.gap_target_s if request.gap_target_s is None else request.gap_target_s
            possible_s = plan.shortest_gap_s if plan.shortest_gap_s > target_s else 0.0
            known_s = request.raised_gap_target_s
            if possible_s > RAISED_BY * known_s or possible_s * RAISED_BY < known_s:
                request.raised_gap_target_s = possible_s
                raised.append((request_id, possible_s))
        return raised

    def await_restore(self, request_id: int, restore: Restore | None) -> None:
        """A request's remembered beginning is to be moved into its cells, or no longer is.

        Args:
            request_id: Whose.
            restore: What is to be moved; None if it is all prefilled instead.
        """
        self._admitted[request_id].restore = restore

    def restored(self, request_id: int, tokens: int) -> None:
        """The beginning of a request's prompt is in its cells.

        Args:
            request_id: Whose.
            tokens: How many tokens are there; 0 if all of them have to be prefilled.
        """
        request = self._admitted[request_id]
        request.restore = None
        request.computed_tokens = tokens

    def left_prefill_context(self, request_id: int) -> None:
        """A request's KV state has moved from where it was prefilled into its slot."""
        self._admitted[request_id].in_prefill_context = False

    def note_prefill(self, request_id: int, took_s: float) -> None:
        """So much time was spent on prefilling a prompt; nothing happens if it is gone.

        Args:
            request_id: Whose.
            took_s: Seconds.
        """
        if request := self._admitted.get(request_id):
            self.policy.note_prefill(request, took_s)

    def commit(self, plan: Plan, outcome: Outcome, now_s: float) -> list[Released[S]]:
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
        for request_id in plan.decodes:
            # Of the tokens gained, all but the last are computed already (by the step that confirmed them).
            self._admitted[request_id].computed_tokens += outcome.committed[request_id]
        for request_id, tokens in outcome.committed.items():
            request = self._admitted[request_id]
            request.new_tokens += tokens
            if request.last_token_s is not None and not request.background:
                self.policy.note_gap(request, now_s - request.last_token_s)
            request.last_token_s = now_s
        return [self._release(self._admitted.pop(request_id)) for request_id in outcome.finished]
