"""The arithmetic behind the claims: Amdahl's law in joules, and what published numbers imply.

Symbols: G gain of the whole, R gain of prefill, R_d gain of decode, p share of prefill in the
baseline's energy, ρ energy of an output token over that of an uncached input token, r uncached input
tokens per output token.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from firstlight import catalog
from firstlight.errors import ScenarioError

if TYPE_CHECKING:
    from firstlight.models import ModelShape


def whole_gain(prefill_share: float, *, prefill_gain: float, decode_gain: float = 1.0) -> float:
    """Return the gain of a whole inference, 1/G = p/R + (1 − p)/R_d.

    Args:
        prefill_share: p, 0 to 1.
        prefill_gain: R, may be infinite.
        decode_gain: R_d.

    Raises:
        ScenarioError: A share or gain is out of range.
    """
    _share(prefill_share)
    _gain(prefill_gain)
    _gain(decode_gain)
    rest = prefill_share / prefill_gain + (1.0 - prefill_share) / decode_gain
    return 1.0 / rest if rest > 0 else math.inf


def share_needed(
    gain: float, *, prefill_gain: float, decode_gain: float = 1.0
) -> tuple[float, float] | None:
    """Return the shares of prefill (lowest, highest) at which the whole gains at least `gain`.

    Args:
        gain: G.
        prefill_gain: R, may be infinite.
        decode_gain: R_d.

    Returns:
        None when no share does.

    Source:
        1/G = p/R + (1 − p)/R_d solved for p. When decode alone gains more than G, a small share
        is what is needed; when prefill does, a large one.
    """
    _gain(gain)
    _gain(prefill_gain)
    _gain(decode_gain)
    if prefill_gain < gain and decode_gain < gain:
        return None
    if prefill_gain >= gain and decode_gain >= gain:
        return 0.0, 1.0
    edge = (1.0 / decode_gain - 1.0 / gain) / (1.0 / decode_gain - 1.0 / prefill_gain)
    return (edge, 1.0) if prefill_gain >= gain else (0.0, edge)


def ratio_needed(gain: float, *, rho: float, prefill_gain: float = math.inf) -> float:
    """Return the uncached input tokens per output token for a gain of the whole, decode unchanged.

    Args:
        gain: G, above 1.
        rho: Energy of an output token over that of an uncached input token.
        prefill_gain: R, may be infinite.

    Returns:
        Infinity when prefill gains no more than the whole should: no traffic is enough.

    Source:
        r = ρ·(1 − 1/G)/(1/G − 1/R); (G − 1)·ρ when prefill is free.
    """
    _gain(gain)
    _gain(prefill_gain)
    if not rho > 0:
        raise ScenarioError(f"rho: {rho!r} is not allowed; above 0")
    if prefill_gain <= gain:
        return math.inf
    return rho * (1.0 - 1.0 / gain) / (1.0 / gain - 1.0 / prefill_gain)


def share_of(ratio: float, *, rho: float) -> float:
    """Return the share of prefill at `ratio` uncached input tokens per output token: r/(r + ρ)."""
    return ratio / (ratio + rho)


def attention_share(shape: ModelShape, *, prompt_tok: int) -> float:
    """Return the share of causal attention in the multiply-accumulates of a prompt's prefill.

    Args:
        shape: The model.
        prompt_tok: Length of the prompt, all of it computed [tok].

    Source:
        L·H·d·T² of score and value products over that plus linear weights times T, the output head
        left out.
    """
    if prompt_tok < 1:
        raise ScenarioError(f"prompt_tok: {prompt_tok!r} is not allowed; 1 or more")
    from firstlight import optics

    stack = optics.linear_stack(shape)
    pairs = prompt_tok * prompt_tok / 2.0
    attention = stack.attention_mac_per_pair * pairs + stack.attention_mac_per_tok * prompt_tok
    linear = stack.active_weights * float(prompt_tok)
    return attention / (attention + linear)


def attention_bound(
    shape: ModelShape,
    *,
    prompt_tok: int,
    linear_flop_per_s: float | None = None,
    attention_flop_per_s: float | None = None,
) -> float:
    """Return the most prefill can gain when only its linear layers become free.

    Args:
        shape: The model.
        prompt_tok: Length of the prompt [tok].
        linear_flop_per_s: Rate of the linear layers on the baseline; both rates or none.
        attention_flop_per_s: Rate of attention there; it is slower, so the bound is tighter.

    Raises:
        ScenarioError: Only one rate is given.

    Source:
        1/share, with work weighted by time where rates are given.
    """
    share = attention_share(shape, prompt_tok=prompt_tok)
    if (linear_flop_per_s is None) != (attention_flop_per_s is None):
        raise ScenarioError("attention_bound: give both rates or none")
    if linear_flop_per_s is None or attention_flop_per_s is None:
        return 1.0 / share
    attention = share / attention_flop_per_s
    linear = (1.0 - share) / linear_flop_per_s
    return (attention + linear) / attention


def free_prefill_bound(prefill_share: float) -> float:
    """Return the gain of the whole when prefill costs nothing: 1/(1 − p)."""
    return whole_gain(prefill_share, prefill_gain=math.inf)


TIERS = {
    "hyperscaler": "tco_hyperscaler_usd_per_hour",
    "neocloud": "tco_neocloud_usd_per_hour",
    "3-year rental": "rent_3yr_usd_per_hour",
}


def electricity_share(device: str, *, tier: str = "neocloud", usd_per_kwh: float = 0.08) -> float:
    """Return electricity in the total cost of one accelerator-hour.

    Args:
        device: Catalog id.
        tier: A key of `TIERS`.
        usd_per_kwh: Price of energy [usd/kWh].

    Raises:
        CatalogError: The device has no provisioned power or no cost on that tier.
        ScenarioError: The tier is unknown.

    Source:
        Provisioned utility power × price ÷ total cost an hour, both from InferenceX constants.
    """
    if tier not in TIERS:
        raise ScenarioError(f"tier {tier!r}; allowed: {', '.join(TIERS)}")
    record = catalog.get(device, kind="device")
    kw = record.value("provisioned_utility_w") / 1e3
    return kw * usd_per_kwh / record.value(TIERS[tier])


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """One way to choose what an optical target is compared with.

    Attributes:
        name: Device, format and kind of number.
        op_per_j: Operations a joule of the board [op/J].
        status: How far that can be trusted.
        source: Who says so.
    """

    name: str
    op_per_j: float
    status: str
    source: str


_MEASURED = (
    ("h200-sxm", "FP8", "measured_gemm_fp8block_j_per_flop", None),
    ("b200", "FP8, rows at the power cap", "measured_gemm_fp8block_j_per_flop", 1),
    ("b200", "FP8, longest rows", "measured_gemm_fp8block_j_per_flop", 0),
    ("b200", "NVFP4", "measured_gemm_fp4_j_per_flop", None),
)
_DATASHEET = (
    ("h100-sxm", "FP8", "dense_fp8_flop_per_s"),
    ("b200", "FP8", "dense_fp8_flop_per_s"),
    ("b200", "NVFP4", "dense_fp4_flop_per_s"),
    ("gb300-nvl72", "NVFP4", "dense_fp4_flop_per_s"),
)


def baselines() -> tuple[Baseline, ...]:
    """Return the usual silicon baselines at the board, least efficient first."""
    found = []
    for device, label, key, end in _MEASURED:
        fact = catalog.get(device, kind="device").fact(key)
        value = catalog.get(device, kind="device").value(key)
        if end is not None and fact.range is not None:
            value = fact.range[end]
        found.append(
            Baseline(
                name=f"{device} {label}, measured",
                op_per_j=1.0 / value,
                status=str(fact.status),
                source=fact.source,
            )
        )
    for device, label, key in _DATASHEET:
        record = catalog.get(device, kind="device")
        fact = record.fact(key)
        found.append(
            Baseline(
                name=f"{device} {label}, data sheet",
                op_per_j=record.value(key) / record.value("tdp_w"),
                status=str(fact.status),
                source=fact.source,
            )
        )
    return tuple(sorted(found, key=lambda one: one.op_per_j))


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakTarget:
    """What a peak rate within a power implies for one optical cycle.

    Attributes:
        cycle_per_s: Optical cycles a second, all engines together [1/s].
        engines_at_1_ghz: Engines of one cycle a nanosecond.
        energy_j_per_cycle: All energy of one cycle [J].
        energy_j_per_mac: All energy of one multiply-accumulate [J/MAC].
        op_per_j: Operations a joule [op/J].
    """

    cycle_per_s: float
    engines_at_1_ghz: float
    energy_j_per_cycle: float
    energy_j_per_mac: float
    op_per_j: float


def peak_target(op_per_s: float, *, power_w: float, side: int) -> PeakTarget:
    """Return what a peak rate within a power leaves for one cycle of a side × side product.

    Args:
        op_per_s: Two operations a multiply-accumulate [op/s].
        power_w: Power for everything [W].
        side: Signed inputs, and outputs, of one cycle.
    """
    cycles = op_per_s / (2.0 * side * side)
    return PeakTarget(
        cycle_per_s=cycles,
        engines_at_1_ghz=cycles / 1e9,
        energy_j_per_cycle=power_w / cycles,
        energy_j_per_mac=power_w / cycles / side / side,
        op_per_j=op_per_s / power_w,
    )


def reload_bound_s(shape: ModelShape, *, side: int, engines: int, tok_per_s: float) -> float:
    """Return the slowest reload at which one sequence decodes on light alone [s].

    Every tile of every linear layer is loaded for every token, so t_reload ≤ engines/(rate·tiles).

    Args:
        shape: The model.
        side: Signed inputs, and outputs, of one tile.
        engines: Engines that share the tiles.
        tok_per_s: Tokens a second.
    """
    from firstlight import optics

    tiles = sum(
        layer.count * layer.top_k * -(-layer.k // side) * -(-layer.n // side)
        for layer in optics.linear_stack(shape).layers
    )
    return engines / (tok_per_s * tiles)


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What a demand multiple, a price and a power imply.

    Attributes:
        usd_per_w: Price of the power, all in [usd/W].
        efficiency_ratio: Efficiency the power already presumes: demand over growth of power.
        doubling_s: Time in which demand doubles [s].
        over_today: (estimate, price over that estimate) of today's capital [1].
        world_electricity_frac: The power over the world's average electricity.
    """

    usd_per_w: float
    efficiency_ratio: float
    doubling_s: float
    over_today: tuple[tuple[str, float], ...]
    world_electricity_frac: float


