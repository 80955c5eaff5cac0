"""Charges every moment of every request to a cause, from the engine's calls alone.

Sums run over all calls; what a request waited for between two instants is the difference of the sums, less its own
share. A call so costs a few additions, however many requests are waiting.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from dataclasses import dataclass, field
from itertools import takewhile

import msgspec

from legato.core.calls import Call
from legato.core.causes import Blame, CauseTimes, merged

ALONE_SAMPLES = 31
"""Latest calls that decoded for one answer alone: their median is what an answer's own token costs."""
REMEMBERED_CHUNKS = 4096
"""Latest chunks that a gap can be blamed on."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """What one request waited for between two instants of the engine."""

    until_s: float
    causes: CauseTimes
    """They add up to it; delivery comes after it."""

    def delivered(self, delivery_s: float) -> CauseTimes:
        """The same with what the way from the engine to the network added, each rounded to a microsecond."""
        return msgspec.structs.replace(self.causes, delivery_ms=delivery_s * 1000).rounded()


@dataclass(slots=True)
class _Sums:
    """Seconds so far: of all calls, or of one request's share in them."""

    decode_s: float = 0.0
    prefill_s: float = 0.0
    engine_s: float = 0.0

    def __sub__(self, other: _Sums) -> _Sums:
        return _Sums(self.decode_s - other.decode_s, self.prefill_s - other.prefill_s, self.engine_s - other.engine_s)


@dataclass(slots=True)
class _Account:
    """One admitted request."""

    name: str
    since_s: float
    """Where its present stretch began; infinity while it waits for KV cells again."""
    all_then: _Sums
    """The sums over all calls at that instant."""
    own: _Sums = field(default_factory=_Sums)
    """Its own share since then."""
    before: CauseTimes | None = None
    """What it had waited for when it last gave its KV cells up, before its first token; None if it has not."""


class Attribution:
    """Takes the engine's calls in their order, and says what each request waited for.

    Requests go by the engine's numbers; instants are seconds of the engine's clock.
    """

    def __init__(self) -> None:
        self._all = _Sums()
        self._accounts: dict[int, _Account] = {}
        self._chunks: deque[tuple[float, int, Blame]] = deque(maxlen=REMEMBERED_CHUNKS)
        """When each was read to its end, whose it is, and the blame for it."""
        self._alone: deque[float] = deque(maxlen=ALONE_SAMPLES)
        self._alone_s = 0.0
        """Their median; 0 until there are any."""
        self._last_end_s = math.inf
        """When the latest call ended; until there is one, when the first request was admitted."""

    def admit(self, request: int, name: str, at_s: float) -> None:
        """A request has KV cells from now on; `name` is what others' blame calls it."""
        if self._last_end_s == math.inf:
            self._last_end_s = at_s
        self._accounts[request] = _Account(name, at_s, self._sums_at(at_s))

    def pause(self, request: int, at_s: float) -> None:
        """A request gave its KV cells up before its first token: until `resume` it waits in the queue, for nobody."""
        if account := self._accounts.get(request):
            account.before = self._causes(request, account, at_s)
            account.since_s = math.inf

    def resume(self, request: int, at_s: float) -> None:
        """A paused request has KV cells again."""
        account = self._accounts.get(request)
        if account is not None and account.since_s == math.inf:
            self._accounts[request] = _Account(account.name, at_s, self._sums_at(at_s), before=account.before)

    def forget(self, request: int) -> None:
        """A request has ended."""
        self._accounts.pop(request, None)

    def reset(self) -> None:
        """A new engine begins: nothing is running, and nobody waited for it in between."""
        self._accounts.clear()
        self._last_end_s = math.inf

    def call(self, call: Call) -> None:
        """Take the next call."""
        self._all.engine_s += max(0.0, call.begun_s - self._last_end_s)
        self._last_end_s = call.ended_s
        decode_s = self._decode_share(call)
        self._all.decode_s += decode_s
        self._all.prefill_s += call.took_s - decode_s
        if call.decoded:
            self._charge_decodes(call, decode_s)
        self._charge_chunks(call, call.took_s - decode_s)

    def stretch(self, request: int, until_s: float) -> Stretch | None:
        """What a request waited for since its admission, or since this was asked last; None if it is unknown here.

        It ends with the latest call, at `until_s`.
        """
        account = self._accounts.get(request)
        if account is None:
            return None
        self._accounts[request] = _Account(account.name, until_s, self._sums_at(until_s))
        return Stretch(until_s, self._causes(request, account, until_s))

    def _causes(self, request: int, account: _Account, until_s: float) -> CauseTimes:
        """What a request waited for in its present stretch until then, and before it gave its KV cells up."""
        own, passed = account.own, self._sums_at(until_s) - account.all_then
        others_prefill_s = max(0.0, passed.prefill_s - own.prefill_s)
        # Whose chunks were read meanwhile, beside its own.
        latest = takewhile(lambda chunk: chunk[0] > account.since_s, reversed(self._chunks))
        causes = CauseTimes(
            own_decode_ms=own.decode_s * 1000,
            others_decode_ms=max(0.0, passed.decode_s - own.decode_s) * 1000,
            own_prefill_ms=own.prefill_s * 1000,
            others_prefill_ms=others_prefill_s * 1000,
            engine_ms=max(0.0, passed.engine_s) * 1000,
            blamed=merged(blame for _, other, blame in latest if other != request) if others_prefill_s > 0 else [],
        )
        return causes if account.before is None else account.before + causes

    def _sums_at(self, at_s: float) -> _Sums:
        """The sums at an instant after the latest call."""
        since_last_s = max(0.0, at_s - self._last_end_s)
        return _Sums(self._all.decode_s, self._all.prefill_s, self._all.engine_s + since_last_s)

    def _decode_share(self, call: Call) -> float:
        """Which part of a call went into decoding: of one that also reads, what decoding would have taken alone."""
        took_s = call.took_s
        if not call.chunks:
            if len(call.decoded) == 1:
                self._alone.append(took_s)
                self._alone_s = statistics.median(self._alone)
            return took_s
        if not call.decoded:
            return 0.0
        rows = len(call.decoded) + sum(chunk.tokens for chunk in call.chunks)
        return min(took_s, max(self._alone_s, took_s * len(call.decoded) / rows))

    def _charge_decodes(self, call: Call, decode_s: float) -> None:
        answers = len(call.decoded)
        own_s = min(decode_s, self._alone_s) if self._alone_s and answers > 1 else decode_s / answers
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
                self._chunks.append((call.ended_s, chunk.request, Blame(account.name, chunk.tokens, took_s * 1000)))
