"""Why a prompt had to be read again: what its client changed since a prompt that is remembered.

A cache of prompts helps as far as a prompt begins like one that it knows. Clients spoil that without knowing it: a
clock in the first line, tools in another order, a history that is written anew each turn. Both prompts are walked side
by side here, from the token where they part; where they are alike again is found by hashes of runs of tokens.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from legato.core.tokens import Tokens, common_prefix

ChangeKind = Literal["number", "replaced", "inserted", "removed", "reordered", "rewritten"]
"""What a client did to its prompt; see `Change.kind`."""

RUN = 8
"""Tokens in a row that count as the same text. What a template puts between two messages is shorter."""
RESUME = 32
"""Tokens in a row that must be alike for the old text to go on: tools and documents share phrases of `RUN` tokens."""
ISLAND = 64
"""Tokens in a row below which what stays alike between two differences belongs to one stretch that was replaced."""
SHORT = 64
"""Most tokens of a stretch in which only numbers changed."""
LAST_FEW = 8
"""Tokens at the end of a prompt that a continued conversation may lack: what the template puts before an answer."""
BORDER = 3
"""Tokens beside a change whose borders it may move."""
CONTEXT = 4
"""Tokens on each side of a number that are looked at too, since a number or a month may be several tokens."""
LEAST_LOST = 32
"""Tokens below which a loss is not worth a word."""
SHARED = 0.5
"""Of the shorter prompt, the part that both have if they are one conversation."""
SHARED_AFTER = 0.25
"""The same after the parting: conversations with one long system prompt share little there."""
SAME_CONTENT = 0.9
"""The part of two stretches that is the same if only its order changed. Above (RUN - 1) / RUN, see `_leftovers`."""
SUMMARY = 0.5
"""A stretch in the place of one that was so much longer is a summary of it, rather than another one."""
MOST_DIFFERENCES = 256
"""Differences that are walked; beyond them the rest counts as rewritten."""
SAMPLED_FROM = 4096
"""Tokens from which only some runs of a remembered prompt are looked up to see whether it is near."""
TABLE_BITS = 6
"""A table of runs has 2 to this power as many places as runs, so about one in 64 others is mistaken for one of them."""
BASE = 0x9E3779B97F4A7C15
"""Of the polynomial that hashes runs: odd, with mixed bits."""

_NAMES = (
    "january|february|march|april|may|june|july|august|september|october|november|december|"
    "jan|feb|mar|apr|jun|jul|aug|sept|sep|oct|nov|dec|"
    "monday|tuesday|wednesday|thursday|friday|saturday|sunday|mon|tues|tue|wed|thurs|thur|thu|fri|sat|sun"
)
_CHANGING = (
    (re.compile(r"\d+(?:[.,]\d+)*(?:(?:st|nd|rd|th)\b)?"), "0"),
    (re.compile(rf"(?<![a-z])(?:{_NAMES})(?![a-z])", re.IGNORECASE), "day"),
    (re.compile(r"(?<![a-z])[ap]\.?m(?![a-z])", re.IGNORECASE), "am"),
)


@dataclass(frozen=True, slots=True)
class Change:
    """What a prompt has otherwise than a remembered one, and what that cost."""

    kind: ChangeKind
    """`number`: only digits, or names of months and days. `inserted`, `removed`: tokens came or went, then the old text
    goes on. `replaced`: one stretch by another, then the old text goes on. `reordered`: the same content in another
    order. `rewritten`: anything else."""
    at_token: int
    """Tokens that both prompts begin with: the first one that differs has this index."""
    old: tuple[int, int]
    """The tokens of the remembered prompt that differ, from the parting to where both are alike again, end excluded; of
    `reordered` and `rewritten` prompts to where the last difference ends."""
    new: tuple[int, int]
    """The same in this prompt."""
    lost_tokens: int
    """Tokens of this prompt after the parting, and not supplied by the cache, that stand in the remembered prompt after
    the parting too, at any place: what need not have been read without the change. Alike runs of less than `RUN` tokens
    are not counted."""
    earlier: int = field(default=0, compare=False)
    """Which of the remembered prompts it is compared with."""


def find_change(
    prompt: Tokens, remembered: Sequence[Tokens], text: Callable[[Tokens], str], *, already: int = 0
) -> Change | None:
    """Find what a client changed since the remembered prompt that is nearest.

    Args:
        prompt: The prompt that had to be read, shape [n].
        remembered: Earlier ones, the newest first; of equally near ones the first is taken.
        text: Turns tokens into text. It gets single stretches, not whole words.
        already: Tokens at the beginning of the prompt that the cache did supply. They are not lost.

    Returns:
        The change, or None if no remembered prompt looks like the same conversation, if the prompt continues one as
        conversations do, or if less than `LEAST_LOST` tokens were lost.
    """
    nearest = _nearest(prompt, remembered)
    if nearest is None:
        return None
    at = common_prefix(prompt, nearest)
    known = _stands_in(prompt[at:], nearest[at:])
    known_tokens = min(int(known.sum()), len(nearest) - at)
    lost_tokens = min(int(known[max(0, already - at) :].sum()), len(nearest) - at)
    rest = min(len(nearest), len(prompt)) - at
    if lost_tokens < LEAST_LOST or known_tokens < SHARED_AFTER * rest:
        return None
    kind, old_end, new_end = _classify(nearest, prompt, at, known_tokens, text)
    earlier = next(i for i, one in enumerate(remembered) if one is nearest)
    return Change(
        kind=kind, at_token=at, earlier=earlier, old=(at, old_end), new=(at, new_end), lost_tokens=lost_tokens
    )


class RecentPrompts:
    """The latest prompts of each scope, as many as a number of tokens allows.

    Args:
        most_tokens: Of all prompts of all scopes together.
    """

    def __init__(self, most_tokens: int) -> None:
        self.most_tokens = most_tokens
        """Of all prompts of all scopes together."""
        self.tokens = 0
        """Tokens of the prompts that are kept."""
        self._prompts: deque[tuple[str | None, Tokens]] = deque()

    def remember(self, scope: str | None, prompt: Tokens) -> None:
        """Keep a copy of a prompt, in the place of those that it continues, and drop the oldest if there is no room.

        A prompt that has no tokens, or more than fit, is not kept.

        Args:
            scope: Whose prompt it is; prompts of others are never compared with it.
            prompt: Its tokens, shape [n].
        """
        if not 0 < len(prompt) <= self.most_tokens:
            return
        self._prompts = deque(
            (owner, earlier)
            for owner, earlier in self._prompts
            if owner != scope or common_prefix(earlier, prompt) < len(earlier)
        )
        self._prompts.append((scope, prompt.copy()))
        self.tokens = sum(len(kept) for _, kept in self._prompts)
        while self.tokens > self.most_tokens:
            self.tokens -= len(self._prompts.popleft()[1])

    def of(self, scope: str | None) -> list[Tokens]:
        """The prompts of a scope, the newest first."""
        return [prompt for owner, prompt in reversed(self._prompts) if owner == scope]


@dataclass(frozen=True, slots=True)
class _Difference:
    """A stretch that differs, and how many tokens are alike after it."""

    kind: ChangeKind
    old: tuple[int, int]
    new: tuple[int, int]
    goes_on: int


def _runs(tokens: Tokens, length: int) -> NDArray[np.uint64]:
    """A hash of every run of so many tokens, a power of two, in the order of their first tokens."""
    hashes = tokens.astype(np.uint64)
    size = 1
    while size < length:
        hashes = hashes[:-size] * np.uint64(pow(BASE, size, 1 << 64)) + hashes[size:]
        size *= 2
    return hashes


def _some_runs(tokens: Tokens) -> NDArray[np.uint64]:
    """The hashes of all runs of a short prompt, and of every eighth of a long one, which is as good and faster."""
    if len(tokens) < SAMPLED_FROM:
        return _runs(tokens, RUN)
    side_by_side = tokens[: len(tokens) // RUN * RUN].reshape(-1, RUN).astype(np.uint64)
    powers = [pow(BASE, RUN - 1 - place, 1 << 64) for place in range(RUN)]
    return side_by_side @ np.array(powers, np.uint64)


def _stands_in(tokens: Tokens, other: Tokens) -> NDArray[np.bool_]:
    """Which tokens are part of a run that the other has too, at any place."""
    starts = np.isin(_runs(tokens, RUN), _runs(other, RUN)).astype(np.int64)
    runs_over = np.zeros(len(tokens) + 1, np.int64)
    runs_over[: len(starts)] += starts
    runs_over[RUN : RUN + len(starts)] -= starts
    return np.cumsum(runs_over[:-1]) > 0


def _nearest(prompt: Tokens, remembered: Sequence[Tokens]) -> Tokens | None:
    """The remembered prompt that shares most runs with this one, if it looks like the same conversation.

    One that the prompt continues rules out all that part from it sooner: then those are other branches.
    """
    runs = _runs(prompt, RUN)
    bits = len(runs).bit_length() + TABLE_BITS

    def places(of: NDArray[np.uint64]) -> NDArray[np.int64]:
        return ((of * np.uint64(BASE)) >> np.uint64(64 - bits)).view(np.int64)

    # A table may mistake a few runs for others, but looks up each of 64 long prompts many times faster than sorting.
    table = np.zeros(1 << bits, np.bool_)
    table[places(runs)] = True
    continued = 0
    alike: list[tuple[int, int, Tokens]] = []
    for earlier in remembered:
        at = common_prefix(prompt, earlier)
        if at >= min(len(prompt), len(earlier)) - LAST_FEW:
            continued = max(continued, at)
            continue
        sample = _some_runs(earlier)
        all_runs = max(0, len(earlier) - RUN + 1)
        found = np.count_nonzero(table[places(sample)])
        shared = min(int(found) * all_runs // max(1, len(sample)), len(runs))
        if shared >= SHARED * min(len(runs), all_runs):
            alike.append((shared, at, earlier))
    _, _, nearest = max(
        (found for found in alike if found[1] >= continued), key=lambda found: found[:2], default=(0, 0, None)
    )
    return nearest


class _Resumption:
    """Where two stretches have the next run of tokens in common.

    Args:
        old: The one stretch, shape [m].
        new: The other, shape [n].
        length: Tokens of a run, a power of two.
    """

    def __init__(self, old: Tokens, new: Tokens, length: int) -> None:
        self._old_runs, self._new_runs = old_runs, new_runs = _runs(old, length), _runs(new, length)
        self._size = len(old_runs)
        self._order = np.argsort(old_runs, kind="stable")
        ordered = old_runs[self._order]
        # Equal runs stand side by side, in the order of their places: a key is the run's first rank, then its place.
        self._keys = np.searchsorted(ordered, ordered) * self._size + self._order
        first, last = np.searchsorted(ordered, new_runs), np.searchsorted(ordered, new_runs, side="right")
        self._places = np.flatnonzero(last > first)
        self._first, self._last = first[self._places], last[self._places]

    def after(self, i: int, j: int) -> list[tuple[int, int]]:
        """Where the old text may go on.

        Args:
            i: Where to begin in the old stretch.
            j: Where to begin in the new one.

        Returns:
            Places in both: the common run that is fewest tokens away, then those, if any, before which only the new
            one has more tokens, and only the old one.
        """
        nearest = self.nearest(i, j)
        if nearest is None:
            return []
        return [nearest, *self._only_inserted(i, j), *self._only_removed(i, j)]

    def nearest(self, i: int, j: int) -> tuple[int, int] | None:
        """The common run that is fewest tokens away, from `i` in the old stretch and `j` in the new one."""
        best: tuple[int, int] | None = None
        distance = 0
        start, width = int(np.searchsorted(self._places, j)), SHORT
        while start < len(self._places):
            window = slice(start, start + width)
            at_new = self._places[window]
            if best is not None and int(at_new[0]) - j >= distance:
                break
            rank = np.searchsorted(self._keys, self._first[window] * self._size + i)
            found = np.flatnonzero(rank < self._last[window])
            if len(found):
                at_old = self._order[rank[found]]
                distances = at_old - i + at_new[found] - j
                least = int(distances.argmin())
                if best is None or distances[least] < distance:
                    distance = int(distances[least])
                    best = int(at_old[least]), int(at_new[found[least]])
            start, width = start + width, width * 2
        return best

    def _only_inserted(self, i: int, j: int) -> list[tuple[int, int]]:
        """The first place from `j` on of a run that begins within the border of `i`."""
        for at_old in range(i, min(i + BORDER + 1, self._size)):
            places = self._places[np.searchsorted(self._places, j) :]
            same = np.flatnonzero(self._new_runs[places] == self._old_runs[at_old])
            if len(same):
                return [(at_old, int(places[same[0]]))]
        return []

    def _only_removed(self, i: int, j: int) -> list[tuple[int, int]]:
        """The first place from `i` on of a run that begins within the border of `j`."""
        for at_new in range(j, min(j + BORDER + 1, len(self._new_runs))):
            same = np.flatnonzero(self._old_runs[i:] == self._new_runs[at_new])
            if len(same):
                return [(i + int(same[0]), at_new)]
        return []


def _differences(old: Tokens, new: Tokens, at: int, text: Callable[[Tokens], str]) -> list[_Difference]:
    """Walk both prompts from where they part, as long as the old text goes on in the new one.

    What comes after the last difference and what goes on after it is the end of both: new turns, another question.
    """
    old_runs, new_runs = _runs(old[at:], RUN), _runs(new[at:], RUN)
    resumption = _Resumption(old[at:], new[at:], RESUME)
    found: list[_Difference] = []
    i = j = at
    while len(found) < MOST_DIFFERENCES:
        kind: ChangeKind = "number"
        resumed = _after_a_number(old, new, i, j, text, old_runs[i - at :], new_runs[j - at :])
        if resumed is None:
            places = resumption.after(i - at, j - at)
            if not places:
                break
            # The nearest may be a phrase that all tools share, where one tool came or went: weigh what goes on.
            resumed = max(
                ((of_old + at, of_new + at) for of_old, of_new in places),
                key=lambda place: common_prefix(old[place[0] :], new[place[1] :]) - place[0] - place[1],
            )
            kind = _kind(old[i : resumed[0]], new[j : resumed[1]], text)
        goes_on = common_prefix(old[resumed[0] :], new[resumed[1] :])
        found.append(_Difference(kind, (i, resumed[0]), (j, resumed[1]), goes_on))
        i, j = resumed[0] + goes_on, resumed[1] + goes_on
    return found


def _after_a_number(
    old: Tokens,
    new: Tokens,
    i: int,
    j: int,
    text: Callable[[Tokens], str],
    old_runs: NDArray[np.uint64],
    new_runs: NDArray[np.uint64],
) -> tuple[int, int] | None:
    """Where both are alike again if a short stretch differs by nothing but numbers, else None."""
    rows, columns = np.nonzero(old_runs[: SHORT + 1, None] == new_runs[None, : SHORT + 1])
    if not len(rows):
        return None
    least = int((rows + columns).argmin())
    old_end, new_end = i + int(rows[least]), j + int(columns[least])
    before = min(CONTEXT, i, j)
    old_text = text(old[i - before : old_end + CONTEXT])
    new_text = text(new[j - before : new_end + CONTEXT])
    if old_text == new_text or _without_numbers(old_text) != _without_numbers(new_text):
        return None
    return old_end, new_end


def _without_numbers(text: str) -> str:
    """The text with one stand-in for all numbers, and one for all names of months and days."""
    for pattern, stand_in in _CHANGING:
        text = pattern.sub(stand_in, text)
    return text


def _kind(old: Tokens, new: Tokens, text: Callable[[Tokens], str]) -> ChangeKind:
    """What happened to one stretch, after which the old text goes on."""
    if len(old) < len(new) and _is_around(new, old, text):
        return "inserted"
    if len(new) < len(old) and _is_around(old, new, text):
        return "removed"
    return "rewritten" if len(old) > SHORT and SUMMARY * len(old) >= len(new) else "replaced"


def _is_around(longer: Tokens, shorter: Tokens, text: Callable[[Tokens], str]) -> bool:
    """True if the shorter stretch is what is left beside a hole in the longer one.

    Texts are compared, since text that comes or goes moves the borders of the tokens beside it.
    """
    if len(shorter) > BORDER:
        return False
    if not len(shorter):
        return True
    whole, rest = text(longer), text(shorter)
    # So many characters from its beginning, the others from its end.
    return any(whole.startswith(rest[:cut]) and whole.endswith(rest[cut:]) for cut in range(len(rest) + 1))


def _classify(
    old: Tokens, new: Tokens, at: int, known_tokens: int, text: Callable[[Tokens], str]
) -> tuple[ChangeKind, int, int]:
    """The kind of a change, and where it ends in both prompts."""
    differences = _differences(old, new, at, text)
    goes_on = sum(difference.goes_on for difference in differences)
    resumes = bool(differences) and 2 * goes_on >= known_tokens
    # A difference that would have cost less than half of it does not name the change: there the talk itself went on.
    early: list[_Difference] = []
    passed = 0
    for difference in differences:
        if 2 * passed > goes_on:
            break
        early.append(difference)
        passed += difference.goes_on
    kinds = {difference.kind for difference in early}
    first = early[0] if resumes else None
    if first and kinds == {"number"}:
        return "number", first.old[1], first.new[1]
    leftovers = [
        (old[:0], new[:0]) if one.kind == "number" else _leftovers(old[slice(*one.old)], new[slice(*one.new)])
        for one in differences
    ]
    end_old, end_new = (differences[-1].old[1], differences[-1].new[1]) if differences else (at, at)
    last = differences[-1].goes_on if differences else 0
    if resumes:
        # What moved may come back late, and the talk may go on otherwise after that.
        for count in range(len(early), len(differences) + 1):
            if _only_reordered(leftovers[:count]):
                return "reordered", differences[count - 1].old[1], differences[count - 1].new[1]
    if _moved(leftovers, _leftovers(old[end_old + last :], new[end_new + last :])):
        return "reordered", len(old), len(new)
    # Several stretches may come or go, such as the reasoning of every turn; several replaced ones are a rewriting.
    if first and (len(early) == 1 or kinds in ({"inserted"}, {"removed"})):
        return first.kind, first.old[1], first.new[1]
    if first and all(difference.goes_on < ISLAND for difference in early[:-1]):
        return "replaced", early[-1].old[1], early[-1].new[1]
    if resumes and len(differences) < MOST_DIFFERENCES:
        return "rewritten", end_old, end_new
    return "rewritten", len(old), len(new)


def _leftovers(old: Tokens, new: Tokens) -> tuple[Tokens, Tokens]:
    """What is left of two stretches without the runs that they have in the same order.

    Else a stretch with a few words changed here and there would look like one with the same content in another order.
    """
    resumption = _Resumption(old, new, RUN)
    old_left, new_left = np.ones(len(old), np.bool_), np.ones(len(new), np.bool_)
    i = j = 0
    while (place := resumption.nearest(i, j)) is not None:
        i, j = place
        alike = common_prefix(old[i:], new[j:])
        old_left[i : i + alike] = new_left[j : j + alike] = False
        i, j = i + alike, j + alike
    return old[old_left], new[new_left]


def _only_reordered(leftovers: Sequence[tuple[Tokens, Tokens]]) -> bool:
    """True if what is left of some differences is together the same in both prompts."""
    gone, came = (np.concatenate(parts) for parts in zip(*leftovers, strict=True))
    if min(len(gone), len(came)) < max(RUN, SAME_CONTENT * max(len(gone), len(came))):
        return False
    _, which = np.unique(np.concatenate((gone, came)), return_inverse=True)
    counts = [np.bincount(part, minlength=int(which.max()) + 1) for part in (which[: len(gone)], which[len(gone) :])]
    return int(np.minimum(*counts).sum()) >= SAME_CONTENT * max(len(gone), len(came))


def _moved(leftovers: Sequence[tuple[Tokens, Tokens]], end: tuple[Tokens, Tokens]) -> bool:
    """True if what went and what came is the same, counting also what is left of the ends of both prompts.

    New turns may stand there too, so runs of tokens are compared, not counts.
    """
    all_gone, all_came = (np.concatenate(parts) for parts in zip(*leftovers, end, strict=True))
    came = all_came[: len(all_came) - len(end[1])]
    return bool(
        len(all_gone) >= RUN
        and _stands_in(all_gone, all_came).sum() >= SAME_CONTENT * len(all_gone)
        and _stands_in(came, all_gone).sum() >= SAME_CONTENT * len(came)
    )
