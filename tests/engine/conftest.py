"""The demonstration model, loaded once a module, and a small context that every test finds empty."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from legato.engine.context import Context, ContextSettings
from legato.engine.model import Model
from legato.engine.vocabulary import Vocabulary
from tests.engine.reading import BATCH_TOKENS, CELLS, SEQUENCES

ContextFactory = Callable[..., Context]


def settings(**changes: Any) -> ContextSettings:
    """A small context's. One thread, for on a busy machine two wait for each other longer than they compute.

    FlashAttention is off, as it is by default on a CPU: its kernel rounds differently for other batch shapes.
    """
    usual: dict[str, Any] = {
        "sequences": SEQUENCES,
        "cells_per_sequence": CELLS,
        "batch_tokens": BATCH_TOKENS,
        "threads": 1,
        "threads_prefill": 1,
        "flash_attention": "off",
    }
    return ContextSettings(**(usual | changes))


@pytest.fixture(scope="module")
def model(model_path: Path) -> Iterator[Model]:
    model = Model(model_path)
    yield model
    model.close()


@pytest.fixture(scope="module")
def vocabulary(model: Model) -> Vocabulary:
    return model.vocabulary


@pytest.fixture(scope="module")
def shared_context(model: Model) -> Iterator[Context]:
    context = Context(model, settings())
    yield context
    context.close()


@pytest.fixture
def context(shared_context: Context) -> Context:
    for sequence in range(SEQUENCES):
        shared_context.remove(sequence)
    return shared_context


@pytest.fixture
def make_context(model: Model) -> Iterator[ContextFactory]:
    """Makes contexts of one's own: `make_context(flash_attention="on")`."""
    made: list[Context] = []

    def make(**changes: Any) -> Context:
        made.append(Context(model, settings(**changes)))
        return made[-1]

    yield make
    for context in made:
        context.close()
