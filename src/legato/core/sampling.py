"""What a request says of the choice of its tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SamplingParameters:
    """What a request says of the choice of its tokens. The defaults change nothing and sample from all tokens."""

    temperature: float = 1.0
    """Divides the logits; 0 always takes the likeliest token."""
    top_k: int = 0
    """Keep the k likeliest tokens; 0 keeps all."""
    top_p: float = 1.0
    """Keep the likeliest tokens that together have this probability (Holtzman et al. 2019)."""
    min_p: float = 0.0
    """Keep tokens at least this likely relative to the likeliest one."""
    typical_p: float = 1.0
    """Keep the locally typical tokens of this probability (Meister et al. 2022)."""
    repetition_penalty: float = 1.0
    """Divides the logits of tokens among the latest `repetition_window` of prompt and answer; 1 is off."""
    repetition_window: int = 64
    """Tokens that `repetition_penalty` looks back, into the prompt too."""
    presence_penalty: float = 0.0
    """Taken once from the logit of each token that the answer holds."""
    frequency_penalty: float = 0.0
    """Taken from a token's logit for each time that the answer holds it."""
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    """Added to the logits of these tokens."""
    seed: int = 0
    """Of the random choice, 0 to 2**32 - 2. The same seed, prompt and parameters choose the same tokens."""
    ignore_end: bool = False
    """Never choose a token that ends the answer."""
