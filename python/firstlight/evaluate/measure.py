"""From what the scheduler counted to seconds, joules and dollars of one cell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from firstlight import cost, schedule
from firstlight.evaluate.answer import Parts, Percentiles

if TYPE_CHECKING:
    from firstlight.evaluate.capacity import Run
    from firstlight.evaluate.cell import Cell, Group

PS_PER_S = 1e12
PJ_PER_J = 1e12
PREFILL = ("prefill_linear_pj", "prefill_attn_pj", "prefill_head_pj")
DECODE = ("decode_linear_pj", "decode_attn_pj", "decode_head_pj")


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where the servers stand.

    Attributes:
        pue: Facility energy over server and network energy.
        network_frac: Power of switches and modules over server peak; they draw it all the time.
        kv_j_per_bit: Energy to move a bit between servers [J/bit].
        margin_ratio: Planning headroom over the sum of peaks.
        rates: Prices.
        sunk: Servers whose price is paid already, by id.
    """

    pue: float
    network_frac: float
    kv_j_per_bit: float
    margin_ratio: float
    rates: cost.Rates
    sunk: frozenset[str] = frozenset()

    def provisioned_w(self, peak_w: float) -> float:
        """Return what the budget is charged for servers of that peak, at the facility [W]."""
        return peak_w * (1.0 + self.network_frac) * self.pue * self.margin_ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class Booked:
    """Something booked to prefill and decode."""

    prefill: float
    decode: float

    @property
    def total(self) -> float:
        """Both together."""
        return self.prefill + self.decode


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One cell in its window.

    Attributes:
        rate_request_per_s: Load offered to the cell [request/s].
        attainment_frac: Share of its arrivals that met the service level.
        holds: Whether that is enough.
        rejected: Requests longer than a replica's KV memory.
        window_s: Length of the window [s].
        completed: Requests that arrived in it and were answered whole.
        met: Of these, requests that met the service level.
        parts_j: Energy in the window by part [J].
        energy_j: The same, booked to prefill and decode, at the facility [J].
        linear_j: Prefill of linear layers at the accelerator, above idle [J].
        cost_usd: Cost of the window [usd].
        input_tok: Prompt tokens offered in the window.
        uncached_tok: Of these, tokens whose KV was not present.
        output_tok: Tokens that came out in the window.
        utilization: Busy share of each pool.
        ttft_s: Time to first token.
        tpot_s: Time per output token after the first.
        itl_s: Gaps between tokens, pooled over requests.
        e2e_s: Arrival to last token.
    """

    rate_request_per_s: float
    attainment_frac: float
    holds: bool
    rejected: int
    window_s: float
    completed: int
    met: int
    parts_j: Parts
    energy_j: Booked
    linear_j: float
    cost_usd: Booked
    input_tok: int
    uncached_tok: int
    output_tok: int
    utilization: dict[str, float]
    ttft_s: Percentiles | None
    tpot_s: Percentiles | None
    itl_s: Percentiles | None
    e2e_s: Percentiles | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pool:
    """One group's window: energy at the plug before cooling, booked."""

    parts: dict[str, float]
    booked: Booked
    linear_j: float
    busy_frac: float
    prefill_share: float


def measure(run: Run, cell: Cell, *, site: Site) -> Measured:
    """Return seconds, joules and dollars of one simulated cell.

    Args:
        run: The simulated load.
        cell: The cell it ran on.
        site: Where it stands.
    """
    outcome = run.outcome
    start, end = outcome.window_ps
    window_s = (end - start) / PS_PER_S
    pools = [
        _pool(group, counters, window_s=window_s, cell=cell, site=site)
        for group, counters in zip(cell.groups, outcome.window, strict=True)
    ]
    parts = dict.fromkeys(Parts.__struct_fields__, 0.0)
    for pool in pools:
        for name, energy_j in pool.parts.items():
            parts[name] += energy_j
    parts["cooling"] = (site.pue - 1.0) * sum(parts.values())
    energy = Booked(
        prefill=site.pue * sum(pool.booked.prefill for pool in pools),
        decode=site.pue * sum(pool.booked.decode for pool in pools),
    )
    arrivals = outcome.arrivals
    counted = run.counted
    done = counted & (outcome.last_ps < schedule.NEVER)
    return Measured(
        rate_request_per_s=run.rate_request_per_s,
        attainment_frac=run.attainment_frac,
        holds=run.holds,
        rejected=int((outcome.state == schedule.STATES.index("rejected")).sum()),
        window_s=window_s,
        completed=int(done.sum()),
        met=run.met,
        parts_j=Parts(**parts),
        energy_j=energy,
        linear_j=sum(pool.linear_j for pool in pools),
        cost_usd=_cost(cell, pools, energy, window_s=window_s, site=site),
        input_tok=int(arrivals.isl_tok[counted].sum(dtype=np.int64)),
        uncached_tok=int((arrivals.isl_tok - arrivals.cached_tok)[counted].sum(dtype=np.int64)),
        output_tok=sum(counters["emitted_tok"] for counters in outcome.window),
        utilization={
            f"{group.role}:{group.server.id}": pool.busy_frac
            for group, pool in zip(cell.groups, pools, strict=True)
        },
        **_latencies(run),
    )


