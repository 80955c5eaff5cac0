"""Charges every moment of every request to a cause, from the engine's calls alone.

Sums run over all calls; what a request waited for between two instants is the difference of the sums, less its own
share. A call so costs a few additions, however many requests are waiting.
"""

from __future__ import annotations

import statistics
from collections import deque
from dataclasses import dataclass, field

from legato.core.calls import Call
from legato.core.causes import Blame, CauseTimes

ALONE_SAMPLES = 31
"""Latest calls that decoded for one answer alone: their median is what an answer's own token costs."""
REMEMBERED_CHUNKS = 4096
"""Latest chunks that a gap can be blamed on."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """What one request waited for between two instants of the engine. All but `until_s` are seconds, and add up."""

    until_s: float
    own_decode_s: float
    others_decode_s: float
    own_prefill_s: float
    others_prefill_s: float
    engine_s: float
    blamed: tuple[Blame, ...] = ()
    """Whose prompts `others_prefill_s` was spent on, longest first."""

    def parts(self, delivery_s: float = 0.0) -> CauseTimes:
        """The same in ms, with what the way from the engine to the network added."""
        return CauseTimes(
            own_decode_ms=round(self.own_decode_s * 1000, 3),
            others_decode_ms=round(self.others_decode_s * 1000, 3),
            own_prefill_ms=round(self.own_prefill_s * 1000, 3),
            others_prefill_ms=round(self.others_prefill_s * 1000, 3),
            engine_ms=round(self.engine_s * 1000, 3),
            delivery_ms=round(delivery_s * 1000, 3),
            blamed=list(self.blamed),
        )


@dataclass(slots=True)
class _Sums:
    """Seconds so far: of all calls, or of one request's share in them."""

    decode_s: float = 0.0
    prefill_s: float = 0.0
    engine_s: float = 0.0


@dataclass(slots=True)
class _Account:
    """One admitted request."""

    name: str
    since_s: float
    """Where its present stretch began."""
    all_then: _Sums
    """The sums over all calls at that instant."""
    own: _Sums = field(default_factory=_Sums)
    """Its own share since then."""
    paused: tuple[float, _Sums] | None = None
    """While it waits for KV cells again: since when, and the sums over all calls at that instant."""
    pauses: list[tuple[float, float]] = field(default_factory=list)
    """Waits for KV cells since then: from and to, s."""


@dataclass(frozen=True, slots=True)
class _ReadChunk:
    """A chunk that was read, for blame."""

    ended_s: float
    request: int
    name: str
    tokens: int
    took_s: float


