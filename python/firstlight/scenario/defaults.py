"""What a scenario takes when it does not say: names of catalog assumptions, each with a source."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from firstlight import catalog

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULTS: Mapping[str, str] = MappingProxyType(
    {
        "schema": "schema_version",
        "name": "scenario_name",
        "model": "model_id",
        "first_token": "first_token",
        "seed": "seed",
        "precision.weights": "weights_format",
        "precision.kv": "kv_format",
        "workload.preset": "preset_id",
        "workload.trace": "trace_id",
        "workload.context_tok": "context_tok",
        "workload.output_tok": "output_tok",
        "workload.cached_frac": "cached_frac",
        "workload.correlation_s": "correlation_s",
        "workload.shared_prefix_tok": "shared_prefix_tok",
        "slo.ttft_s": "slo_ttft_s",
        "slo.tpot_s": "slo_tpot_s",
        "slo.quantile": "slo_quantile_frac",
        "facility.power_w": "power_w",
        "facility.boundary": "power_boundary",
        "facility.pue": "pue",
        "facility.electricity_usd_per_kwh": "electricity_usd_per_kwh",
        "facility.carbon_g_per_kwh": "carbon_g_per_kwh",
        "facility.rack_power_w": "rack_limit",
        "facility.installed": "installed_servers",
        "assumptions": "assumption_overrides",
        "design": "designs",
        "design.precision": "design_precision",
        "design.policy.batching": "batching",
        "design.policy.chunk_tok": "chunk_policy",
        "design.policy.disaggregate": "disaggregate_policy",
        "design.policy.local_below_tok": "local_below_tok",
        "design.pools.share": "pool_share",
        "design.pools.count": "pool_servers",
        "design.pools.tp": "tensor_parallel",
        "design.pools.band": "pool_band",
    }
)
"""Field -> the catalog assumption that is its default, with its source. `design` fields leave out
the design's name and the pool's position."""


def default(field: str) -> float | str:
    """Return the default of a field, from the catalog."""
    value = catalog.assumption(DEFAULTS[field]).value
    if isinstance(value, tuple):
        raise TypeError(f"Invariant: the default of {field} is one value")
    return value
