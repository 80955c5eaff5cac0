"""Where one request's time went: load, queue, prefill, decode.

All instants are seconds of the machine's monotonic clock. The four parts are the differences between neighbouring
instants of one line, so that they add up to the whole by construction.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import nlargest
from itertools import pairwise

import msgspec

from legato.core.cache import Restored
from legato.core.calls import Call
from legato.core.causes import CauseTimes
from legato.core.timings import ChunkRead, Reread, Stall, Timings
from legato.telemetry.attribution import Stretch
from legato.telemetry.figures import milliseconds, per_second, percentile

LONGEST_STALLS = 20
"""Stalls that are kept of one answer."""
NOTHING_RESTORED = Restored(0, 0, "", 0.0, 0.0)


@dataclass(slots=True)
class Timeline:
    """The instants of one request, filled in as they pass."""

    arrived_s: float
    """The server had the request's head."""
    prompt_tokens: int = 0
    restored: Restored = NOTHING_RESTORED
    """The prompt's beginning, whose KV state was there already or was brought."""
    reread: Reread | None = None
    """Why what was remembered did not help, if that is known; without words."""
    load_s: float = 0.0
    """Part of the wait in which no model was ready (a duration)."""
    admitted_s: float | None = None
    """The engine gave it KV cells and began to read; None while it waits."""
    token_times_s: list[float] = field(default_factory=list)
    """When each token of the answer left the server."""
    ended_s: float | None = None
    """The answer ended."""
    gap_target_s: float = 0.1
    """Longest gap that its reader should see."""
    raised_gap_target_s: float = 0.0
    """What is possible at present, where the target is not because one step takes longer; 0 where it is."""
    highest_gap_target: tuple[float, int] = (0.0, 0)
    """The highest that it was raised to, s, and how many answers were being written then."""
    preemptions: int = 0
    """How often it gave its KV cells up to others."""
    requeued_s: float = 0.0
    """Part of the time before the first token in which it waited for KV cells again (a duration)."""
    behind: list[str] = field(default_factory=list)
    """Requests that were running or waiting when this one had to wait: public ids."""
    chunks: list[ChunkRead] = field(default_factory=list)
    """How the prompt was read."""
    longest_gap_s: float = 0.0
    stalls: list[Stall] = field(default_factory=list)
    """The longest ones, longest first."""
    stall_count: int = 0
    stalled_s: float = 0.0
    """All stalls added up."""
    prefill_parts: CauseTimes | None = None
    """Where the time from admission to the first token went."""
    decode_parts: CauseTimes = field(default_factory=CauseTimes)
    """Where the gaps went, added up."""
    _delivery_s: float = 0.0
    """How long the latest token took from the engine to leaving the server."""
    _gap_allowed_s: float = 0.0
    """What it was raised to at any time since the latest token."""
    _preempted_s: float | None = None
    """Since when it waits for KV cells again; None while it has them, or never had any."""
    _requeued: bool = False
    """That wait counts as queue, because there was no token yet."""
    _prefill_from: int = 0
    """First of the chunks that it has read since it last got KV cells."""
    _reads_again: bool = False
    """It lost the KV state of its prompt and has not written since."""

    @property
    def cached_tokens(self) -> int:
        """Prompt tokens that did not have to be read."""
        return self.restored.tokens

    @property
    def holds_cells(self) -> bool:
        """Whether it has KV cells: it does not before its admission, nor while it is preempted."""
        return self.admitted_s is not None and self._preempted_s is None

    @property
    def latest_chunks(self) -> list[ChunkRead]:
        """The chunks that it has read since it last got KV cells."""
        return self.chunks[self._prefill_from :]

    @property
    def read_tokens(self) -> int:
        """Prompt tokens whose KV state is there."""
        if self._preempted_s is not None:
            return 0
        if self.token_times_s and not self._reads_again:
            return self.prompt_tokens
        if chunks := self.latest_chunks:
            return min(self.prompt_tokens, chunks[-1].start + chunks[-1].tokens)
        return 0 if self._reads_again else self.cached_tokens

    @property
    def stall_from_s(self) -> float:
        """A gap longer than this is a stall: the target, or what is possible instead."""
        return max(self.gap_target_s, self.raised_gap_target_s)

    def admit(self, at_s: float) -> None:
        """It was given KV cells, for the first time or again."""
        if self.admitted_s is None:
            self.admitted_s = at_s
        elif self._preempted_s is not None:
            if self._requeued:
                self.requeued_s += max(0.0, at_s - self._preempted_s)
            self._preempted_s = None

    def restore(self, restored: Restored) -> None:
        """The KV state of its prompt's beginning was there, or was brought."""
        if not self.token_times_s:  # else it lost its cells and has them again: nothing of its first prefill was saved
            self.restored = restored

    def preempt(self, at_s: float, *, answering: bool) -> None:
        """It gave its KV cells up, and waits for new ones.

        If the engine has written a token of it (`answering`), the wait is a gap in the answer, and counts as decode. It
        counts as queue otherwise.
        """
        self.preemptions += 1
        self._preempted_s = at_s
        self._requeued = not answering
        self._prefill_from = len(self.chunks)
        self._reads_again = True

    def raise_gap_target(self, possible_s: float, answers: int) -> None:
        """With so many answers being written, one step alone takes longer than the target, or no longer does.

        From now on a target of `possible_s` can be kept; 0 if its own can. A gap is judged by the longest target of
        its time.
        """
        self.raised_gap_target_s = possible_s
        self._gap_allowed_s = max(self._gap_allowed_s, possible_s)
        if possible_s > self.highest_gap_target[0]:
            self.highest_gap_target = possible_s, answers

    def add_token(self, left_s: float, stretch: Stretch | None) -> None:
        """A token left the server.

        The stretch is what the engine did since the token before, or since admission; None if that is unknown.
        """
        gap_s = left_s - self.token_times_s[-1] if self.token_times_s else None
        allowed_s, self._gap_allowed_s = max(self.gap_target_s, self._gap_allowed_s), self.raised_gap_target_s
        self.token_times_s.append(left_s)
        self._reads_again = False
        self.longest_gap_s = max(self.longest_gap_s, gap_s or 0.0)
        if stretch is None:
            return
        delivery_s = left_s - stretch.until_s
        if gap_s is None:
            self.prefill_parts = stretch.delivered(delivery_s)
        else:
            parts = stretch.delivered(delivery_s - self._delivery_s)
            self.decode_parts += parts
            if gap_s > allowed_s:
                self._add_stall(gap_s, left_s, parts)
        self._delivery_s = delivery_s

    def add_chunk(self, call: Call, start: int, tokens: int) -> None:
        """A call read a part of the prompt."""
        share = tokens / max(1, sum(chunk.tokens for chunk in call.chunks)) if len(call.chunks) > 1 else 1.0
        took_ms = milliseconds(call.took_s * share)
        if tokens == 0 and self.chunks:  # the end of a chunk whose tokens were all told with its beginning
            last = self.chunks[-1]
            self.chunks[-1] = msgspec.structs.replace(last, took_ms=round(last.took_ms + took_ms, 3))
            return
        self.chunks.append(ChunkRead(milliseconds(call.begun_s - self.arrived_s), took_ms, start, tokens))

    def _add_stall(self, gap_s: float, left_s: float, parts: CauseTimes) -> None:
        self.stall_count += 1
        self.stalled_s += gap_s
        stall = Stall(milliseconds(left_s - gap_s - self.arrived_s), milliseconds(gap_s), parts.largest, parts)
        self.stalls = nlargest(LONGEST_STALLS, [*self.stalls, stall], key=lambda stall: stall.gap_ms)

    def timings(self) -> Timings:
        """The measures of an ended request. What never came counts as lasting until the end."""
        latest = max([self.arrived_s, self.admitted_s or self.arrived_s, *self.token_times_s[-1:]])
        ended = latest if self.ended_s is None else self.ended_s
        admitted = ended if self.admitted_s is None else min(max(self.admitted_s, self.arrived_s), ended)
        first = min(max(self.token_times_s[0], admitted), ended) if self.token_times_s else ended
        load = min(self.load_s, admitted - self.arrived_s)
        waits_again = max(0.0, first - self._preempted_s) if self._preempted_s is not None and self._requeued else 0.0
        requeued = min(self.requeued_s + waits_again, first - admitted)
        prefill = first - admitted - requeued
        raised_s, raised_at_answers = self.highest_gap_target
        raised = raised_s > self.gap_target_s
        prefill_tokens = self.prompt_tokens - self.cached_tokens if self.admitted_s is not None else 0
        tokens = len(self.token_times_s)
        gaps = sorted(b - a for a, b in pairwise(self.token_times_s))
        return Timings(
            load_ms=milliseconds(load),
            queue_ms=milliseconds(admitted - self.arrived_s - load + requeued),
            prefill_ms=milliseconds(prefill),
            prefill_tokens=prefill_tokens,
            cached_tokens=self.cached_tokens,
            cached_in=self.restored.tier if self.cached_tokens else None,
            recall_ms=milliseconds(self.restored.took_s),
            saved_ms=milliseconds(max(0.0, self.restored.prefill_s - self.restored.took_s)),
            reread=self.reread,
            prefill_tokens_per_second=per_second(prefill_tokens, prefill) if tokens else None,
            ttft_ms=milliseconds(first - self.arrived_s) if tokens else None,
            decode_ms=milliseconds(ended - first),
            decode_tokens=tokens,
            decode_tokens_per_second=per_second(tokens - 1, self.token_times_s[-1] - first) if tokens > 1 else None,
            itl_p50_ms=milliseconds(percentile(gaps, 50)) if gaps else None,
            itl_p95_ms=milliseconds(percentile(gaps, 95)) if gaps else None,
            itl_max_ms=milliseconds(gaps[-1]) if gaps else None,
            total_ms=milliseconds(ended - self.arrived_s),
            prefill_parts=self.prefill_parts,
            decode_parts=self.decode_parts.rounded() if gaps and self.prefill_parts else None,
            stalls=self.stall_count,
            stalled_ms=milliseconds(self.stalled_s),
            gap_target_ms=milliseconds(self.gap_target_s),
            raised_gap_target_ms=milliseconds(raised_s) if raised else None,
            raised_at_answers=raised_at_answers if raised else 0,
            preemptions=self.preemptions,
        )
