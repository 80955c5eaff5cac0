"""Which of several measured configurations suits a gap target. Plain data in, plain data out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from legato.scheduling.costs import Coefficients, CostModel

PROMPT_TOKENS = 6000
"""A long prompt, about 5,000 words: what configurations are compared by."""
CHAT_DEPTH = 2500
"""Tokens of the chat that goes on beside it: one that has gone on for a while.

With FlashAttention on CPUs each token of depth makes a decode much slower, which a short chat does not show.
"""
READ_SIZES = (32, 64, 128, 256, 512)
"""Chunk sizes that a prompt which is alone may be read in."""
SHORTEST_CHUNK = 8
"""Tokens of the shortest chunk that is worth a step."""
INTERRUPTIBLE_GAP = 1.25
"""Shortest gap over the time of a decode where reading is interrupted: it goes on for at least a quarter of that."""
MARGIN = 0.15
"""Share by which a less usual configuration must be better."""
SIZE_MARGIN = 0.1
"""Share by which a longer chunk must be better than a shorter one."""
JOINING_PAYS = 0.95
"""Time of a joined call over that of two, below which one call a step is chosen."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What is known of a configuration."""

    name: str
    """What a person calls it."""
    costs: Coefficients
    batch_tokens: int = 512
    """Most tokens in one library call."""
    size_factors: dict[int, float] = field(default_factory=dict)
    """Of some chunk sizes, what a chunk took over what the costs predict."""
    interruptible: bool = False
    """Long prompts are read in calls that are interrupted for the chat, so that no chunk has to fit into a gap."""
    joined_ratio: float | None = None
    """Time of one call with a decode and a chunk over that of two calls; None if it was not measured."""
    keeps_answers: bool = True
    """It changes what the model answers no more than rounding does: it may be chosen without asking."""
    is_confirmed: bool = True
    """False if it was better than the usual one once, but not shown to be so twice: then it is not chosen."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """What people will see of a configuration."""

    decode_s: float
    """A decode of one chat."""
    beside_chat_s: float | None
    """Time to read a long prompt beside a chat whose gaps are kept; None if no chunk fits at some depth."""
    smallest_gap_s: float
    """Shortest gap that the chat can have while the end of the prompt is read."""
    alone_s: float
    """Time to read it with nothing beside it, at the best chunk size."""
    best_size: int
    """That chunk size."""
    joined_calls: bool
    """One library call a step is better than two."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What was chosen, and why."""

    index: int
    """Which of the configurations."""
    forecasts: tuple[Forecast, ...]
    """One for each configuration."""
    reason: str
    """In plain words."""


def forecast(measured: Measured, gap_target_s: float) -> Forecast:
    """Predict what people will see.

    Args:
        measured: The configuration.
        gap_target_s: Longest gap of the chat.
    """
    model = CostModel(measured.costs)
    decode_s = model.decode_s([CHAT_DEPTH])
    ratio = 1.0 if measured.joined_ratio is None else measured.joined_ratio
    joined = ratio < JOINING_PAYS
    ratio = ratio if joined else 1.0
    best_size, alone_s = _best_size(model, measured)
    last = PROMPT_TOKENS - SHORTEST_CHUNK
    if measured.interruptible:
        smallest_gap_s = INTERRUPTIBLE_GAP * decode_s
        is_kept = smallest_gap_s < gap_target_s
        beside_chat_s = alone_s * gap_target_s / (gap_target_s - decode_s) if is_kept else None
    else:
        smallest_gap_s = (decode_s + model.chunk_s(last, SHORTEST_CHUNK)) * ratio
        beside_chat_s = _beside_chat_s(model, decode_s, gap_target_s, measured.batch_tokens, ratio)
    return Forecast(
        decode_s=decode_s,
        beside_chat_s=beside_chat_s,
        smallest_gap_s=smallest_gap_s,
        alone_s=alone_s,
        best_size=best_size,
        joined_calls=joined,
    )


