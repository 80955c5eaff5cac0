"""Which tokens the next step evaluates.

Pure policy: plain data in, plain data out. No I/O, no clock, no threads, no llama.cpp. The server's worker and the
simulator use the same code; whoever owns the memory elsewhere uses a policy alone.
"""

from __future__ import annotations

from legato.scheduling.costs import Coefficients, CostModel, Work
from legato.scheduling.plan import Chunk, Outcome, Plan
from legato.scheduling.policies import Policy, make_policy
from legato.scheduling.scheduler import Admission, Lender, NeverFitsError, Released, Scheduler
from legato.scheduling.sequence import Phase, Sequence

__all__ = [
    "Admission",
    "Chunk",
    "Coefficients",
    "CostModel",
    "Lender",
    "NeverFitsError",
    "Outcome",
    "Phase",
    "Plan",
    "Policy",
    "Released",
    "Scheduler",
    "Sequence",
    "Work",
    "make_policy",
]
