"""Published claims, tested: each on the user's scenario and on its most favourable reading.

A claim is data (`catalog/data/claim/`); a verdict is computed. Nothing here simulates: verdicts and
boundaries come from the fast tier, which a test bounds against simulation.
"""

from __future__ import annotations

from firstlight.claims.check import Checked, HoldsWhen, Report, Verdict, check, over
from firstlight.claims.record import Claim, claims, get

__all__ = ["Checked", "Claim", "HoldsWhen", "Report", "Verdict", "check", "claims", "get", "over"]