WORLD_ELECTRICITY_W = 3.54e12
"""World average electricity [W], recalled."""
INSTALLED_W = 2e10
"""AI capacity installed today [W], the level of a public remark."""


def demand(
    *, demand_ratio: float = 1e3, years: float = 5.0, usd: float = 1e14, power_w: float = 1e12,
    installed_w: float = INSTALLED_W,
) -> Demand:  # fmt: skip
    """Return what "1,000× in five years, $100T, 1,000 GW" implies.

    Args:
        demand_ratio: Growth of demand.
        years: Time it takes [year].
        usd: Its price [usd].
        power_w: Its power [W].
        installed_w: Power installed today [W].
    """
    from firstlight.units import YEAR_S

    estimates = []
    for record in catalog.records("facility"):
        if "capex_usd_per_w" in record:
            fact = record.fact("capex_usd_per_w")
            value = fact.range[1] if fact.range else record.value("capex_usd_per_w")
            estimates.append((record.id, usd / power_w / value))
    return Demand(
        usd_per_w=usd / power_w,
        efficiency_ratio=demand_ratio / (power_w / installed_w),
        doubling_s=years * YEAR_S / math.log2(demand_ratio),
        over_today=tuple(sorted(estimates, key=lambda item: -item[1])),
        world_electricity_frac=power_w / WORLD_ELECTRICITY_W,
    )


def _share(value: float) -> None:
    if not 0.0 <= value <= 1.0:
        raise ScenarioError(f"share {value!r} is not allowed; 0 to 1")


def _gain(value: float) -> None:
    if not value > 0:
        raise ScenarioError(f"gain {value!r} is not allowed; above 0")


H100_LINEAR_FLOP_PER_S = 1.979e15 * 0.55
"""Linear layers on H100 at FP8 and 55 % of the peak on the data sheet [flop/s]."""
H100_ATTENTION_FLOP_PER_S = 5.05e14
"""Causal attention measured on H100 at prompts of 8k to 16k [flop/s]."""
MEASURED_PREFILL_SHARE = 2_804_438.0 / 6_369_779.0
"""Prefill's share of GPU-board energy in InferenceX PR #2934 (72:1 input to output, 93 % cached)."""
