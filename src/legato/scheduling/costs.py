"""What a library call costs: predicted from what is in it, corrected by what calls really took.

The prediction is a product. The *shape* is a sum of unit costs (per call, per token, per pair of a token and one that
it attends to) and is fitted to many calls, so that it holds at depths and lengths never seen. The *pace* is the median
of what the latest calls took over their shape: it follows a machine that slows down within a few calls, and one hiccup
does not move it.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import mul

import msgspec
import numpy as np

SAMPLES = 256
"""Latest calls of a kind that the shape is fitted to."""
REFIT_EVERY = 16
"""Calls of a kind between two fits."""
PACE_SAMPLES = 9
"""Latest calls of a kind whose median is the pace: a lasting change is followed after five."""
OUTLIER = 0.2
"""Relative error from which a call counts for less in a fit (Huber's weights)."""
OTHER_PACE = 1.5
"""A pace beyond this, or below its inverse, is a machine in another state: older calls are forgotten."""
DESCENTS = 50
"""Rounds of coordinate descent of a fit."""
TRUST_IN_PRIOR = 4.0
"""Calls that the costs known before count for, where the new calls do not tell them apart."""

Features = tuple[float, ...]
"""How many units of each kind of work are in a call."""


class Coefficients(msgspec.Struct, frozen=True):
    """Seconds for each unit of work, of one model on one machine under one set of engine settings."""

    decode_call_s: float
    """A call that decodes: mostly reading the weights once."""
    decode_sequence_s: float
    """Each sequence in it."""
    decode_depth_s: float
    """Each earlier token of each sequence."""
    prefill_call_s: float
    """A call that reads prompt tokens."""
    prefill_token_s: float
    """Each token that it reads."""
    prefill_pair_s: float
    """Each pair of a token and an earlier one that it attends to."""
    prefill_depth_s: float = 0.0
    """Each token before the chunk: a call reads its KV state once, however many tokens attend to it."""
    loose_pair_s: float = 0.0
    """Such a pair where the chunk is shorter than a tile; the same as the other if there are no tiles."""
    tile_rows: int = 1
    """Tokens that the attention kernel takes at once: a chunk's last tile costs as much as a full one."""

    def scaled(self, by: float) -> Coefficients:
        """The costs on a machine that takes so many times as long."""
        costs = {name: by * value for name, value in msgspec.structs.asdict(self).items() if name.endswith("_s")}
        return msgspec.structs.replace(self, **costs)


@dataclass(frozen=True, slots=True)
class Work:
    """What is in one library call."""

    depths: tuple[int, ...] = ()
    """Of each sequence that decodes, its tokens so far."""
    chunks: tuple[tuple[int, int], ...] = ()
    """Of each chunk, where it starts and how many tokens it has."""
    interrupting: bool = False
    """It decodes while a call that reads is interrupted, whose threads and caches are in the way."""


class CostModel:
    """Predicts calls, and learns from them.

    Args:
        coefficients: What is known beforehand; it is trusted where calls say nothing else.
        interrupting: A guess at how many times as long a decode takes that interrupts.
    """

    def __init__(self, coefficients: Coefficients, *, interrupting: float = 1.2) -> None:
        self._tile = max(1, coefficients.tile_rows)
        c = coefficients
        decode = (c.decode_call_s, c.decode_sequence_s, c.decode_depth_s)
        self._decode = _Kind(decode)
        self._interrupting = _Kind(tuple(interrupting * cost_s for cost_s in decode))
        self._prefill = _Kind(
            (c.prefill_call_s, c.prefill_depth_s, c.prefill_token_s, c.prefill_pair_s, c.loose_pair_s)
        )
        self._joined_ratios: deque[float] = deque(maxlen=PACE_SAMPLES)

    @property
    def tile_rows(self) -> int:
        """Tokens that the attention kernel takes at once."""
        return self._tile

    def predict(self, work: Work) -> float:
        """Seconds that a call will take."""
        decode_s = self.decode_s(work.depths, interrupting=work.interrupting)
        prefill_s = sum(self._prefill.predict(self._chunk_features(*chunk)) for chunk in work.chunks)
        if work.depths and work.chunks and self._joined_ratios:
            return (decode_s + prefill_s) * statistics.median(self._joined_ratios)
        return decode_s + prefill_s

    def decode_s(self, depths: Sequence[int], *, interrupting: bool = False) -> float:
        """Seconds that decoding sequences of these depths takes.

        Args:
            depths: Of each, its tokens so far.
            interrupting: While a call that reads is interrupted.
        """
        kind = self._interrupting if interrupting else self._decode
        return kind.predict(_decode_features(depths)) if depths else 0.0

    def chunk_s(self, start: int, tokens: int) -> float:
        """Seconds that reading a chunk takes."""
        return self._prefill.predict(self._chunk_features(start, tokens))

    def longest_chunk(self, start: int, budget_s: float, most: int) -> int:
        """The longest chunk from `start` that takes at most `budget_s`, 0 if none does.

        Args:
            start: Position of its first token.
            budget_s: Seconds.
            most: Tokens that it may have.
        """
        if most >= self._tile > 1 and self.chunk_s(start, self._tile) <= budget_s:
            tiles = _largest(most // self._tile, lambda n: self.chunk_s(start, n * self._tile) <= budget_s)
            if tiles == most // self._tile and self.chunk_s(start, most) <= budget_s:
                return most
            return tiles * self._tile
        short = min(most, self._tile - 1) if self._tile > 1 else most
        return _largest(short, lambda n: self.chunk_s(start, n) <= budget_s)

    def observe(self, work: Work, took_s: float) -> None:
        """Learn from a call.

        Args:
            work: What was in it.
            took_s: Seconds that it took.
        """
        if work.depths and work.chunks:
            alone_s = self.decode_s(work.depths) + sum(self.chunk_s(*chunk) for chunk in work.chunks)
            if alone_s > 0:
                self._joined_ratios.append(took_s / alone_s)
        elif work.depths:
            kind = self._interrupting if work.interrupting else self._decode
            kind.observe(_decode_features(work.depths), took_s)
        elif len(work.chunks) == 1:
            self._prefill.observe(self._chunk_features(*work.chunks[0]), took_s)

    @property
    def coefficients(self) -> Coefficients:
        """What has been learned, at the present pace."""
        call_s, sequence_s, depth_s = self._decode.unit_costs
        read_s, start_s, token_s, pair_s, loose_s = self._prefill.unit_costs
        return Coefficients(
            decode_call_s=call_s,
            decode_sequence_s=sequence_s,
            decode_depth_s=depth_s,
            prefill_call_s=read_s,
            prefill_token_s=token_s,
            prefill_pair_s=pair_s,
            prefill_depth_s=start_s,
            loose_pair_s=loose_s,
            tile_rows=self._tile,
        )

    def _chunk_features(self, start: int, tokens: int) -> Features:
        if self._tile == 1:
            return (1.0, start, tokens, tokens * (start + tokens / 2), 0.0)
        if tokens < self._tile:
            return (1.0, start, tokens, 0.0, tokens * (start + tokens / 2))
        rows = -(-tokens // self._tile) * self._tile
        return (1.0, start, tokens, rows * (start + tokens / 2), 0.0)


def _decode_features(depths: Sequence[int]) -> Features:
    return (1.0, len(depths), sum(depths))


def _largest(most: int, fits: Callable[[int], bool]) -> int:
    """The largest number up to `most` that fits, where all smaller ones do; 0 if none does."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


class _Kind:
    """Calls of one kind: their coefficients, and the latest of them."""

    def __init__(self, coefficients: Features) -> None:
        self.coefficients = coefficients
        self.pace = 1.0
        self._samples: deque[tuple[Features, float]] = deque(maxlen=SAMPLES)
        self._since_fit = 0

    @property
    def unit_costs(self) -> Features:
        """The coefficients at the present pace."""
        return tuple(self.pace * c for c in self.coefficients)

    def predict(self, features: Features) -> float:
        """Seconds of a call."""
        return self._shape(features) * self.pace

    def observe(self, features: Features, took_s: float) -> None:
        """Learn from a call."""
        self._samples.append((features, max(took_s, 1e-9)))
        self._since_fit += 1
        if self._since_fit >= REFIT_EVERY:
            self._since_fit = 0
            self._fit_or_restart()
        latest = list(self._samples)[-PACE_SAMPLES:]
        ratios = [took_s / max(1e-12, self._shape(features)) for features, took_s in latest]
        # While there are few, what was known has a say: the first call may be the hiccup.
        ratios += [self.pace] * min(3, PACE_SAMPLES - len(ratios))
        self.pace = statistics.median(ratios)

    def _shape(self, features: Features) -> float:
        return float(sum(map(mul, features, self.coefficients)))

    def _fit_or_restart(self) -> None:
        if not 1 / OTHER_PACE < self.pace < OTHER_PACE:
            # The machine is another one now: the costs keep their proportions, and what it took before says nothing.
            self.coefficients = self.unit_costs
            self.pace = 1.0
            latest = list(self._samples)[-PACE_SAMPLES:]
            self._samples.clear()
            self._samples.extend(s for s in latest if abs(s[1] / self._shape(s[0]) - 1) < OUTLIER)
        else:
            self._fit()

    def _fit(self) -> None:
        """Least squares of relative errors, outliers weighted down, the coefficients not below zero."""
        features = np.array([features for features, _ in self._samples])
        took_s = np.array([took_s for _, took_s in self._samples])
        known = np.array(self.coefficients) * self.pace
        ratio = took_s / np.maximum(features @ known, 1e-12)
        apart = np.abs(np.log(ratio / np.median(ratio)))
        weights = np.minimum(1.0, OUTLIER / np.maximum(apart, 1e-9))
        # Rows in shares of their time, columns in shares of a typical call: one number says what the prior counts.
        scale = np.maximum(features.mean(axis=0), 1e-9) / float(np.median(took_s))
        rows = features / took_s[:, None] / scale
        prior = known * scale
        normal = rows.T @ (rows * weights[:, None]) + TRUST_IN_PRIOR * np.eye(len(known))
        target = rows.T @ weights + TRUST_IN_PRIOR * prior
        solution = prior.copy()
        for _ in range(DESCENTS):
            for i in range(len(solution)):
                rest = target[i] - normal[i] @ solution + normal[i, i] * solution[i]
                solution[i] = max(0.0, rest / normal[i, i])
        self.coefficients = tuple(map(float, solution / scale))
        self.pace = 1.0
