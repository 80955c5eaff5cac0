"""How much shorter than its target a gap is planned."""

from __future__ import annotations

NEAR = 0.7
"""Share of the planned gap from which one counts as planned: others had nothing to prefill in them."""


class Headroom:
    """What part of a gap target is planned with, so that nearly all gaps keep it though no prediction is exact.

    A gap that misses its target raises the headroom, each that keeps it lowers it a little; it settles where
    `MISSES` of the gaps miss. (A stochastic approximation of a quantile: Robbins and Monro, 1951.) Gaps that no
    headroom would have saved tell nothing, such as those in which something else had the processor.
    """

    MISSES = 0.006
    """Share of gaps that may be longer than their target."""
    ON_TIME = 0.97
    """Share of its target within which a gap counts as kept: a token's way to its reader takes some time too."""
    STEP = 0.02
    """What one missed gap adds."""
    LEAST, MOST = 1.02, 1.5
    """A gap that lasts longer than planned by more than that is a hiccup: more would only make reading slower."""

    def __init__(self) -> None:
        self.factor = 1.1
        """Targets are divided by it when steps are planned."""

    def note(self, gap_s: float, target_s: float) -> None:
        """A gap came out. Only those that came near what was planned for tell anything.

        Args:
            gap_s: Seconds between two tokens.
            target_s: What it should have been at most.
        """
        times_planned = gap_s * self.factor / target_s
        if times_planned > self.MOST:
            return
        if gap_s > self.ON_TIME * target_s:
            self.factor = min(self.MOST, self.factor + self.STEP * (1 - self.MISSES))
        elif times_planned > NEAR:
            self.factor = max(self.LEAST, self.factor - self.STEP * self.MISSES)
