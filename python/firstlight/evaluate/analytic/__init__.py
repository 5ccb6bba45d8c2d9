"""The fast tier: what each design delivers by closed form, a thousand questions a second.

Nothing is simulated. The hour of traffic becomes a rate by the half minute and a few moments of
its lengths; a pool of servers becomes its step table read at a handful of batch sizes; each pool is
taken alone, and a fleet of balanced pools follows by arithmetic.

The tier is for screening, sweeps and solvers; what is reported as *the* answer is simulated. Its
error against simulation is stated and bounded in tests/physics/test_analytic.py.
"""

from __future__ import annotations

from firstlight.evaluate.analytic.fleet import Estimate
from firstlight.evaluate.analytic.point import Point, estimate

__all__ = ["Estimate", "Point", "estimate"]
