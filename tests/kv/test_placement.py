"""Where requests begin: which cells they get, and what they find there or elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from legato.core.tokens import Tokens, common_prefix
from legato.kv.entries import Entries, Entry, Place
from legato.kv.move_costs import MoveCosts
from legato.kv.placement import HALF_LIFE_S, PREFILL_AT_LEAST, SHARED_AT_LEAST, Placement
from legato.kv.sources import Lease, Restore, Source

NOW_S = 1000.0
SAVING_S = 0.01
WAITING = Restore(40, None, 40.0, 0.0)


@dataclass
class Prices:
    """Prefill takes a second a token, moving next to nothing."""

    saving: float = SAVING_S
    loading: float = 0.001
    fetching: float = 0.005
    decoding: float = 0.01

    def chunk_s(self, start: int, tokens: int) -> float:
        return float(tokens)

    def decode_s(self, depths: tuple[int, ...]) -> float:
        return self.decoding

    @property
    def moves(self) -> MoveCosts:
        """As if one token had been moved in each way."""
        moves = MoveCosts(0.0)
        moves.observe("saving", 1, self.saving)
        moves.observe("loading", 1, self.loading)
        moves.observe("fetching", 1, self.fetching)
        return moves


@dataclass(eq=False)
class Request:
    """As the cells see it."""

    id: int
    tokens: Tokens
    scope: str | None = ""
    computed_tokens: int = 0
    in_prefill_context: bool = False
    restore: Restore | None = None
    awaits: Source | None = None

    @property
    def client(self) -> str | None:
        return self.scope


def run_of(first: int, count: int) -> Tokens:
    """Tokens from `first` on: two runs share a prefix only if they begin alike."""
    return np.arange(first, first + count, dtype=np.int32)


def joined(*parts: Tokens) -> Tokens:
    return np.concatenate(parts)


@dataclass
class Cells:
    """A cache with its requests."""

    sequences: int
    can_cut: bool = True
    can_cut_states: bool = True
    prices: Prices = field(default_factory=Prices)
    requests: dict[int, Request] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.entries = Entries({"memory": 10**9, "disk": 10**9})
        moves = self.prices.moves
        self.cache = Placement(
            self.sequences,
            1000,
            self.entries,
            self.prices,
            moves,
            scope="key",
            can_cut=self.can_cut,
            can_cut_states=self.can_cut_states,
        )
        self.slots = self.cache.slots
        self.forgetful = Placement(self.sequences, 1000, self.entries, self.prices, moves, scope="off")
        self.forgetful.slots = self.slots

    def ask(self, tokens: Tokens, now_s: float = NOW_S, **wishes: object) -> tuple[Request, Lease | None]:
        request = Request(len(self.requests), tokens, **wishes)  # type: ignore[arg-type]
        self.requests[request.id] = request
        return request, self.lender_of(request).acquire(request, now_s)

    def lender_of(self, request: Request) -> Placement:
        """Where nothing is remembered, nobody has a scope."""
        return self.cache if request.scope is not None else self.forgetful

    def lease(self, tokens: Tokens, now_s: float = NOW_S, **wishes: object) -> Lease:
        lease = self.ask(tokens, now_s, **wishes)[1]
        assert lease is not None
        return lease

    def run(self, number: int, tokens: Tokens, computed: int | None = None, **wishes: object) -> Request:
        """Have a certain sequence run a request."""
        request = Request(len(self.requests), tokens, **wishes)  # type: ignore[arg-type]
        request.computed_tokens = len(tokens) if computed is None else computed
        self.requests[request.id] = request
        self.cache.lend(self.slots[number], request, request.scope or "", NOW_S)
        return request

    def park(self, number: int, tokens: Tokens, scope: str = "", at_s: float = NOW_S) -> None:
        """Leave something in a certain sequence."""
        self.cache.park(number, tokens, scope, at_s)

    def remember(self, tokens: Tokens, place: Place = "memory", scope: str = "", size: int | None = None) -> Entry:
        name = f"{scope} {tokens.tolist()}"
        entry = Entry(name, scope, tokens, len(tokens) if size is None else size, float(len(tokens)), 0.0)
        return self.entries.add(entry, place)


HELLO = run_of(0, 40)
OTHER = run_of(500, 40)


def beginning(source: Source | None) -> tuple[int, str, int | None, str | None, int | None] | None:
    """What of a source the tests are about."""
    return None if source is None else (source.tokens, source.tier, source.slot, source.entry, source.follows)


def test_where_nothing_is_known_all_is_read_in_the_first_sequence() -> None:
    cells = Cells(3)
    assert [cells.lease(HELLO[n:]) for n in range(3)] == [Lease(0), Lease(1), Lease(2)]
    assert cells.ask(HELLO)[1] is None
    assert cells.cache.free == 0


def test_a_conversation_goes_on_in_place() -> None:
    cells = Cells(3)
    cells.park(1, HELLO)
    lease = cells.lease(joined(HELLO, OTHER))
    assert (lease.slot, beginning(lease.source)) == (1, (40, "live", 1, None, None))
    assert lease.source is not None
    assert lease.source.prefill_s == 40.0


def test_in_place_even_if_it_is_in_memory_too() -> None:
    cells = Cells(2)
    cells.park(1, HELLO)
    cells.remember(HELLO)
    lease = cells.lease(joined(HELLO, OTHER))
    assert (lease.slot, beginning(lease.source)) == (1, (40, "live", 1, None, None))


def test_an_edited_conversation_goes_on_from_where_it_was_edited() -> None:
    cells = Cells(1)
    cells.park(0, joined(HELLO, OTHER))
    assert beginning(cells.lease(joined(HELLO, run_of(900, 20))).source) == (40, "live", 0, None, None)


@pytest.mark.parametrize("place", ["memory", "disk"])
def test_what_is_remembered_elsewhere_is_brought(place: Place) -> None:
    cells = Cells(2)
    entry = cells.remember(HELLO, place)
    lease = cells.lease(joined(HELLO, OTHER))
    assert (lease.slot, beginning(lease.source)) == (0, (40, place, None, entry.id, None))


def test_memory_is_nearer_than_disk() -> None:
    cells = Cells(2)
    on_disk = cells.remember(joined(HELLO, run_of(700, 10)), "disk")
    in_memory = cells.remember(joined(HELLO, run_of(800, 20)), "memory")
    source = cells.lease(joined(HELLO, OTHER)).source
    assert source == Source(40, "memory", 40.0, pytest.approx(60 * 0.001), entry=in_memory.id)
    cells.entries.drop(in_memory, "memory")
    source = cells.lease(joined(HELLO, OTHER)).source
    assert source == Source(40, "disk", 40.0, pytest.approx(50 * 0.006), entry=on_disk.id)


def test_of_those_that_share_as_much_the_smallest_is_brought() -> None:
    cells = Cells(2)
    cells.remember(joined(HELLO, run_of(800, 300)))
    small = cells.remember(joined(HELLO, run_of(700, 10)))
    cells.remember(joined(HELLO, run_of(900, 20)))
    assert beginning(cells.lease(joined(HELLO, OTHER)).source) == (40, "memory", None, small.id, None)


def test_what_takes_longer_to_bring_than_to_read_is_read() -> None:
    cells = Cells(2, prices=Prices(loading=0.9))
    cells.remember(HELLO)
    cells.run(0, HELLO)
    assert cells.lease(joined(HELLO, OTHER)) == Lease(1)


def test_a_little_of_a_large_state_is_not_worth_moving_it() -> None:
    cells = Cells(1)
    cells.remember(joined(HELLO[:30], run_of(10_000, 30_000)))
    assert cells.lease(HELLO).source is None


@pytest.mark.parametrize("computed", [20, 30, 39])
def test_what_is_just_being_read_is_followed(computed: int) -> None:
    cells = Cells(2)
    leader = cells.run(0, HELLO, computed)
    lease = cells.lease(joined(HELLO, OTHER))
    assert (lease.slot, beginning(lease.source)) == (1, (40, "live", 0, None, leader.id))


def test_what_is_read_is_copied() -> None:
    cells = Cells(2)
    cells.run(0, HELLO)
    lease = cells.lease(joined(HELLO, OTHER))
    assert (lease.slot, beginning(lease.source)) == (1, (40, "live", 0, None, None))


def test_what_is_shared_is_copied_while_the_rest_is_read() -> None:
    cells = Cells(2)
    cells.run(0, joined(HELLO, OTHER), 45)
    assert beginning(cells.lease(joined(HELLO, run_of(900, 9))).source) == (40, "live", 0, None, None)


def test_an_answer_that_is_being_written_changes_nothing_of_the_prompt_before_it() -> None:
    cells = Cells(2)
    cells.run(0, HELLO, len(HELLO) + 100)
    assert beginning(cells.lease(joined(HELLO, OTHER)).source) == (40, "live", 0, None, None)


def test_it_is_not_worth_waiting_for_one_that_has_hardly_more() -> None:
    cells = Cells(2, prices=Prices(saving=0.5))
    cells.run(0, HELLO, 1)
    assert cells.lease(joined(HELLO, OTHER)).source is None


def test_what_is_read_in_another_context_is_followed_to_the_end_of_the_prompt() -> None:
    cells = Cells(2)
    leader = cells.run(0, joined(HELLO, OTHER[:5]), 42, in_prefill_context=True)
    lease = cells.lease(joined(HELLO, run_of(900, 9)))
    assert beginning(lease.source) == (40, "live", 0, None, leader.id)


def test_who_waits_is_not_followed() -> None:
    """If two could follow each other, both would wait for ever."""
    cells = Cells(3)
    first, second = (cells.run(n, HELLO, 0, restore=WAITING) for n in (0, 1))
    assert cells.cache.find(first) is None
    assert cells.cache.find(second) is None
    first.restore = None
    assert beginning(cells.cache.find(second)) == (36, "live", 0, None, first.id)


def test_of_many_alike_one_reads_and_the_others_follow() -> None:
    cells = Cells(10)
    leases = [cells.lease(joined(HELLO, run_of(1000 * n, 10))) for n in range(1, 11)]
    assert leases[0].source is None
    assert all(lease.source is not None and lease.source.follows is not None for lease in leases[1:])


@pytest.mark.parametrize("extra", range(PREFILL_AT_LEAST + 2))
def test_something_is_read_even_if_all_is_remembered(extra: int) -> None:
    prompt = joined(HELLO, OTHER[:extra])
    for number in range(3):
        cells = Cells(2)
        if number == 0:
            cells.park(0, HELLO)
        elif number == 1:
            cells.remember(HELLO)
        else:
            cells.run(0, HELLO)
        source = cells.lease(prompt).source
        assert source is not None
        assert source.tokens == min(len(HELLO), len(prompt) - PREFILL_AT_LEAST)


@pytest.mark.parametrize("length", range(1, PREFILL_AT_LEAST + 1))
def test_the_shortest_prompts_are_always_read(length: int) -> None:
    cells = Cells(2)
    cells.park(0, HELLO)
    cells.remember(HELLO)
    assert cells.lease(HELLO[:length]).source is None


@pytest.mark.parametrize("shared", [SHARED_AT_LEAST - 1, SHARED_AT_LEAST])
def test_a_few_tokens_that_many_prompts_begin_with_count_for_nothing(shared: int) -> None:
    for number in range(3):
        cells = Cells(3)
        if number == 0:
            cells.park(0, HELLO[:shared])
        elif number == 1:
            cells.remember(HELLO[:shared])
        else:
            cells.run(0, HELLO[:shared])
        source = cells.lease(joined(HELLO[:shared], OTHER)).source
        assert (0 if source is None else source.tokens) == (shared if shared >= SHARED_AT_LEAST else 0)


def test_an_empty_sequence_is_taken_before_what_is_worth_something() -> None:
    cells = Cells(3)
    cells.park(0, HELLO)
    cells.park(1, OTHER)
    assert cells.lease(run_of(900, 30)) == Lease(2)


def test_what_is_saved_is_overwritten_before_what_is_not() -> None:
    cells = Cells(3)
    for number, tokens in enumerate((HELLO, OTHER, run_of(700, 40))):
        cells.park(number, tokens)
    cells.remember(OTHER)
    assert cells.lease(run_of(900, 30)) == Lease(1)


def test_what_another_sequence_holds_too_is_overwritten_first() -> None:
    cells = Cells(3)
    cells.park(0, OTHER)
    cells.park(1, joined(HELLO, OTHER))
    cells.park(2, HELLO)
    assert cells.lease(run_of(900, 30)) == Lease(2)


def test_one_of_two_equal_ones_stays() -> None:
    cells = Cells(3)
    cells.park(0, run_of(700, 10))
    cells.park(1, HELLO)
    cells.park(2, HELLO)
    assert cells.lease(run_of(900, 30)) == Lease(2)
    assert cells.lease(run_of(900, 30)[::-1]) == Lease(0)


def test_what_was_not_used_for_long_is_overwritten_first() -> None:
    cells = Cells(2)
    cells.park(0, HELLO, at_s=NOW_S)
    cells.park(1, joined(OTHER, run_of(700, 10)), at_s=NOW_S - 3 * HALF_LIFE_S)
    assert cells.lease(run_of(900, 30)) == Lease(1)


def test_what_takes_least_to_read_again_is_overwritten_first() -> None:
    cells = Cells(2)
    cells.park(0, HELLO)
    cells.park(1, OTHER[:20])
    assert cells.lease(run_of(900, 30)) == Lease(1)


def test_a_short_beginning_does_not_cost_a_long_conversation() -> None:
    """Copying it elsewhere takes less than reading the rest again would."""
    cells = Cells(2)
    cells.park(0, joined(HELLO[:20], run_of(2000, 400)))
    lease = cells.lease(joined(HELLO[:20], OTHER))
    assert lease.slot == 1
    assert beginning(lease.source) == (20, "live", 0, None, None)


def test_neighbours_of_those_who_run_come_first_where_nothing_is_lost() -> None:
    cells = Cells(6)
    cells.run(3, OTHER)
    assert cells.lease(HELLO) == Lease(2)
    assert cells.lease(run_of(600, 9)) == Lease(1)


def test_a_conversation_that_is_alive_is_worth_more_than_neighbours() -> None:
    cells = Cells(6)
    cells.run(3, run_of(700, 9))
    cells.park(2, HELLO)
    cells.park(4, OTHER)
    assert cells.lease(run_of(900, 30)) == Lease(0)


def test_without_a_scope_nothing_is_used_and_nothing_left_to_others() -> None:
    cells = Cells(4)
    cells.park(0, HELLO)
    cells.remember(HELLO)
    cells.run(1, HELLO)
    lease = cells.lease(joined(HELLO, OTHER), scope=None)
    assert (lease.source, lease.slot) == (None, 2)
    request = cells.requests[len(cells.requests) - 1]
    assert cells.lender_of(request).find(request) is None


@pytest.mark.parametrize(("mine", "theirs"), [("ana", "ben"), ("", "ben"), ("ana", "")])
def test_nobody_begins_with_what_another_has_left(mine: str, theirs: str) -> None:
    cells = Cells(3)
    cells.park(0, HELLO, scope=theirs)
    cells.remember(HELLO, scope=theirs)
    cells.run(1, HELLO, 30, scope=theirs)
    assert cells.lease(joined(HELLO, OTHER), scope=mine).source is None


def test_what_was_emptied_is_not_used() -> None:
    cells = Cells(2)
    cells.park(0, HELLO)
    assert [slot.number for slot in cells.cache.parked] == [0]
    cells.slots[0].tokens = None
    assert cells.cache.parked == []
    assert cells.lease(joined(HELLO, OTHER)).source is None


def test_what_was_released_without_being_parked_is_empty() -> None:
    cells = Cells(1)
    cells.lease(HELLO)
    cells.cache.release(0)
    assert cells.lease(joined(HELLO, OTHER)).source is None


def test_a_request_finds_its_beginning_again_when_it_has_its_cells_already() -> None:
    cells = Cells(2)
    request, _ = cells.ask(joined(HELLO, OTHER))
    assert cells.cache.find(request) is None
    entry = cells.remember(HELLO)
    assert beginning(cells.cache.find(request)) == (40, "memory", None, entry.id, None)
    cells.park(1, joined(HELLO, OTHER[:20]))
    assert beginning(cells.cache.find(request)) == (60, "live", 1, None, None)


def test_the_most_expensive_of_what_is_nowhere_else_is_saved_first() -> None:
    cells = Cells(4)
    cells.park(0, HELLO[:10])
    cells.park(1, OTHER)
    cells.park(2, joined(HELLO, OTHER))
    cells.park(3, HELLO)
    expected = [2, 1, None]  # what 0 and 3 hold is in 2 as well
    for number in expected:
        slot = cells.cache.unsaved()
        assert (None if slot is None else slot.number) == number
        if slot is not None and slot.tokens is not None:
            cells.remember(slot.tokens)
    assert cells.cache.unsaved() is None


def test_what_is_refused_is_not_saved() -> None:
    cells = Cells(2)
    cells.park(0, HELLO)
    cells.park(1, OTHER[:20])
    slot = cells.cache.unsaved(lambda slot: slot.number == 0)
    assert slot is not None
    assert slot.number == 1
    assert cells.cache.unsaved(lambda _slot: True) is None


def test_a_state_that_cannot_be_cut_serves_as_a_whole_or_not_at_all() -> None:
    cells = Cells(3, can_cut=False)
    cells.park(0, HELLO)
    cells.run(1, joined(HELLO, OTHER), 50)
    assert beginning(cells.lease(joined(HELLO, OTHER)).source) == (40, "live", 0, None, None)
    cells = Cells(3, can_cut=False)
    cells.park(0, joined(HELLO, OTHER))
    cells.remember(joined(HELLO, OTHER[:20]))
    assert cells.lease(joined(HELLO, run_of(900, 9))).source is None
    assert cells.lease(HELLO).source is None
    cells.remember(HELLO[:20])
    whole = cells.remember(HELLO[:30], "disk")
    assert beginning(cells.lease(joined(HELLO, run_of(900, 9))).source) == (30, "disk", None, whole.id, None)


def test_what_cannot_be_cut_is_not_replaced_by_what_goes_on_from_there() -> None:
    cells = Cells(3, can_cut=False)
    cells.park(0, HELLO)
    cells.park(1, joined(HELLO, OTHER))
    cells.remember(joined(HELLO, OTHER))
    slot = cells.cache.unsaved()
    assert slot is not None
    assert slot.number == 0
    assert cells.lease(run_of(900, 30)) == Lease(2)
    assert cells.lease(run_of(950, 30)) == Lease(1)
    cells.cache.release(1)
    cells.remember(HELLO)
    assert cells.cache.unsaved() is None


def test_where_only_states_cannot_be_cut_cells_still_are() -> None:
    cells = Cells(3, can_cut_states=False)
    cells.park(0, joined(HELLO, OTHER))
    cells.park(1, run_of(3000, 40))
    cells.park(2, run_of(4000, 40))
    request, lease = cells.ask(joined(HELLO, run_of(900, 9)))
    assert lease is not None
    assert (lease.slot, beginning(lease.source)) == (0, (40, "live", 0, None, None))
    request, lease = cells.ask(joined(HELLO, run_of(950, 9)))
    assert lease is not None
    assert lease.source is None
    cells.remember(joined(HELLO, OTHER))
    assert cells.cache.find(request) is None
    entry = cells.remember(HELLO)
    assert beginning(cells.cache.find(request)) == (40, "memory", None, entry.id, None)


blocks = st.lists(st.integers(0, 2), max_size=5).map(
    lambda numbers: np.array([100 * n + i for n in numbers for i in range(6 * n + 9)], dtype=np.int32)
)
"""Texts of a few blocks of several tokens: many share a beginning."""
scopes = st.sampled_from(["", "ana"])


@given(
    can_cut=st.sampled_from([(True, True), (True, False), (False, False)]),
    prices=st.builds(Prices, *(st.floats(0.0001, 2) for _ in range(4))),
    parked=st.dictionaries(st.integers(0, 5), st.tuples(blocks, scopes), max_size=6),
    running=st.dictionaries(st.integers(0, 5), st.tuples(blocks, scopes, st.floats(0, 1.2), st.booleans()), max_size=4),
    remembered=st.lists(st.tuples(blocks, scopes, st.sampled_from(["memory", "disk"]))),
    prompt=blocks.filter(len),
    scope=scopes | st.none(),
)
def test_whatever_there_is_a_request_begins_with_its_own_beginning(
    can_cut: tuple[bool, bool],
    prices: Prices,
    parked: dict[int, tuple[Tokens, str]],
    running: dict[int, tuple[Tokens, str, float, bool]],
    remembered: list[tuple[Tokens, str, Place]],
    prompt: Tokens,
    scope: str | None,
) -> None:
    cells = Cells(6, *can_cut, prices)
    for number, (tokens, its_scope) in parked.items():
        if len(tokens):
            cells.park(number, tokens, its_scope)
    for number, (tokens, its_scope, share, in_prefill_context) in running.items():
        cells.run(number, tokens, int(share * len(tokens)), scope=its_scope, in_prefill_context=in_prefill_context)
    for tokens, its_scope, place in remembered:
        if len(tokens):
            cells.remember(tokens, place, its_scope)
    before = [replace(slot) for slot in cells.slots]
    request, lease = cells.ask(prompt, scope=scope)
    assert (lease is None) == (len(running) == 6)
    if lease is None:
        return
    assert before[lease.slot].holder is None
    assert cells.slots[lease.slot].holder is request
    for source in (lease.source, cells.lender_of(request).find(request)):
        if source is None:
            continue
        assert scope is not None
        assert SHARED_AT_LEAST <= source.tokens <= len(prompt) - PREFILL_AT_LEAST
        assert source.prefill_s == source.tokens
        if source.entry is not None:
            entry = cells.entries.get(source.entry)
            assert entry is not None
            assert source.tier in entry.places
            content, its_scope, whole = entry.tokens, entry.scope, len(entry.tokens)
        else:
            assert source.slot is not None
            slot = before[source.slot]
            assert slot.tokens is not None
            content, its_scope, whole = slot.tokens, slot.scope, slot.length
            if source.follows is None:
                assert source.tokens <= slot.length
            else:
                assert slot.holder is not None
                assert slot.holder.id == source.follows
                assert source.tokens > slot.length
        assert its_scope == scope
        assert common_prefix(content, prompt) >= source.tokens
        is_in_place = source is lease.source and source.slot == lease.slot
        if not can_cut[0 if is_in_place else 1]:
            assert source.follows is None
            assert source.tokens == whole
