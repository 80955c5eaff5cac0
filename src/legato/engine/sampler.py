"""Choosing the next token: the library's sampler chains, built from one request's parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from llama_cpp import llama_cpp as lib
from numpy.typing import NDArray

from legato.core.sampling import SamplingParameters
from legato.core.tokens import Tokens
from legato.engine.context import Context
from legato.engine.vocabulary import Vocabulary


class Sampler:
    """A chain of the library's samplers, with the state that one answer needs.

    The order is llama.cpp's own: biases and penalties, then truncation (top-k, typical, top-p, min-p), temperature, and
    the choice.

    Args:
        vocabulary: Of the model that the logits come from.
        parameters: Of the request.
        prompt: The prompt's tokens, shape [n], for the repetition penalty.
        answer_limit: Most tokens that the answer can have.
    """

    def __init__(
        self, vocabulary: Vocabulary, parameters: SamplingParameters, prompt: Tokens, answer_limit: int
    ) -> None:
        chain_params = lib.llama_sampler_chain_default_params()
        chain_params.no_perf = True
        self._chain = lib.llama_sampler_chain_init(chain_params)
        p = parameters
        self._add_biases(vocabulary, p)
        if p.repetition_penalty != 1.0:
            self._add_repetition(vocabulary, p, prompt)
        if p.presence_penalty or p.frequency_penalty:
            counted = (p.frequency_penalty, p.presence_penalty)
            self._add(lib.llama_sampler_init_penalties(vocabulary.size, answer_limit, 1.0, *counted))
        if p.temperature <= 0:
            self._add(lib.llama_sampler_init_greedy())
            return
        if p.top_k > 0:
            self._add(lib.llama_sampler_init_top_k(p.top_k))
        if p.typical_p < 1:
            self._add(lib.llama_sampler_init_typical(p.typical_p, 1))
        if p.top_p < 1:
            self._add(lib.llama_sampler_init_top_p(p.top_p, 1))
        if p.min_p > 0:
            self._add(lib.llama_sampler_init_min_p(p.min_p, 1))
        self._add(lib.llama_sampler_init_temp(p.temperature))
        self._add(lib.llama_sampler_init_dist(p.seed))

    def _add(self, sampler: Any) -> None:
        lib.llama_sampler_chain_add(self._chain, sampler)

    def _add_biases(self, vocabulary: Vocabulary, p: SamplingParameters) -> None:
        never = list(vocabulary.suppressed)
        if p.ignore_end:
            never.extend(vocabulary.end_tokens)
        biases = {**p.logit_bias, **dict.fromkeys(never, float("-inf"))}
        if not biases:
            return
        array = (lib.llama_logit_bias * len(biases))(*(lib.llama_logit_bias(t, b) for t, b in biases.items()))
        self._add(lib.llama_sampler_init_logit_bias(vocabulary.size, len(biases), array))

    def _add_repetition(self, vocabulary: Vocabulary, p: SamplingParameters, prompt: Tokens) -> None:
        sampler = lib.llama_sampler_init_penalties(vocabulary.size, p.repetition_window, p.repetition_penalty, 0.0, 0.0)
        # This one alone has seen the prompt: OpenAI's penalties count the answer only.
        for token in prompt[-p.repetition_window :].tolist() if p.repetition_window else ():
            lib.llama_sampler_accept(sampler, token)
        self._add(sampler)

    def sample(self, context: Context, row: int) -> int:
        """Choose a token from the logits of a row of the latest batch, and remember it for the penalties."""
        return int(lib.llama_sampler_sample(self._chain, context.handle, row))

    def close(self) -> None:
        """Free the chain."""
        if self._chain:
            lib.llama_sampler_free(self._chain)
            self._chain = None


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token and the natural logarithm of its probability under the model alone, before any sampling parameter."""

    token: int
    logprob: float


def top_logprobs(logits: NDArray[np.float32], chosen: int, count: int) -> tuple[TokenLogprob, list[TokenLogprob]]:
    """Log-probabilities of the chosen token and of the `count` likeliest ones, likeliest first.

    Args:
        logits: Shape [vocabulary].
        chosen: A token.
        count: How many others are wanted, 0 or more.
    """
    highest = float(logits.max())
    log_total = highest + float(np.log(np.exp(logits - highest, dtype=np.float32).sum(dtype=np.float64)))
    count = min(count, len(logits))
    likeliest = np.argpartition(logits, -count)[-count:] if count else np.empty(0, np.intp)
    likeliest = likeliest[np.lexsort((likeliest, -logits[likeliest]))]
    return (
        TokenLogprob(chosen, float(logits[chosen]) - log_total),
        [TokenLogprob(token, float(logits[token]) - log_total) for token in likeliest.tolist()],
    )
