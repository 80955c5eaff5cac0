"""What a reader must know of a target's figures, found in the measurements themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median

from legato.bench.results import MeasuredRequest

MERGED = 1.3
"""Tokens an event from which on gaps between events are no gaps between tokens. Above 1, since some tokens, such as
parts of a character or the end of the answer, have no text of their own."""


def notes_on(requests: Sequence[MeasuredRequest]) -> list[str]:
    """Sentences; none if everything was as it should be."""
    errors = Counter(request.error for request in requests if request.error)
    notes = [f"{count} of {len(requests)} requests failed: {error}" for error, count in errors.most_common()]
    whole = [request for request in requests if not request.error and not request.hung_up]
    if in_one_piece := sum(not request.streamed for request in whole):
        notes.append(
            f"{in_one_piece} of {len(whole)} answers came in one piece: their TTFT is the time of the whole answer."
        )
    ratios = [request.tokens_per_event or 0 for request in whole if request.streamed and len(request.event_s) > 1]
    if ratios and median(ratios) >= MERGED:
        notes.append(
            f"The server sends about {median(ratios):.1f} tokens in one event: gaps are those between events, "
            "not between tokens."
        )
    if shorter := sum(request.stopped_early for request in whole):
        notes.append(f"{shorter} of {len(whole)} answers are shorter than was asked for.")
    return notes
