"""Parts sum to wholes, and the same energy is found whichever way it is added up."""

from __future__ import annotations

import pytest

DESIGNS = ("gpu-colocated", "gpu-disaggregated", "optical+gpu")
CHANGES = ({}, {"model": "llama-3.1-8b", "pue": 1.5}, {"context_tok": 2048, "cached_frac": 0.0})


@pytest.fixture(params=range(len(CHANGES)))
def found(answer, request):
    return answer(**CHANGES[request.param])


@pytest.mark.parametrize("name", DESIGNS)
class TestDesign:
    def test_parts_sum_to_the_whole(self, found, name):
        design = found.design(name)
        parts = design.energy_j_per_request_by_part
        values = [getattr(parts, part) for part in parts.__struct_fields__]
        assert all(value >= 0 for value in values)
        assert sum(values) == pytest.approx(design.energy_j_per_request, rel=1e-12)

    def test_mean_power_times_time_is_the_energy(self, found, name):
        design = found.design(name)
        assert design.power_w.mean == pytest.approx(
            design.energy_j_per_request * design.request_per_s, rel=1e-9
        )

    def test_input_and_output_energy_sum_to_the_whole(self, found, name):
        design = found.design(name)
        spent_w = (
            design.energy_j_per_tok_input * design.input_tok_per_s
            + design.energy_j_per_tok_output * design.output_tok_per_s
        )
        assert spent_w == pytest.approx(design.power_w.mean, rel=1e-9)

    def test_input_and_output_cost_sum_to_the_whole(self, found, name):
        design = found.design(name)
        rates = design.input_tok_per_s, design.output_tok_per_s
        split = (
            design.cost_usd_per_mtok_input * rates[0] + design.cost_usd_per_mtok_output * rates[1]
        ) / 1e6
        assert split == pytest.approx(design.cost_usd_per_request * design.request_per_s, rel=1e-9)
        assert split == pytest.approx(design.cost_usd_per_mtok_blended * sum(rates) / 1e6, rel=1e-9)

    def test_cooling_is_the_rest_of_pue(self, found, name):
        design = found.design(name)
        pue = next(fact.value for fact in found.provenance if fact.path.endswith("facility.pue"))
        parts = design.energy_j_per_request_by_part
        assert parts.cooling == pytest.approx((1 - 1 / pue) * design.energy_j_per_request, rel=1e-9)

    def test_servers_are_whole_cells(self, found, name):
        design = found.design(name)
        cell = sum(design.cell.servers.values())
        assert sum(design.servers.values()) == cell * design.cell.count

    def test_scopes_nest(self, found, name):
        scopes = found.design(name).scopes
        energies = [scopes[s].energy_j_per_request for s in ("linear_only", "prefill", "inference")]
        assert 0 < energies[0] < energies[1] < energies[2]
        assert energies[2] == pytest.approx(found.design(name).energy_j_per_request, rel=1e-9)

    def test_percentiles_are_in_order(self, found, name):
        design = found.design(name)
        for times in (design.ttft_s, design.tpot_s, design.itl_s, design.e2e_s):
            assert 0 < times.p50 <= times.p90 <= times.p99
        assert design.e2e_s.p50 > design.ttft_s.p50

    def test_shares_are_shares(self, found, name):
        design = found.design(name)
        assert 0.9 <= design.attainment_frac <= 1
        assert all(0 < share <= 1 for share in design.utilization.values())


def test_gains_are_ratios_of_the_energies_beside_them(found):
    for design in found.designs:
        for name, scope in design.scopes.items():
            for rival, gain in (
                ("gpu-colocated", scope.gain_vs_colocated),
                ("gpu-disaggregated", scope.gain_vs_disaggregated),
            ):
                other = found.design(rival).scopes[name]
                assert other.boundary == scope.boundary
                assert gain == pytest.approx(
                    other.energy_j_per_request / scope.energy_j_per_request
                )


def test_only_parts_a_design_has_take_energy(found):
    parts = {name: found.design(name).energy_j_per_request_by_part for name in DESIGNS}
    assert parts["gpu-colocated"].optics == parts["gpu-disaggregated"].optics == 0
    assert parts["gpu-colocated"].kv_transfer == 0
    assert parts["gpu-disaggregated"].kv_transfer > 0
    assert parts["optical+gpu"].gpu_prefill == 0
    assert parts["optical+gpu"].optics > 0
