"""The hub client's own progress bar, with a type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, cast

from huggingface_hub.utils.tqdm import tqdm

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager


class Bar(Protocol):
    """What a download needs of a progress bar."""

    def update(self, n: float) -> object:
        """Move the bar on (or back) by a number of bytes."""


def byte_bar(label: str, total_bytes: int, done_bytes: int) -> AbstractContextManager[Bar]:
    """Make a progress bar for a download; it shows on a terminal only.

    HF_HUB_DISABLE_PROGRESS_BARS hides it there too.

    Args:
        label: What is downloaded.
        total_bytes: Its size.
        done_bytes: How much of it an earlier download brought.
    """
    make = cast("Callable[..., AbstractContextManager[Bar]]", tqdm)
    return make(desc=label, total=total_bytes, initial=done_bytes, unit="B", unit_scale=True, disable=None)