class Attribution:
    """Takes the engine's calls in their order, and says what each request waited for."""

    def __init__(self) -> None:
        self._all = _Sums()
        self._accounts: dict[int, _Account] = {}
        self._chunks: deque[_ReadChunk] = deque(maxlen=REMEMBERED_CHUNKS)
        self._alone: deque[float] = deque(maxlen=ALONE_SAMPLES)
        self._alone_s: float | None = None
        self._last_end_s: float | None = None

    def admit(self, request: int, name: str, at_s: float) -> None:
        """A request has KV cells from now on.

        Args:
            request: The engine's number of it.
            name: What others' blame calls it.
            at_s: When.
        """
        if self._last_end_s is None:
            self._last_end_s = at_s
        self._accounts[request] = _Account(name, at_s, self._sums_at(at_s))

    def pause(self, request: int, at_s: float) -> None:
        """A request gave its KV cells up before its first token: until `resume` it waits in the queue, for nobody.

        Args:
            request: The engine's number of it.
            at_s: When.
        """
        if account := self._accounts.get(request):
            account.paused = at_s, self._sums_at(at_s)

    def resume(self, request: int, at_s: float) -> None:
        """A paused request has KV cells again.

        Args:
            request: The engine's number of it.
            at_s: When.
        """
        account = self._accounts.get(request)
        if account is None or account.paused is None:
            return
        paused_s, then = account.paused
        now, all_then = self._sums_at(at_s), account.all_then
        # What went on meanwhile is moved before the stretch: the stretch has as much less of it.
        account.all_then = _Sums(
            all_then.decode_s + now.decode_s - then.decode_s,
            all_then.prefill_s + now.prefill_s - then.prefill_s,
            all_then.engine_s + now.engine_s - then.engine_s,
        )
        account.pauses.append((paused_s, at_s))
        account.paused = None

    def forget(self, request: int) -> None:
        """A request has ended."""
        self._accounts.pop(request, None)

    def reset(self) -> None:
        """A new engine begins: nothing is running, and nobody waited for it in between."""
        self._accounts.clear()
        self._last_end_s = None

    def call(self, call: Call) -> None:
        """Take the next call."""
        took_s = call.ended_s - call.begun_s
        if self._last_end_s is not None:
            self._all.engine_s += max(0.0, call.begun_s - self._last_end_s)
        self._last_end_s = call.ended_s
        decode_s = self._decode_share(call, took_s)
        self._all.decode_s += decode_s
        self._all.prefill_s += took_s - decode_s
        if call.decoded:
            self._charge_decodes(call, decode_s)
        if call.chunks:
            self._charge_chunks(call, took_s - decode_s)

    def stretch(self, request: int, until_s: float) -> Stretch | None:
        """What a request waited for since its admission, or since the last time this was asked.

        Args:
            request: The engine's number of it.
            until_s: The end of the latest call.

        Returns:
            None if the request is unknown here.
        """
        account = self._accounts.get(request)
        if account is None:
            return None
        now = self._sums_at(until_s)
        own, then = account.own, account.all_then
        others_prefill_s = max(0.0, now.prefill_s - then.prefill_s - own.prefill_s)
        result = Stretch(
            until_s=until_s,
            own_decode_s=own.decode_s,
            others_decode_s=max(0.0, now.decode_s - then.decode_s - own.decode_s),
            own_prefill_s=own.prefill_s,
            others_prefill_s=others_prefill_s,
            engine_s=max(0.0, now.engine_s - then.engine_s),
            blamed=self._blame(request, account) if others_prefill_s > 0 else (),
        )
        account.since_s, account.all_then, account.own = until_s, now, _Sums()
        account.pauses.clear()
        return result

    def _sums_at(self, at_s: float) -> _Sums:
        """The sums at an instant after the latest call."""
        since_last_s = 0.0 if self._last_end_s is None else max(0.0, at_s - self._last_end_s)
        return _Sums(self._all.decode_s, self._all.prefill_s, self._all.engine_s + since_last_s)

    def _decode_share(self, call: Call, took_s: float) -> float:
        """Which part of a call went into decoding: of one that also reads, what decoding would have taken alone."""
        if not call.chunks:
            if len(call.decoded) == 1:
                self._alone.append(took_s)
                self._alone_s = statistics.median(self._alone)
            return took_s
        if not call.decoded:
            return 0.0
        rows = len(call.decoded) + sum(chunk.tokens for chunk in call.chunks)
        by_rows_s = took_s * len(call.decoded) / rows
        return by_rows_s if self._alone_s is None else min(took_s, max(self._alone_s, by_rows_s))

    def _charge_decodes(self, call: Call, decode_s: float) -> None:
        answers = len(call.decoded)
        if answers == 1:
            own_s = decode_s
        elif self._alone_s is None:
            own_s = decode_s / answers
        else:
            own_s = min(decode_s, self._alone_s)
        for request in call.decoded:
            if account := self._accounts.get(request):
                account.own.decode_s += own_s

    def _charge_chunks(self, call: Call, prefill_s: float) -> None:
        tokens = sum(chunk.tokens for chunk in call.chunks)
        for chunk in call.chunks:
            # Slices of an interrupted call may be too short for a token.
            took_s = prefill_s * chunk.tokens / tokens if tokens else prefill_s / len(call.chunks)
            if account := self._accounts.get(chunk.request):
                account.own.prefill_s += took_s
                self._chunks.append(_ReadChunk(call.ended_s, chunk.request, account.name, chunk.tokens, took_s))

    def _blame(self, request: int, account: _Account) -> tuple[Blame, ...]:
        """Whose chunks were read in a request's present stretch, beside its own."""
        tokens: dict[str, int] = {}
        ms: dict[str, float] = {}
        for chunk in reversed(self._chunks):
            if chunk.ended_s <= account.since_s:
                break
            paused = any(begin < chunk.ended_s <= end for begin, end in account.pauses)
            if chunk.request != request and not paused:
                tokens[chunk.name] = tokens.get(chunk.name, 0) + chunk.tokens
                ms[chunk.name] = ms.get(chunk.name, 0.0) + chunk.took_s * 1000
        return tuple(Blame(name, tokens[name], ms[name]) for name in sorted(ms, key=ms.__getitem__, reverse=True))
