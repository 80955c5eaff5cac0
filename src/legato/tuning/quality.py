"""What a weight type loses: how far a converted model's predictions are from those of the file it was made from."""

from __future__ import annotations

from contextlib import closing
from importlib.resources import files
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from legato.engine.batch import Batch
from legato.engine.context import Context, ContextSettings
from legato.engine.model import Model

ROWS = 64
"""Tokens of a call: as many as a context gives logits for."""
MOST_TOKENS = 320

LogProbabilities = NDArray[np.float32]


class Loss(msgspec.Struct, frozen=True):
    """What was lost, over a page of text."""

    kl_divergence: float
    """Mean Kullback-Leibler divergence of the predictions from those of the original, in nats; 0 loses nothing."""
    perplexity_ratio: float
    """The text's perplexity over that under the original; 1 loses nothing."""
    tokens: int
    """Predictions that were compared."""


def weight_loss(original: Path, converted: Path, *, threads: int) -> Loss:
    """Compare a converted model with the file that it was made from, both loaded one after the other.

    Args:
        original: A GGUF file.
        converted: One of the same model, with another weight type.
        threads: CPU threads to evaluate the text with.

    Raises:
        ModelLoadError: The library refused a file.
        EngineError: The library could not evaluate the text.
    """
    before, following = _predictions(original, threads)
    after, _ = _predictions(converted, threads)
    divergence = np.sum(np.exp(before) * (before - after), axis=1, dtype=np.float64)
    rows = np.arange(len(following))
    surprise = np.mean(before[rows, following] - after[rows, following], dtype=np.float64)
    return Loss(max(0.0, float(divergence.mean())), float(np.exp(surprise)), len(following))


def _predictions(path: Path, threads: int) -> tuple[LogProbabilities, NDArray[np.int32]]:
    """Log-probabilities of each next token, shape [n, vocabulary], and the tokens that do follow, shape [n]."""
    text = (files("legato.tuning") / "quality_text.txt").read_text("utf-8")
    settings = ContextSettings(
        sequences=1, cells_per_sequence=MOST_TOKENS, batch_tokens=ROWS, threads=threads, threads_prefill=threads,
        flash_attention="off",
    )  # fmt: skip
    batch = Batch(ROWS)
    with closing(Model(path)) as model, closing(Context(model, settings)) as context:
        tokens = model.vocabulary.tokenize(text, add_bos=True, parse_special=False)[:MOST_TOKENS]
        predictions = np.empty((len(tokens) - 1, model.vocabulary.size), np.float32)
        for start in range(0, len(predictions), ROWS):
            batch.clear()
            for position in range(start, min(start + ROWS, len(predictions))):
                batch.add_one(0, int(tokens[position]), position)
            context.evaluate(batch)
            for row in range(len(batch)):
                predictions[start + row] = _log_softmax(context.logits(row))
    return predictions, tokens[1:]


def _log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    shifted = logits - logits.max()
    normalised: NDArray[np.float32] = shifted - np.float32(np.log(np.exp(shifted).sum(dtype=np.float64)))
    return normalised