def _pool(
    group: Group, counters: dict[str, int], *, window_s: float, cell: Cell, site: Site
) -> _Pool:
    server = group.server
    busy_s = (counters["prefill_ps"] + counters["decode_ps"]) / PS_PER_S
    busy_frac = min(busy_s / (window_s * group.count * group.replicas), 1.0)
    prefill_share = counters["prefill_ps"] / PS_PER_S / busy_s if busy_s else _idle_share(group)
    prefill_j = sum(counters[name] for name in PREFILL) / PJ_PER_J
    decode_j = sum(counters[name] for name in DECODE) / PJ_PER_J
    attention_j = counters["prefill_attn_pj"] / PJ_PER_J
    parts = dict.fromkeys(Parts.__struct_fields__, 0.0)
    if server.kind == "optical":
        parts["optics"] = prefill_j + decode_j - attention_j
        parts["attention"] = attention_j
    else:
        parts["gpu_prefill"] = prefill_j
        parts["gpu_decode"] = decode_j
    host_w = server.host_idle_w + (server.host_peak_w - server.host_idle_w) * busy_frac
    network_w = site.network_frac * server.peak_w
    loss_j = (server.supply_factor - 1.0) * (prefill_j + decode_j)
    parts["host"] = (host_w + network_w) * group.count * window_s + loss_j
    parts["idle"] = server.floor_w * group.count * window_s
    wire_bits = counters["pulled_tok"] * cell.serving.kv_bytes_per_tok * 8.0
    parts["kv_transfer"] = wire_bits * site.kv_j_per_bit
    standing = parts["host"] + parts["idle"]
    booked = Booked(
        # The hand-over is what prefill apart costs, so the prompt pays for it.
        prefill=prefill_j + parts["kv_transfer"] + standing * prefill_share,
        decode=decode_j + standing * (1.0 - prefill_share),
    )
    return _Pool(
        parts=parts,
        booked=booked,
        linear_j=counters["prefill_linear_pj"] / PJ_PER_J,
        busy_frac=busy_frac,
        prefill_share=prefill_share,
    )


def _idle_share(group: Group) -> float:
    """Whom a pool that did nothing is booked to."""
    return {"prefill": 1.0, "decode": 0.0, "mixed": 0.5}[group.role]


def _cost(cell: Cell, pools: list[_Pool], energy: Booked, *, window_s: float, site: Site) -> Booked:
    prefill = cost.energy_usd(energy.prefill, rates=site.rates)
    decode = cost.energy_usd(energy.decode, rates=site.rates)
    for group, pool in zip(cell.groups, pools, strict=True):
        server = group.server
        standing = (
            group.count
            * window_s
            * cost.standing_usd_per_s(
                0.0 if server.id in site.sunk else server.price_usd,
                site.provisioned_w(server.peak_w) / site.pue,
                rates=site.rates,
            )
        )
        prefill += standing * pool.prefill_share
        decode += standing * (1.0 - pool.prefill_share)
    return Booked(prefill=prefill, decode=decode)


def _latencies(run: Run) -> dict[str, Percentiles | None]:
    outcome, arrivals = run.outcome, run.outcome.arrivals
    began = run.counted & (outcome.first_ps < schedule.NEVER)
    done = run.counted & (outcome.last_ps < schedule.NEVER)
    several = done & (arrivals.osl_tok > 1)
    first, last, arrival = outcome.first_ps, outcome.last_ps, arrivals.arrival_ps
    gaps = (arrivals.osl_tok[several] - 1).astype(np.float64)
    return {
        "ttft_s": _percentiles((first[began] - arrival[began]) / PS_PER_S),
        "tpot_s": _percentiles((last[several] - first[several]) / PS_PER_S / gaps),
        "itl_s": _gap_percentiles(outcome.gap_counts, outcome.gap_sum_ps),
        "e2e_s": _percentiles((last[done] - arrival[done]) / PS_PER_S),
    }


def _percentiles(values: np.ndarray) -> Percentiles | None:
    if not len(values):
        return None
    p50, p90, p99 = (float(v) for v in np.percentile(values, [50, 90, 99]))
    return Percentiles(mean=float(values.mean()), p50=p50, p90=p90, p99=p99)


def _gap_percentiles(counts: np.ndarray, sum_ps: int) -> Percentiles | None:
    """Percentiles of a histogram whose buckets are at most 0.8 % wide, at the buckets' middles."""
    below = np.cumsum(counts, dtype=np.float64)
    if not below[-1]:
        return None
    edges = schedule.gap_edges_ps().astype(np.float64)

    def quantile(q: float) -> float:
        bucket = int(np.searchsorted(below, q * below[-1]))
        above = edges[bucket + 1] if bucket + 1 < len(edges) else edges[bucket]
        return float(edges[bucket] + above) / 2.0 / PS_PER_S

    return Percentiles(
        mean=sum_ps / float(below[-1]) / PS_PER_S,
        p50=quantile(0.5),
        p90=quantile(0.9),
        p99=quantile(0.99),
    )
