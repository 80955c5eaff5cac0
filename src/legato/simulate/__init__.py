"""The engine's own loop on a virtual clock, with a modelled engine: what would happen, in a fraction of the time.

Policy, admission, interruption and the store of KV state are the ones that serve; only the clock, the calls and the
cells are modelled. `Simulation` puts them together; its parts can be used apart.
"""

from __future__ import annotations

from legato.simulate.cells import ModelledCells
from legato.simulate.clock import VirtualClock
from legato.simulate.disk import ModelledDisk
from legato.simulate.engine import ModelledEngine
from legato.simulate.mailbox import SimulatedMailbox
from legato.simulate.simulation import Ask, Simulation

__all__ = [
    "Ask",
    "ModelledCells",
    "ModelledDisk",
    "ModelledEngine",
    "SimulatedMailbox",
    "Simulation",
    "VirtualClock",
]
