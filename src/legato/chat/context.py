"""The template engine's context, which carries what one rendering needs to every operation of the template."""

from __future__ import annotations

from datetime import datetime

from jinja2.runtime import Context

from legato.chat.budget import Budget


class BoundedContext(Context):
    """A context with a budget. Templates have no name for it, so they cannot reach it.

    Attributes:
        budget: What is left to this rendering.
        now: The time that `strftime_now` tells.
    """

    budget: Budget
    now: datetime


def bounded(context: Context) -> BoundedContext:
    """The same context, by its own type."""
    assert isinstance(context, BoundedContext)
    return context
