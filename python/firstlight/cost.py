"""Equipment, floor space and joules in dollars.

Each server-second costs its annualised equipment and the colocation of its provisioned watts; energy
is added as drawn. "1/10 TCO" is therefore a statement about price: electricity is a tenth of it.
"""

from __future__ import annotations

from dataclasses import dataclass

from firstlight.errors import ScenarioError

SECONDS_A_YEAR = 365.25 * 86400.0
SECONDS_A_MONTH = SECONDS_A_YEAR / 12.0
JOULES_A_KWH = 3.6e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What money costs, and what a watt and a joule cost.

    Attributes:
        electricity_usd_per_kwh: Price of energy at the facility [usd/kWh].
        colocation_usd_per_kw_month: Price of provisioned power, electricity not included
            [usd/kW/month].
        it_life_years: Life of the equipment [year].
        cost_of_capital_frac: Interest a year.
        network_price_frac: Network equipment over the price of the servers.
        carbon_g_per_kwh: Carbon intensity of the energy [g/kWh].
    """

    electricity_usd_per_kwh: float
    colocation_usd_per_kw_month: float
    it_life_years: float
    cost_of_capital_frac: float
    network_price_frac: float
    carbon_g_per_kwh: float


def annuity_usd_per_s(price_usd: float, *, life_years: float, cost_of_capital_frac: float) -> float:
    """Return the constant rate that repays a price with interest over its life [usd/s].

    Args:
        price_usd: Price today [usd].
        life_years: Years of payment.
        cost_of_capital_frac: Interest a year; 0 divides the price evenly.

    Raises:
        ScenarioError: When the price or the life is not positive.

    Source:
        Annuity formula: P·r / (1 − (1 + r)^−n).
    """
    if price_usd < 0 or not life_years > 0:
        raise ScenarioError(
            f"price {price_usd!r} $ over {life_years!r} years; allowed: 0 or more, above 0"
        )
    if cost_of_capital_frac == 0:
        return price_usd / life_years / SECONDS_A_YEAR
    r = cost_of_capital_frac
    repaid: float = 1.0 - (1.0 + r) ** -life_years
    return price_usd * r / repaid / SECONDS_A_YEAR


def standing_usd_per_s(price_usd: float, provisioned_w: float, *, rates: Rates) -> float:
    """Return what a server costs a second before it draws a joule [usd/s].

    Args:
        price_usd: Purchase price [usd]; 0 for one whose price is sunk.
        provisioned_w: Power the facility keeps for it, at the facility boundary over PUE [W].
        rates: Prices.
    """
    equipment = annuity_usd_per_s(
        price_usd * (1.0 + rates.network_price_frac),
        life_years=rates.it_life_years,
        cost_of_capital_frac=rates.cost_of_capital_frac,
    )
    return equipment + provisioned_w / 1e3 * rates.colocation_usd_per_kw_month / SECONDS_A_MONTH


def energy_usd(energy_j: float, *, rates: Rates) -> float:
    """Return the price of energy drawn at the facility [usd]."""
    return energy_j / JOULES_A_KWH * rates.electricity_usd_per_kwh


def carbon_g(energy_j: float, *, rates: Rates) -> float:
    """Return the carbon of energy drawn at the facility [g]."""
    return energy_j / JOULES_A_KWH * rates.carbon_g_per_kwh
