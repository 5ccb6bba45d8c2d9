"""The scenario: defaults with sources, round trips, changes."""

from __future__ import annotations

import copy
import math
import pickle
import tomllib

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firstlight import catalog
from firstlight.catalog import Status
from firstlight.errors import OutputError, ScenarioError
from firstlight.scenario import Scenario, rules
from firstlight.scenario.defaults import DEFAULTS

DEFAULT = Scenario.default()


def test_the_shipped_scenario_asks_the_question_it_is_said_to_ask():
    assert DEFAULT.model == "llama-3.1-70b"
    assert DEFAULT.workload.trace == "azure-2023-conv"
    assert (DEFAULT.precision.weights, DEFAULT.precision.kv) == ("fp8", "fp8")
    assert DEFAULT.facility.power_w == 1e6
    assert DEFAULT.facility.pue == 1.2
    assert (DEFAULT.slo.ttft_s, DEFAULT.slo.tpot_s, DEFAULT.slo.quantile) == (2.0, 0.05, 0.9)
    assert DEFAULT.workload.cached_frac == 0.5
    names = [design.name for design in DEFAULT.designs]
    assert names == ["gpu-colocated", "gpu-disaggregated", "optical+gpu"]
    optical = DEFAULT.design("optical+gpu").pool("prefill")
    assert optical.server == "iris-nova-optimistic"
    assert optical.band == ("iris-nova-conservative", "iris-nova-optimistic")


def test_an_empty_question_is_the_shipped_one_but_for_its_name():
    assert Scenario.from_document({}).replace(name=DEFAULT.name) == DEFAULT


def test_every_default_has_a_source_or_is_marked_assumed():
    bare = Scenario.from_document({})
    for path in bare.paths():
        fact = bare.provenance(path)
        assert fact.source
        assert fact.source != "given in the scenario", path
        assert isinstance(fact.status, Status)
        if fact.status is Status.ASSUMED:
            assert fact.note, path


def test_provenance_reaches_every_field_of_every_struct():
    def fields(value: object, path: str) -> set[str]:
        if hasattr(value, "__struct_fields__"):
            found = set()
            for name in value.__struct_fields__:
                found |= fields(getattr(value, name), f"{path}.{name}".lstrip("."))
            return found
        return {path}

    paths = set(DEFAULT.paths())
    plain = {path for path in fields(DEFAULT, "") if not path.startswith("designs")}
    plain -= {"uncertain"}  # says which of the others are ranges
    assert plain <= paths
    for design in DEFAULT.designs:
        root = f"design.{design.name}"
        assert {root, f"{root}.precision"} <= paths
        assert {f"{root}.policy.{name}" for name in design.policy.__struct_fields__} <= paths
        for index, pool in enumerate(design.pools):
            names = {f"{root}.pools.{index}.{name}" for name in pool.__struct_fields__}
            assert names <= paths


def test_what_the_user_gave_is_marked_as_given():
    mine = DEFAULT.replace(cached_frac=0.2, trace="azure-2023-code")
    assert mine.provenance("workload.cached_frac").source == "given in the scenario"
    assert mine.provenance("workload.cached_frac").status is Status.ASSUMED
    assert DEFAULT.provenance("workload.cached_frac").status is Status.ESTIMATE
    # the mean of the Azure conversation hour says nothing about another trace
    assert DEFAULT.provenance("workload.context_tok").value == 1154.7
    assert mine.provenance("workload.context_tok").value == "as the workload has it"
    changed = DEFAULT.replace(**{"design.gpu-colocated.pools.both.server": "b200-8x"})
    path = "design.gpu-colocated.pools.0.server"
    assert changed.provenance(path).source == "given in the scenario"
    assert DEFAULT.provenance(path).value == "h100-sxm-8x"
    with pytest.raises(ScenarioError, match=r"did you mean 'facility\.power_w'"):
        DEFAULT.provenance("facility.power")


def test_defaults_are_stated_once_in_the_catalog():
    for field, name in DEFAULTS.items():
        assert name in catalog.assumptions(), (field, name)


def test_a_scenario_survives_the_file(tmp_path):
    path = tmp_path / "rack.toml"
    DEFAULT.dump(path)
    assert Scenario.load(path) == DEFAULT
    assert list(tmp_path.iterdir()) == [path]


