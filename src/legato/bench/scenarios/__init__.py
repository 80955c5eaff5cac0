"""What people do to a server, one way a module."""

from __future__ import annotations

from legato.bench.scenarios.cache import Cache
from legato.bench.scenarios.crowd import Crowd
from legato.bench.scenarios.interference import Interference
from legato.bench.scenarios.scenario import Scenario
from legato.bench.scenarios.solo import Solo
from legato.bench.scenarios.trace import Trace

__all__ = ["Cache", "Crowd", "Interference", "Scenario", "Solo", "Trace"]