def choose(measured: Sequence[Measured], gap_target_s: float) -> Choice:
    """Choose the configuration that reads a long prompt soonest while a chat beside it keeps its gaps.

    Args:
        measured: Configurations, the most usual first: another must be better by a margin. At least one of them keeps
            answers as they are and is not unconfirmed.
        gap_target_s: Longest gap of the chat.

    Raises:
        ValueError: None may be chosen.
    """
    forecasts = tuple(forecast(one, gap_target_s) for one in measured)
    open_to_choice = [i for i, one in enumerate(measured) if one.keeps_answers and one.is_confirmed]
    if not open_to_choice:
        raise ValueError("no configuration may be chosen")
    keeping = [i for i in open_to_choice if forecasts[i].beside_chat_s is not None]
    if keeping:
        times = {i: forecasts[i].beside_chat_s or 0.0 for i in keeping}
        index = _least(times)
        return Choice(index, forecasts, _why(measured, forecasts, index, gap_target_s, times))
    gaps = {i: forecasts[i].smallest_gap_s for i in open_to_choice}
    index = _least(gaps)
    return Choice(
        index,
        forecasts,
        f"No configuration keeps gaps of {gap_target_s * 1e3:.0f} ms at the end of a {PROMPT_TOKENS:,}-token prompt; "
        f"{measured[index].name} comes closest, with {gaps[index] * 1e3:.0f} ms.",
    )


def is_confirmed_by(usual: Measured, other: Measured, gap_target_s: float) -> bool:
    """True if another configuration is better than the usual one by the margin, measured once more.

    Args:
        usual: The second measurement of the usual configuration.
        other: That of the other one, made right before or after it.
        gap_target_s: Longest gap of the chat.
    """
    return choose([usual, other], gap_target_s).index == 1


def _why(
    measured: Sequence[Measured],
    forecasts: Sequence[Forecast],
    index: int,
    gap_target_s: float,
    times: dict[int, float],
) -> str:
    chosen = forecasts[index]
    text = (
        f"{measured[index].name} reads a {PROMPT_TOKENS:,}-token prompt in {times[index]:.1f} s while a chat beside it "
        f"keeps its gaps below {gap_target_s * 1e3:.0f} ms ({chosen.alone_s:.1f} s alone)"
    )
    others = {i: s for i, s in times.items() if i != index}
    if not others:
        return text + "."
    next_best = min(others, key=lambda i: others[i])
    ratio = others[next_best] / times[index]
    if ratio < 1:
        return f"{text}; {measured[next_best].name} is hardly faster ({others[next_best]:.1f} s)."
    return f"{text}; the next best, {measured[next_best].name}, takes {ratio:.2f} times as long."


def _least(values: dict[int, float]) -> int:
    """The key of the least value; a later one wins only by a margin."""
    best = next(iter(values))
    for i, value in values.items():
        if value < values[best] * (1 - MARGIN):
            best = i
    return best


def _best_size(model: CostModel, measured: Measured) -> tuple[int, float]:
    """The chunk size that reads a prompt soonest when nothing is beside it, and the time that it takes.

    Of sizes that are about as good it is the smallest: whoever comes meanwhile waits for the end of a chunk.
    """
    sizes = [size for size in sorted(measured.size_factors) if min(READ_SIZES) <= size <= measured.batch_tokens]
    times = {
        size: _alone_s(model, size) * measured.size_factors.get(size, 1.0)
        for size in (sizes or [size for size in READ_SIZES if size <= measured.batch_tokens])
    }
    least = min(times.values())
    best = min(size for size, took_s in times.items() if took_s <= least * (1 + SIZE_MARGIN))
    return best, times[best]


def _alone_s(model: CostModel, size: int) -> float:
    starts = range(0, PROMPT_TOKENS, size)
    return sum(model.chunk_s(start, min(size, PROMPT_TOKENS - start)) for start in starts)


def _beside_chat_s(
    model: CostModel, decode_s: float, gap_target_s: float, batch_tokens: int, ratio: float
) -> float | None:
    """Seconds of all steps, each a decode and the longest chunk that fits; None if none fits at some depth."""
    position, total_s = 0, 0.0
    while position < PROMPT_TOKENS:
        most = min(batch_tokens, PROMPT_TOKENS - position)
        chunk = model.longest_chunk(position, gap_target_s / ratio - decode_s, most)
        if chunk < min(SHORTEST_CHUNK, most):
            return None
        total_s += (decode_s + model.chunk_s(position, chunk)) * ratio
        position += chunk
    return total_s