def scenarios() -> st.SearchStrategy[Scenario]:
    names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20).filter(str.strip)
    positive = st.floats(1e-3, 1e9)
    number = st.one_of(positive, st.tuples(positive, positive).map(lambda p: f"{min(p)}..{max(p)}"))
    pool = st.fixed_dictionaries(
        {"server": st.sampled_from(["h100-sxm-8x", "b200-8x", "mi300x-8x"])},
        optional={
            "share": st.one_of(st.just("auto"), st.floats(0.01, 0.5)),
            "tp": st.sampled_from(["auto", 1, 2, 4, 8]),
        },
    )
    policy = st.fixed_dictionaries(
        {}, optional={"chunk_tok": st.one_of(st.just("auto"), st.integers(16, 10**6))}
    )
    formats = st.fixed_dictionaries(
        {},
        optional={
            "weights": st.sampled_from(rules.WEIGHT_FORMATS),
            "kv": st.sampled_from(rules.KV_FORMATS),
        },
    )

    def design(name, first, second, policy, formats):
        pools = [first | {"role": "prefill"}, second | {"role": "decode"}]
        return {"name": name, "policy": policy, "pools": pools, "precision": formats}

    designs = st.lists(
        st.builds(design, names, pool, pool, policy, formats),
        min_size=1,
        max_size=3,
        unique_by=lambda d: d["name"],
    )
    workload = st.fixed_dictionaries(
        {"cached_frac": st.floats(0, 1, exclude_max=True)},
        optional={
            "preset": st.sampled_from(rules.PRESETS),
            "context_tok": st.integers(1, 10**6),
            "output_tok": st.integers(1, 10**6),
            "correlation_s": st.one_of(st.floats(0, 1e9), st.just(math.inf)),
        },
    )
    facility = st.fixed_dictionaries(
        {"power_w": st.floats(1e-3, 1e12)},
        optional={
            "pue": st.floats(1, 10),
            "installed": st.dictionaries(
                st.sampled_from(["h100-sxm-8x", "b200-8x"]), st.integers(1, 99)
            ),
            "rack_power_w": positive,
        },
    )
    return st.fixed_dictionaries(
        {"design": designs, "workload": workload, "facility": facility},
        optional={
            "name": names,
            "model": st.sampled_from(["llama-3.1-8b", "deepseek-v3", "gpt-oss-20b"]),
            "seed": st.integers(0, 2**63 - 1),
            "assumptions": st.fixed_dictionaries(
                {},
                optional={
                    "t_reload_s": number,
                    "optical_price_ratio": number,
                    "double_buffer": st.booleans(),
                },
            ),
        },
    ).map(Scenario.from_document)


@settings(max_examples=60, deadline=None)
@given(scenarios())
def test_any_scenario_survives_toml(scenario):
    again = Scenario.from_document(tomllib.loads(scenario.to_toml()))
    assert again == scenario
    assert again.hash() == scenario.hash()
    assert hash(again) == hash(scenario)


def test_a_scenario_is_frozen_through_and_through():
    rack = DEFAULT.replace(installed={"h100-sxm-8x": 64}, t_reload_s=1e-6)
    with pytest.raises(AttributeError):
        rack.name = "other"
    for table in (rack.facility.installed, rack.assumptions):
        with pytest.raises(TypeError, match="frozen"):
            table["x"] = 1
        with pytest.raises(TypeError, match="frozen"):
            table.update(x=1)
    assert pickle.loads(pickle.dumps(rack)) == rack  # noqa: S301  # our own bytes
    assert copy.deepcopy(rack) == rack


def test_the_hash_is_of_the_question_and_not_of_its_name():
    assert DEFAULT.replace(name="other").hash() == DEFAULT.hash()
    assert DEFAULT.replace(seed=1).hash() != DEFAULT.hash()
    assert len(DEFAULT.hash()) == 16


@pytest.mark.parametrize(
    ("changes", "path", "value"),
    [
        ({"power_w": 2e6}, "facility.power_w", 2e6),
        ({"power_w": "2 MW"}, "facility.power_w", 2e6),
        ({"context_tok": 4096}, "workload.context_tok", 4096),
        ({"context_tok": "16 ktok"}, "workload.context_tok", 16000),
        ({"cached_frac": "50 %"}, "workload.cached_frac", 0.5),
        ({"correlation_s": math.inf}, "workload.correlation_s", math.inf),
        ({"ttft_s": "500 ms"}, "slo.ttft_s", 0.5),
        ({"weights": "nvfp4"}, "precision.weights", "nvfp4"),
        ({"model": "llama-3.1-8b"}, "model", "llama-3.1-8b"),
        ({"seed": 7}, "seed", 7),
        ({"facility.power_w": 5e5}, "facility.power_w", 5e5),
        ({"electricity_usd_per_kwh": "80 $/MWh"}, "facility.electricity_usd_per_kwh", 0.08),
        ({"rack_power_w": "40 kW"}, "facility.rack_power_w", 4e4),
        ({"preset": "rag"}, "workload.preset", "rag"),
        ({"first_token": "decode"}, "first_token", "decode"),
    ],
)
def test_replace_routes_a_name_to_its_section(changes, path, value):
    found = DEFAULT.replace(**changes)
    for part in path.split("."):
        found = getattr(found, part)
    assert found == value


