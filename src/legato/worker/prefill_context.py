"""Where long prompts are prefilled: a context of one sequence, whose calls can be interrupted."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from legato.core.engine_errors import EngineError
from legato.engine.batch import Batch
from legato.engine.context import Context, ContextSettings
from legato.engine.handover import Handover
from legato.engine.model import Model

logger = logging.getLogger(__name__)

TOLERANCE = 1e-3
"""Most that logits may differ after a handover; on CPUs they are the same to the bit."""


@dataclass(frozen=True, slots=True)
class PrefillContext:
    """A context of one sequence, and the way from there to the slots."""

    context: Context
    handover: Handover


def make_prefill_context(model: Model, settings: ContextSettings, target: Context) -> PrefillContext | None:
    """A context for interruptible prefill beside `target`, which has these settings and nothing in it.

    Returns:
        None if the library has no memory for another context, or can't move this model's state.
    """
    try:
        context = Context(model, replace(settings, sequences=1))
    except EngineError as error:
        logger.warning("long prompts are not prefilled interruptibly: %s", error)
        return None
    made = PrefillContext(context, Handover(context, target))
    try:
        _try_handover(made, target)
    except EngineError as error:
        logger.info("long prompts are not prefilled interruptibly: %s", error)
        target.remove(0)
        context.close()
        return None
    return made


def _try_handover(made: PrefillContext, target: Context) -> None:
    """See that what is written next is the same on both sides.

    Raises:
        EngineError: It is not, or the library refuses.
    """
    batch = Batch(1)
    source = made.context
    _next_logits(source, batch, 0)
    before = _next_logits(source, batch, 1)
    if not source.remove(0, 1):
        raise EngineError("this model's state can't be cut")
    made.handover.move(0)
    after = _next_logits(target, batch, 1)
    target.remove(0)
    if not np.allclose(before, after, atol=TOLERANCE):
        raise EngineError("a moved state gives other answers")


def _next_logits(context: Context, batch: Batch, position: int) -> NDArray[np.float32]:
    batch.clear()
    row = batch.add_one(0, 0, position)
    context.evaluate(batch)
    return context.logits(row).copy()
