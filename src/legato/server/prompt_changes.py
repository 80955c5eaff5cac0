"""Why a prompt had to be read again: what its client changed since a prompt that is remembered.

A cache of prompts helps as far as a prompt begins like one that it knows. Clients spoil that without knowing it: a
clock in the first line, tools in another order, a history that is written anew each turn. Here both prompts are laid
side by side from the token where they part: the runs of tokens that each has once, as many of them as stand in the same
order in both, hold them together, and the gaps between those tell what was changed:

`number`: only digits, or names of months and days. `inserted`, `removed`: tokens came or went, then the old text goes
on. `replaced`: one stretch by another, then the old text goes on. `reordered`: the same content in another order.
`rewritten`: anything else.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from legato.core.timings import ChangeKind, Reread
from legato.core.tokens import Tokens, common_prefix

# Numbers of tokens
RUN = 8  # in a row that count as the same text; what a template puts between two messages is shorter
SHORT = 64  # above which a stretch is no mere number, and what stays alike between two stretches keeps them apart
LAST_FEW = 8  # at the end of a prompt that a continued conversation may lack: what templates put before an answer
BORDER = 3  # beside a change whose borders it may move
CONTEXT = 4  # on each side of a number that are looked at too, since a number or a month may be several tokens
LEAST_LOST = 32  # below which a loss is not worth a word
SAMPLED_FROM = 1024  # from which only every eighth run of a remembered prompt is looked up to see whether it is near

# Shares
SHARED = 0.5  # of the shorter prompt, that both have if they are one conversation
SHARED_AFTER = 0.25  # the same after the parting: conversations with one long system prompt share little there
SAME_CONTENT = 0.9  # of two stretches, that is the same if only its order changed
SUMMARY = 0.5  # of a long stretch, up to which what stands in its place is a summary of it, rather than another one

# A run's hash is a polynomial of its tokens, at an odd number with mixed bits.
_POWERS = np.array([pow(0x9E3779B97F4A7C15, place, 1 << 64) for place in range(RUN)], np.uint64)
_NUMBER = re.compile(
    r"(?P<number>\d+(?:[.,]\d+)*(?:(?:st|nd|rd|th)\b)?)|(?<![a-z])(?:(?P<half>[ap]\.?m)|(?P<day>"
    "january|february|march|april|may|june|july|august|september|october|november|december|"
    "jan|feb|mar|apr|jun|jul|aug|sept|sep|oct|nov|dec|"
    "monday|tuesday|wednesday|thursday|friday|saturday|sunday|mon|tues|tue|wed|thurs|thur|thu|fri|sat|sun"
    "))(?![a-z])",
    re.IGNORECASE,
)


class _Gap(NamedTuple):
    """A stretch that differs, and how many tokens are alike after it."""

    old: slice
    new: slice
    goes_on: int


def find_change(
    prompt: Tokens, remembered: Sequence[Tokens], text: Callable[[Tokens], str], *, already: int = 0
) -> Reread | None:
    """Find what a client changed since the remembered prompt that is nearest, of equally near ones the newest.

    `remembered` has the newest first; `text` gets single stretches, not whole words. The change comes with all its
    words and without the time that it cost. Lost are tokens after the parting, but for the first `already`, which the
    cache did supply, that stand in the remembered prompt after the parting too, at any place, in runs of `RUN` or more.
    None if no remembered prompt looks like the same conversation, if the prompt continues one, or if less than
    `LEAST_LOST` are lost.
    """
    old = _nearest(prompt, remembered)
    if old is None:
        return None
    at = common_prefix(prompt, old)
    known = _stands_in(prompt[at:], old[at:])
    most = len(old) - at
    known_tokens, lost_tokens = (min(int(known[begin:].sum()), most) for begin in (0, max(0, already - at)))
    if lost_tokens < LEAST_LOST or known_tokens < SHARED_AFTER * min(most, len(prompt) - at):
        return None
    kind, last = _classify(old, prompt, at, known_tokens, text)
    return Reread(kind, at, lost_tokens, 0.0, was=text(old[at : last.old.stop]), now=text(prompt[at : last.new.stop]))


def _nearest(prompt: Tokens, remembered: Sequence[Tokens]) -> Tokens | None:
    """The remembered prompt that shares most runs with this one, if it looks like the same conversation.

    One that the prompt continues rules out all that part from it sooner: then those are other branches.
    """
    runs = np.sort(_runs(prompt))
    continued = 0
    alike: list[tuple[float, int, Tokens]] = []
    for earlier in remembered:
        at, shorter = common_prefix(prompt, earlier), min(len(prompt), len(earlier))
        if at >= shorter - LAST_FEW:
            continued = max(continued, at)
            continue
        some = _runs(earlier, 1 if len(earlier) < SAMPLED_FROM else RUN)
        # Sorted once and searched: this prompt is compared with many.
        found = runs[np.minimum(np.searchsorted(runs, some), len(runs) - 1)] == some
        shared = min(float(found.mean()) * (len(earlier) - RUN + 1), len(runs))
        if shared >= SHARED * (shorter - RUN + 1):
            alike.append((shared, at, earlier))
    near = (one for one in alike if one[1] >= continued)
    return max(near, key=lambda one: one[:2], default=(0, 0, None))[2]


def _runs(tokens: Tokens, step: int = 1) -> NDArray[np.uint64]:
    """A hash of every run of `RUN` tokens, or of every so many-th, in the order of their first tokens."""
    if len(tokens) < RUN:
        return np.empty(0, np.uint64)
    return sliding_window_view(tokens.astype(np.uint64), RUN)[::step] @ _POWERS


def _stands_in(tokens: Tokens, other: Tokens) -> NDArray[np.bool_]:
    """Which tokens are part of a run that the other has too, at any place."""
    starts = np.isin(_runs(tokens), _runs(other))
    known = np.zeros(len(tokens), np.bool_)
    for place in range(RUN):
        known[place : place + len(starts)] |= starts
    return known


def _gaps(old: Tokens, new: Tokens, at: int) -> list[_Gap]:
    """What differs from where both prompts part; the last one is their ends: new turns, another question."""
    gaps: list[_Gap] = []
    i = j = at
    for of_old, of_new in _in_order(old[at:], new[at:]):
        next_i, next_j = at + of_old, at + of_new
        if next_i >= i and next_j >= j:
            back = common_prefix(old[i:next_i][::-1], new[j:next_j][::-1])
            on = common_prefix(old[next_i:], new[next_j:])
            gaps.append(_Gap(slice(i, next_i - back), slice(j, next_j - back), back + on))
            i, j = next_i + on, next_j + on
    return [*gaps, _Gap(slice(i, len(old)), slice(j, len(new)), 0)]


def _in_order(old: Tokens, new: Tokens) -> list[tuple[int, int]]:
    """Places of runs that each has once, as many as stand in the same order in both: a longest rising subsequence."""
    singles = [np.unique(_runs(tokens), return_index=True, return_counts=True) for tokens in (old, new)]
    (old_runs, old_at), (new_runs, new_at) = ((runs[count == 1], at[count == 1]) for runs, at, count in singles)
    _, of_old, of_new = np.intersect1d(old_runs, new_runs, assume_unique=True, return_indices=True)
    pairs = sorted(zip(new_at[of_new].tolist(), old_at[of_old].tolist(), strict=True))
    lowest: list[int] = []  # By length, the lowest place in the old prompt that a subsequence ends with.
    ranks: list[int] = []  # By pair, how many come before it in the longest one that it ends.
    for _, place in pairs:
        ranks.append(bisect_left(lowest, place))
        lowest[ranks[-1] : ranks[-1] + 1] = [place]
    found: list[tuple[int, int]] = []
    for (in_new, in_old), rank in zip(reversed(pairs), reversed(ranks), strict=True):
        if rank == len(lowest) - len(found) - 1:
            found.append((in_old, in_new))
    return found[::-1]


def _classify(
    old: Tokens, new: Tokens, at: int, known_tokens: int, text: Callable[[Tokens], str]
) -> tuple[ChangeKind, _Gap]:
    """The kind of a change, and the gap that it ends with."""
    *gaps, ends = _gaps(old, new, at)
    goes_on = sum(gap.goes_on for gap in gaps)
    # A difference that would have cost less than half of it does not name the change: there the talk itself went on.
    passed = accumulate((gap.goes_on for gap in gaps), initial=0)
    early = [gap for gap, tokens in zip(gaps, passed, strict=False) if 2 * tokens <= goes_on]
    kinds = [_kind(old, new, gap, text) for gap in early]
    resumes = bool(gaps) and 2 * goes_on >= known_tokens
    if resumes and set(kinds) == {"number"}:
        return "number", gaps[0]
    if (last := _reordered(old, new, [*gaps, ends], len(early))) is not None:
        return "reordered", last
    if not resumes:
        return "rewritten", ends
    # Several stretches may come or go, such as the reasoning of every turn; several replaced ones are a rewriting.
    if len(early) == 1 or set(kinds) in ({"inserted"}, {"removed"}):
        return kinds[0], gaps[0]
    if all(gap.goes_on < SHORT for gap in early[:-1]):
        return "replaced", early[-1]
    return "rewritten", gaps[-1]


def _kind(old: Tokens, new: Tokens, gap: _Gap, text: Callable[[Tokens], str]) -> ChangeKind:
    """What happened to one stretch, after which the old text goes on."""
    gone, came = old[gap.old], new[gap.new]
    if max(len(gone), len(came)) <= SHORT:
        sides = (old, gap.old), (new, gap.new)
        was, now = (text(tokens[max(0, at.start - CONTEXT) : at.stop + CONTEXT]) for tokens, at in sides)
        if was != now and _without_numbers(was) == _without_numbers(now):
            return "number"
    kind: ChangeKind
    kind, shorter, longer = ("inserted", gone, came) if len(gone) < len(came) else ("removed", came, gone)
    if len(shorter) <= BORDER and len(shorter) < len(longer):
        # Text that comes or goes moves the borders of tokens beside it: what is left stands around it as text.
        whole, rest = text(longer), text(shorter)
        if any(whole.startswith(rest[:cut]) and whole.endswith(rest[cut:]) for cut in range(len(rest) + 1)):
            return kind
    return "rewritten" if len(gone) > SHORT and SUMMARY * len(gone) >= len(came) else "replaced"


def _without_numbers(text: str) -> str:
    """The text with one stand-in for all numbers, and one for all names of months and days."""
    return _NUMBER.sub(lambda found: f"<{found.lastgroup}>", text)


def _reordered(old: Tokens, new: Tokens, gaps: Sequence[_Gap], least: int) -> _Gap | None:
    """The gap that a change of order ends with; None if what went and what came are not the same."""
    # What moved may come back late, and the talk may go on otherwise after that: the tokens of all gaps so far count,
    # once there are enough of them.
    gone: Counter[int] = Counter()
    came: Counter[int] = Counter()
    for count, gap in enumerate(gaps[:-1], 1):
        gone.update(old[gap.old].tolist())
        came.update(new[gap.new].tolist())
        wanted = max(RUN, SAME_CONTENT * max(gone.total(), came.total()))
        if count >= least and min(gone.total(), came.total()) >= wanted and (gone & came).total() >= wanted:
            return gap
    # It may come back behind new turns too: there runs of tokens are looked up, for counts would find them anywhere.
    all_gone = np.concatenate([old[gap.old] for gap in gaps])
    all_came = np.concatenate([new[gap.new] for gap in gaps])
    moved = (_stands_in(all_gone, all_came), _stands_in(all_came[: came.total()], all_gone))
    same = len(all_gone) >= RUN and all(known.sum() >= SAME_CONTENT * len(known) for known in moved)
    return gaps[-1] if same else None