def test_replace_reaches_designs():
    every = DEFAULT.replace(chunk_tok=512, tp=4)
    assert [design.policy.chunk_tok for design in every.designs] == [512, 512, 512]
    assert every.design("gpu-colocated").pools[0].tp == 4
    # an optical server has no tensor-parallel degree
    assert every.design("optical+gpu").pool("prefill").tp == "auto"
    one = DEFAULT.replace(**{"design.optical+gpu.pools.prefill.share": 0.3})
    assert one.design("optical+gpu").pool("prefill").share == 0.3
    assert one.design("gpu-disaggregated") == DEFAULT.design("gpu-disaggregated")
    by_position = DEFAULT.replace(**{"design.optical+gpu.pools.0.server": "tetra-2029-target"})
    assert by_position.design("optical+gpu").pool("prefill").server == "tetra-2029-target"
    own = DEFAULT.replace(**{"design.gpu-colocated.precision.weights": "bf16"})
    design = own.design("gpu-colocated")
    assert (own.precision_of(design).weights, own.precision_of(design).kv) == ("bf16", "fp8")
    fewer = DEFAULT.replace(designs=DEFAULT.designs[:1])
    assert fewer.designs == DEFAULT.designs[:1]


def test_a_preset_takes_the_place_of_the_trace_and_the_reverse():
    preset = DEFAULT.replace(preset="rag")
    assert (preset.workload.preset, preset.workload.trace) == ("rag", None)
    back = preset.replace(trace="azure-2023-code")
    assert (back.workload.preset, back.workload.trace) == (None, "azure-2023-code")


def test_none_takes_an_optional_field_away():
    assert DEFAULT.replace(context_tok=4096).replace(context_tok=None) == DEFAULT


def test_an_assumption_is_a_number_or_the_midpoint_of_a_range():
    plain = DEFAULT.assumption("t_reload_s")
    assert (plain.value, plain.low, plain.high, plain.given) == (1e-5, 0, 0.017, False)
    number = DEFAULT.replace(t_reload_s="20 us").assumption("t_reload_s")
    assert (number.value, number.low, number.high, number.given) == (2e-5, 2e-5, 2e-5, True)
    assert number.fact.status is Status.ASSUMED
    span = DEFAULT.replace(t_reload_s="5 us..20 us").assumption("t_reload_s")
    assert (span.value, span.low, span.high) == (pytest.approx(1.25e-5), 5e-6, 2e-5)
    bare = DEFAULT.replace(optical_price_ratio="0.5..2").assumption("optical_price_ratio")
    assert (bare.value, bare.low, bare.high) == (1.25, 0.5, 2.0)
    slow = DEFAULT.assumption("t_reload_s", engine="iris-nova-conservative")
    assert slow.value == 6.9e-4
    assert DEFAULT.assumption("it_life_years").value == 5
    with pytest.raises(ScenarioError, match="did you mean 't_reload_s'"):
        DEFAULT.assumption("t_relaod_s")


def test_overrides_are_applied_to_engine_and_server_records():
    engine = catalog.get("iris-nova-optimistic", kind="engine")
    changed = DEFAULT.replace(t_reload_s=1e-6, double_buffer=False, adc_bits="ideal").applied(
        engine
    )
    assert changed.value("t_reload_s") == 1e-6
    assert changed.get("double_buffer") is False
    assert changed.get("adc_bits") == "ideal"
    assert changed.value("f_cycle_hz") == engine.value("f_cycle_hz")
    assert engine.value("t_reload_s") == 1e-5
    assert DEFAULT.applied(engine) is engine


def test_a_model_may_be_a_table_of_shapes():
    shapes = catalog.get("llama-3.1-8b", kind="model").values()
    custom = DEFAULT.replace(model=shapes | {"name": "mine"})
    assert custom.model["hidden_size"] == 4096
    assert Scenario.from_document(tomllib.loads(custom.to_toml())) == custom


def test_a_trace_file_is_found_beside_the_scenario(tmp_path):
    (tmp_path / "trace.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n")
    path = tmp_path / "rack.toml"
    path.write_text('[workload]\ntrace = "trace.csv"\n')
    scenario = Scenario.load(path)
    assert scenario.workload.trace == str((tmp_path / "trace.csv").resolve())
    scenario.dump(tmp_path / "again.toml")
    assert Scenario.load(tmp_path / "again.toml") == scenario


def test_a_constructor_call_is_checked_too():
    with pytest.raises(ScenarioError, match=r"facility\.power_w: -1;"):
        msgspec.structs.replace(
            DEFAULT, facility=msgspec.structs.replace(DEFAULT.facility, power_w=-1.0)
        )


def test_what_cannot_be_written_is_said_and_nothing_is_left(tmp_path):
    with pytest.raises(OutputError, match="nothing was written"):
        DEFAULT.dump(tmp_path / "nowhere" / "rack.toml")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OutputError, match="nothing was written"):
        DEFAULT.dump(tmp_path / "folder")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_presets_and_traces_are_those_the_workload_has():
    from firstlight import workload

    assert set(rules.PRESETS) == set(workload.PRESETS)
    assert set(rules.TRACES) == set(workload.SHIPPED)
