"""Whether a converted model is worth having, in words. Plain data in, plain data out."""

from __future__ import annotations

from dataclasses import dataclass

WORTH_IT = 1.1
"""Times that reading must be faster for a conversion to be worth its disk."""
SMALL_LOSS = 0.05
"""Divergence in nats up to which a conversion is advised."""
_LOSSES = ((0.01, "hardly anything"), (SMALL_LOSS, "little"), (0.2, "noticeably"))


@dataclass(frozen=True, slots=True)
class ConvertedModel:
    """What was measured of a weight type."""

    weights: str
    speedup: float
    """Time to read a long prompt with the model's own weights over that with these."""
    decode_ratio: float
    """Time of a decode with these weights over that with the model's own."""
    kl_divergence: float | None
    """Mean divergence of its predictions from the original's, in nats; None if there was no time."""
    perplexity_ratio: float | None


def advised_weights(converted: list[ConvertedModel]) -> str | None:
    """The weight type to convert to: the fastest that loses little; None if none is worth it."""
    good = [
        one
        for one in converted
        if one.speedup >= WORTH_IT and one.kl_divergence is not None and one.kl_divergence <= SMALL_LOSS
    ]
    return max(good, key=lambda one: one.speedup).weights if good else None


def sentence(one: ConvertedModel, command: str) -> str:
    """Say what a weight type would bring and cost.

    Args:
        one: The weight type.
        command: What to type to have it.
    """
    if one.speedup < WORTH_IT:
        faster = f"{one.weights} would not read prompts faster to speak of ({one.speedup:.2f} times)"
    else:
        faster = f"{one.weights} would read prompts {one.speedup:.1f} times faster"
    text = f"{faster}, take {one.decode_ratio:.2f} times as long to write a token, and {_loss(one)}"
    if one.speedup < WORTH_IT:
        return f"{text}."
    if one.kl_divergence is not None and one.kl_divergence > SMALL_LOSS:
        return f"{text}; if that will do: {command} makes it."
    return f"{text}: {command} makes it."


def _loss(one: ConvertedModel) -> str:
    if one.kl_divergence is None or one.perplexity_ratio is None:
        return "lose what there was no time to measure"
    word = next((word for most, word in _LOSSES if one.kl_divergence <= most), "much")
    return f"lose {word} (divergence {one.kl_divergence:.3f} nats, perplexity {one.perplexity_ratio - 1:+.1%})"
