"""Nothing in the answer is a constant: over random scenarios every number moves."""

from __future__ import annotations

import numpy as np
import pytest

from firstlight import evaluate, report, workload

SCENARIOS = 20
OWN = {
    "schema": "the version of the format",
    ".gpu-colocated.scopes.*.gain_vs_colocated": "a design over itself is 1",
    ".gpu-disaggregated.scopes.*.gain_vs_disaggregated": "a design over itself is 1",
    ".gpu-disaggregated.gpu_equivalents_freed": "a design frees none of itself",
    ".gpu-colocated.energy_j_per_request_by_part.optics": "no optics",
    ".gpu-colocated.energy_j_per_request_by_part.attention": "no attention apart",
    ".gpu-colocated.energy_j_per_request_by_part.kv_transfer": "no hand-over",
    ".gpu-disaggregated.energy_j_per_request_by_part.optics": "no optics",
    ".gpu-disaggregated.energy_j_per_request_by_part.attention": "no attention apart",
    ".optical+gpu.energy_j_per_request_by_part.gpu_prefill": "no prefill on GPUs",
    ".gpu-colocated.cell.servers.mixed": "the cell of one pool is one server",
    ".optical+gpu.cell.tp.prefill": "an optical server is one replica",
    ".cell.chunk_tok.decode": "decode steps are bounded by sequences, not by tokens",
    "provenance": "inputs are as constant as they are given",
    "scenario_document": "inputs, as they were asked",
}
"""Numbers that are the same in every scenario by definition, and why."""


def random_scenario(small, rng: np.random.Generator, folder):
    # some contexts are so long that memory for their KV binds
    isl, osl = int(2 ** rng.uniform(8, 13)), int(2 ** rng.uniform(4, 8))
    trace = workload.poisson_trace(
        float(rng.uniform(1, 4)), duration_s=20.0, isl=isl, osl=osl, seed=int(rng.integers(99)),
        name=f"random-{isl}-{osl}",
    )  # fmt: skip
    path = workload.write_trace(trace, path=folder / f"{isl}-{osl}.csv")
    changes = {
        "trace": str(path),
        "model": str(rng.choice(["llama-3.1-70b", "llama-3.1-8b", "qwen3-32b"])),
        "power_w": float(rng.uniform(60e3, 400e3)),
        "pue": float(rng.uniform(1.05, 1.5)),
        "electricity_usd_per_kwh": float(rng.uniform(0.03, 0.3)),
        "carbon_g_per_kwh": float(rng.uniform(20, 800)),
        "cached_frac": float(rng.uniform(0.0, 0.9)),
        "gpu_memory_utilization_frac": float(rng.uniform(0.6, 0.95)),
        "correlation_s": float(rng.uniform(1, 20)),
        "ttft_s": float(rng.uniform(0.5, 8)),
        "tpot_s": float(rng.uniform(0.03, 0.2)),
        "quantile": float(rng.uniform(0.8, 0.99)),
        "t_reload_s": float(rng.uniform(2e-6, 20e-6)),
        "accumulator_sram_bytes": int(rng.integers(32, 257)) * 2**20,
        "f_cycle_hz": float(rng.uniform(0.5e9, 2e9)),
        "optical_price_ratio": float(rng.uniform(0.3, 3)),
        "seed": int(rng.integers(1000)),
        "weights": str(rng.choice(["fp8", "bf16"])),
    }
    return small.replace(**changes)


def leaves(value, path=""):
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, f"{path}.{key.partition(':')[0]}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            names = (
                (item.get(key) for key in ("name", "silicon", "field", "path"))
                if isinstance(item, dict)
                else ()
            )
            yield from leaves(item, f"{path}.{next(filter(None, names), index)}")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path, value


def pooled(path: str) -> str:
    """Return a path under which the worth of a resource counts over all pools and designs.

    A pool with room to spare has a marginal of exactly 0, in small scenarios as often as not.
    """
    _, others, resource = path.partition(".binding.others.")
    return f"{others}{resource.partition(' @ ')[0]}" if others else path


def exempt(path: str) -> bool:
    from fnmatch import fnmatch

    return any(fnmatch(path, f"*{pattern}*") for pattern in OWN)


def answered(small, folder, *, seed: int, count: int) -> list[dict]:
    rng = np.random.default_rng(seed)
    scenarios = [random_scenario(small, rng, folder) for _ in range(count)]
    return [report.document(evaluate.compare(scenario)) for scenario in scenarios]


@pytest.fixture(scope="module")
def documents(small, tmp_path_factory):
    return answered(small, tmp_path_factory.mktemp("random"), seed=20, count=SCENARIOS)


def test_no_number_is_constant(documents):
    seen: dict[str, set[float]] = {}
    for document in documents:
        for path, value in leaves(document):
            seen.setdefault(pooled(path), set()).add(value)
    constant = [path for path, values in seen.items() if len(values) == 1 and not exempt(path)]
    assert not constant
    assert len(seen) > 200


def is_whole(document: dict) -> None:
    assert [design["name"] for design in document["designs"]] == [
        "gpu-colocated", "gpu-disaggregated", "optical+gpu",
    ]  # fmt: skip
    for design in document["designs"]:
        assert design["feasible"] == (design["reason"] is None)
        assert design["feasible"] == (design["goodput_request_per_s"] > 0)
        if design["feasible"]:
            parts = design["energy_j_per_request_by_part"].values()
            assert sum(parts) == pytest.approx(design["energy_j_per_request"])
            assert all(0 < share <= 1 for share in design["utilization"].values())


def test_every_answer_is_whole(documents):
    for document in documents:
        is_whole(document)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_every_answer_of_many_is_whole(small, tmp_path):
    for document in answered(small, tmp_path, seed=21, count=200):
        is_whole(document)


def test_most_random_scenarios_can_be_met(documents):
    feasible = [all(d["feasible"] for d in document["designs"]) for document in documents]
    # or the tests above would say little
    assert sum(feasible) >= SCENARIOS // 2
