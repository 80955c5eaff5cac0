"""What library calls cost on this machine: a second of measurements before the first request.

A cost model goes on learning from the calls that it schedules; this gives it something to begin with.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from legato.core.tokens import Tokens
from legato.engine.batch import Batch
from legato.engine.context import Context
from legato.scheduling.costs import Coefficients, CostModel, Work

SMALLEST_BATCH = 32
"""Tokens that every context takes in one call."""
CHUNKS = (16, 64, 8, 32)
"""Lengths of the chunks that are timed at each depth; most prompts are prefilled in such."""
FIRST_CHUNK = 16
DECODE_REPEATS = 3
MOST_SEQUENCES = 4
"""Sequences of the largest decode that is timed."""
JUMP = 256
"""Tokens between the first depth and the second; further ones double."""
ENOUGH_SHARE = 0.3
"""Share of the time limit after which no further depth is begun."""
OBSERVATIONS = 128
"""Calls that the fit is fed: each timed one several times, so that they outweigh the guess it begins with."""
SLOW_PATH = 4.0
"""A guess at what a pair costs in chunks below a tile, in pairs of a tile."""


@dataclass(frozen=True, slots=True)
class TimedCall:
    """A library call, and what it took."""

    work: Work
    took_s: float


def calibrate(
    context: Context, *, flash_tile: int, limit_s: float = 5.0, batch_tokens: int = SMALLEST_BATCH
) -> Coefficients:
    """Time some calls and fit what each unit of work costs: `time_calls`, then `fit`.

    Raises:
        EngineError: The library could not evaluate a call.
    """
    return fit(time_calls(context, limit_s=limit_s, batch_tokens=batch_tokens), flash_tile=flash_tile)


def time_calls(
    context: Context, *, limit_s: float, batch_tokens: int, chunks: Sequence[int] = CHUNKS
) -> list[TimedCall]:
    """Time chunks and decodes at several depths.

    Args:
        context: A fresh one; all its sequences are empty again afterwards.
        limit_s: Longest time to take. One chunk and one decode are timed however long they take.
        batch_tokens: Most tokens of one call, as the context was made; the library ends the process beyond that.
        chunks: Lengths of the chunks, in tokens; those beyond `batch_tokens` are left out.

    Raises:
        EngineError: The library could not evaluate a call.
    """
    timer = CallTimer(context, limit_s=limit_s, batch_tokens=batch_tokens)
    fitting = [chunk for chunk in chunks if chunk <= batch_tokens]
    try:
        timer.warm_up()
        timer.prefill(min(FIRST_CHUNK, batch_tokens))
        timer.decode(1)
        jump = JUMP
        while timer.time_depth(fitting) and timer.elapsed_s < ENOUGH_SHARE * limit_s and timer.deepen(jump):
            jump = max(JUMP, timer.depth)
    finally:
        timer.clear()
    return timer.calls


class CallTimer:
    """Times calls, each only if it will probably end before the limit.

    Args:
        context: A fresh one. Sequence 0 grows with each chunk; decodes use a few more.
        limit_s: Seconds from now.
        batch_tokens: Most tokens of one call.
    """

    def __init__(self, context: Context, *, limit_s: float, batch_tokens: int) -> None:
        self.calls: list[TimedCall] = []
        """Calls timed so far."""
        self.depth = 0
        """Tokens of sequence 0."""
        self._context = context
        self._batch = Batch(batch_tokens + MOST_SEQUENCES)
        self._batch_tokens = batch_tokens
        self._begun_s = time.perf_counter()
        self._limit_s = limit_s
        self._token_s = 0.0
        self._decode_s = 0.0
        random = np.random.default_rng(0)
        # What the tokens are makes no difference to a dense model; to one of experts, they should be of all kinds.
        size = max(1, min(context.cells_per_sequence, 1 << 16))
        self._tokens: Tokens = random.integers(0, context.model.vocabulary.size, size, dtype=np.int32)

    @property
    def elapsed_s(self) -> float:
        """Seconds since it was made."""
        return time.perf_counter() - self._begun_s

    def warm_up(self) -> None:
        """Make the library touch its weights and memory, untimed."""
        self._batch.clear()
        self._batch.add(0, self._tokens[:2], 0, want_logits=True)
        self._context.evaluate(self._batch)
        self._context.synchronize()
        self._context.remove(0)

    def prefill(self, tokens: int) -> float:
        """Prefill a chunk of sequence 0, and return its seconds."""
        start = self.depth
        self._batch.clear()
        self._batch.add(0, self._tokens[start : start + tokens], start, want_logits=False)
        took_s = self._evaluate(Work(chunks=((start, tokens),)))
        self.depth += tokens
        self._token_s = max(self._token_s, took_s / tokens)
        return took_s

    def decode(self, sequences: int) -> float:
        """Decode a token of each of the first sequences, whose depth must be that of sequence 0; returns seconds."""
        self._batch.clear()
        for sequence in range(sequences):
            self._batch.add_one(sequence, int(self._tokens[self.depth]), self.depth)
        took_s = self._evaluate(Work(depths=(self.depth,) * sequences))
        self.depth += 1
        self._decode_s = max(self._decode_s, took_s)
        return took_s

    def time_depth(self, chunks: Iterable[int]) -> bool:
        """Time chunks and decodes from the present depth on; False if there was no time or room for any."""
        before = len(self.calls)
        for tokens in chunks:
            if self._fits(tokens, self._token_s):
                self.prefill(tokens)
        for _ in range(DECODE_REPEATS):
            if self._fits(1, self._decode_s):
                self.decode(1)
        self._time_decode_of_several()
        return len(self.calls) > before

    def deepen(self, tokens: int) -> bool:
        """Prefill that many tokens in chunks as long as calls may be; False if there was no time or room."""
        wanted = self.depth + tokens
        while self.depth < wanted:
            chunk = min(self._batch_tokens, JUMP, wanted - self.depth)
            if not self._fits(chunk, self._token_s):
                return False
            self.prefill(chunk)
        return True

    def clear(self) -> None:
        """Empty the sequences."""
        for sequence in range(self._sequences):
            self._context.remove(sequence)

    @property
    def _sequences(self) -> int:
        return min(MOST_SEQUENCES, self._context.sequences)

    def _time_decode_of_several(self) -> None:
        for sequences in sorted({2, self._sequences}):
            if not 1 < sequences <= self._sequences or not self._fits(sequences * 2, self._decode_s):
                continue
            for other in range(1, sequences):
                self._context.remove(other)
                self._context.copy(0, other)
            # A copy may be carried out with the next call only: that one is not timed.
            self.decode(sequences)
            self.calls.pop()
            self.decode(sequences)

    def _fits(self, tokens: int, token_s: float) -> bool:
        """Whether there are cells for so many more tokens, and probably time."""
        return self.depth + tokens < len(self._tokens) and self.elapsed_s + tokens * token_s < self._limit_s

    def _evaluate(self, work: Work) -> float:
        begun_s = time.perf_counter()
        self._context.evaluate(self._batch)
        self._context.synchronize()
        took_s = time.perf_counter() - begun_s
        self.calls.append(TimedCall(work, took_s))
        return took_s


def fit(calls: Sequence[TimedCall], *, flash_tile: int) -> Coefficients:
    """The coefficients that calls speak for: at least one chunk and one decode.

    `flash_tile` is how many rows the attention kernel takes at once: 64 on a CPU with FlashAttention on, else 1.
    """
    decodes = [call for call in calls if call.work.depths]
    chunks = [call for call in calls if call.work.chunks]
    model = CostModel(_guess(decodes, chunks, flash_tile))
    for kind in (decodes, chunks):
        for call in itertools.islice(itertools.cycle(kind), OBSERVATIONS):
            model.observe(call.work, call.took_s)
    fitted = model.coefficients
    if flash_tile == 1:
        return msgspec.structs.replace(fitted, loose_pair_s=fitted.prefill_pair_s)
    return fitted


def _guess(decodes: Sequence[TimedCall], chunks: Sequence[TimedCall], flash_tile: int) -> Coefficients:
    """What typical proportions between the units make of a typical decode and of a typical token of a chunk."""
    decode_s = statistics.median(call.took_s / len(call.work.depths) for call in decodes)
    token_s = statistics.median(call.took_s / call.work.chunks[0][1] for call in chunks)
    pair_s = token_s / 6000
    return Coefficients(
        decode_call_s=0.9 * decode_s,
        decode_sequence_s=0.1 * decode_s,
        decode_depth_s=decode_s / 3000,
        prefill_call_s=token_s,
        prefill_token_s=token_s,
        prefill_pair_s=pair_s,
        loose_pair_s=SLOW_PATH * pair_s if flash_tile > 1 else pair_s,
        tile_rows=flash_tile,
    )
