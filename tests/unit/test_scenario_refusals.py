"""Bad scenarios: every error names file, line, key, what was given and what is allowed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firstlight.errors import ScenarioError
from firstlight.scenario import Scenario

DESIGN = """[[design]]
name = "mine"
pools = [
  { role = "prefill", server = "h100-sxm-8x" },
  { role = "decode", server = "h100-sxm-8x" },
]
"""


def refusal(tmp_path, text: str | bytes) -> str:
    path = tmp_path / "rack.toml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(ScenarioError) as refused:
        Scenario.load(path)
    message = str(refused.value)
    assert "\n" not in message
    assert message.startswith(f"{path}")
    return message.removeprefix(f"{path}")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        # unknown keys and ids, with the nearest
        ('modle = "llama-3.1-70b"\n', ":1: modle: unknown key; did you mean 'model'?"),
        ("[facility]\n\npower = 1e6\n", ":3: facility.power: unknown key; did you mean 'power_w'?"),
        ("[slo]\nttft = 2\n", ":2: slo.ttft: unknown key; did you mean 'ttft_s'?"),
        ("[work]\n", ":1: work: unknown key; did you mean 'workload'?"),
        ('model = "llama-3.1-70"\n', ":1: model: unknown model 'llama-3.1-70'; did you mean 'llama-3.1-70b'?"),
        ('[workload]\npreset = "raag"\n', ":2: workload.preset: 'raag'; allowed: 'chat', 'rag'"),
        ('[workload]\ntrace = "azure-2023-cnv"\n', "did you mean 'azure-2023-conv'"),
        ('[precision]\nweights = "fp4"\n', "did you mean 'nvfp4'"),
        (DESIGN.replace('"decode", server = "h100-sxm-8x"', '"decode", server = "h100-8x"'),
         ":5: design[0].pools[1].server: unknown server 'h100-8x'; did you mean 'h100-sxm-8x'?"),
        ('[facility]\ninstalled = { "h100-sxm-8y" = 3 }\n', "did you mean 'h100-sxm-8x'"),
        ("[assumptions]\nt_relod_s = 1e-5\n", ":2: assumptions.t_relod_s: unknown key; did you mean 't_reload_s'?"),
        # wrong unit
        ('[facility]\npower_w = "1 s"\n', ":2: facility.power_w: '1 s': 's' is the wrong unit; allowed: W, kW or MW"),
        ('[slo]\nttft_s = "2 W"\n', "wrong unit"),
        ('[assumptions]\nt_reload_s = "5 W"\n', "wrong unit"),
        ('[assumptions]\nt_reload_s = "5 us..20 W"\n', "wrong unit"),
        # impossible numbers
        ("[facility]\npower_w = 0\n", ":2: facility.power_w: 0; allowed: a number in W, kW or MW, above 0"),
        ("[facility]\npower_w = -1e6\n", "-1e+06; allowed"),
        ("[facility]\npower_w = nan\n", "nan; allowed"),
        ("[facility]\npower_w = inf\n", "inf; allowed"),
        ("[facility]\npower_w = true\n", "true; allowed"),
        ("[facility]\npower_w = [1]\n", "[1]; allowed"),
        ("[facility]\npower_w = 2026-12-01\n", "2026-12-01; allowed"),
        ("[facility]\npue = 0.9\n", "at least 1 and at most 10"),
        ("[facility]\nelectricity_usd_per_kwh = 0\n", "above 0"),
        ('[facility]\nboundary = "rack"\n', "allowed: 'engine', 'board', 'server', 'facility'"),
        ("[facility]\ninstalled = { h100-sxm-8x = 0 }\n", "a whole number, at least 1"),
        ("[facility]\ninstalled = 5\n", "server id = number of servers"),
        ("[slo]\nquantile = 1\n", "above 0 and below 1"),
        ("[slo]\nquantile = 0\n", "above 0 and below 1"),
        ("[slo]\ntpot_s = 0\n", "above 0"),
        ("[workload]\ncached_frac = 1.0\n", "below 1"),
        ("[workload]\ncached_frac = -0.1\n", "at least 0"),
        ("[workload]\ncontext_tok = 0\n", "at least 1"),
        ("[workload]\ncontext_tok = 1.5\n", "a whole number"),
        ("[workload]\ncorrelation_s = nan\n", "nan; allowed"),
        ("[workload]\ncorrelation_s = -inf\n", "-inf; allowed"),
        ('[workload]\npreset = "rag"\ntrace = "azure-2023-conv"\n', ":3: workload.trace: both preset and trace"),
        ('[workload]\ntrace = "missing.csv"\n', "no file 'missing.csv'; allowed: a file, or one of"),
        ("schema = 2\n", ":1: schema: 2; allowed: 1"),
        ("seed = -1\n", "at least 0"),
        ("seed = 1" + "0" * 400 + "\n", "allowed: a whole number"),
        ("name = 5\n", ":1: name: 5; allowed: a word"),
        ('name = " "\n', "allowed: a word"),
        ('first_token = "both"\n', "allowed: 'prefill' or 'decode'"),
        ("workload = 5\n", "allowed: a table with preset, trace"),
        # designs
        ("design = []\n", "at least one [[design]]"),
        ("design = 5\n", "at least one [[design]]"),
        ("[[design]]\n", ":1: design[0]: no name"),
        ('[[design]]\nname = "x"\n', "allowed: a list of pools"),
        (DESIGN + DESIGN, ":8: design[1].name: 'mine' is used twice"),
        (DESIGN.replace('"decode"', '"prefill"'), "allowed: one pool 'both', or one 'prefill' and one 'decode'"),
        (DESIGN.replace('"decode"', '"decoding"'), "did you mean 'decode'"),
        (DESIGN.replace('role = "decode", ', ""), "no role"),
        (DESIGN.replace('server = "h100-sxm-8x" },\n]', 'server = "iris-nova-optimistic" },\n]'),
         ":5: design[0].pools[1].role: 'decode'; an optical server does 'prefill' only"),
        (DESIGN.replace('8x" },\n]', '8x", share = 0.5, count = 3 },\n]'), "both share and count"),
        (DESIGN.replace('8x" }', '8x", share = 0.6 }'), "shares sum to 1.2"),
        (DESIGN.replace('8x" },\n]', '8x", share = 0 },\n]'), "'auto' or a number"),
        (DESIGN.replace('8x" },\n]', '8x", tp = 3 },\n]'), "'auto', 1, 2, 4, 8"),
        (DESIGN.replace('8x" },\n]', '8x", band = ["h100-sxm-8x", "b200-8x"] },\n]'), "is not optical"),
        (DESIGN.replace('8x" },\n]', '8x", band = ["h100-sxm-8x"] },\n]'), "[conservative server, optimistic server]"),
        (DESIGN + "policy = { chunk_tok = 8 }\n", "at least 16 and at most 1e+06"),
        (DESIGN + 'policy = { chunk_tok = "many" }\n', ":7: design[0].policy.chunk_tok: 'many'; allowed: 'auto'"),
        (DESIGN + 'policy = { batching = "static" }\n', "allowed: 'vllm-v1'"),
        (DESIGN + 'precision = { weights = "fp3" }\n', "'fp3'; allowed"),
        (DESIGN + 'policy = { disaggregate = "never" }\n', "'never'; allowed: 'always' or 'conditional'"),
        (DESIGN + "polcy = {}\n", "did you mean 'policy'"),
        # assumptions
        ('[assumptions]\nt_reload_s = "20..5"\n', "is inverted"),
        ("[assumptions]\nt_reload_s = -1\n", "at least 0"),
        ("[assumptions]\nt_reload_s = nan\n", "nan"),
        ("[assumptions]\noptical_price_ratio = 0\n", ":2: assumptions.optical_price_ratio: 0; allowed: a number, above 0"),
        ('[assumptions]\noptical_price_ratio = "0..3"\n', "above 0"),
        ("[assumptions]\ncolocation_usd_per_kw_month = 0\n", "above 0"),
        ("[assumptions]\ncost_of_capital_frac = 1.5\n", "at most 1"),
        ("[assumptions]\ndouble_buffer = 1\n", "true or false"),
        ("[assumptions]\npower_w = 1e6\n", "is a field; set facility.power_w instead"),
        ("[assumptions]\npue = 1.1\n", "set facility.pue instead"),
        # a model given as a table
        ("model = 5\n", "a model id or a table of shapes"),
        ("model = { hidden_size = 4096 }\n", "no num_layers, num_heads, vocab_size"),
        ("[model]\nhidden_sise = 4096\n", ":2: model.hidden_sise: unknown key; did you mean 'hidden_size'?"),
        ("[model]\nhidden_size = -1\n", "a number above 0"),
    ],
)  # fmt: skip
def test_a_bad_field_is_refused(tmp_path, text, says):
    assert says in refusal(tmp_path, text)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "empty"),
        (b"  \n\n", "empty"),
        (b"\x00\x01\x02\xff\xfe", "not UTF-8 text"),
        (b"a\x00b", "not TOML"),
        (b"name = 'x'\npower_w = = 3\n", ":2: not TOML"),
        (b"[facility\n", ":1: not TOML"),
        (b"name = 'x'\nname = 'y'\n", ":2: not TOML"),
        (b"seed = 1" + b"0" * 5000, "not TOML"),
        (b"name = " + b"[" * 100_000, "nested too deeply"),
        (b"#" * 1_000_001, "larger than 1 MB"),
    ],
)
def test_a_file_that_is_no_scenario_is_refused(tmp_path, content, says):
    assert says in refusal(tmp_path, content)


def test_the_line_is_found_in_every_way_a_list_can_be_written(tmp_path):
    dumped = Scenario.default().to_toml()
    lines = dumped.splitlines()
    last = max(at for at, line in enumerate(lines) if line == 'server = "h100-sxm-8x"')
    lines[last] = 'server = "h100"'
    message = refusal(tmp_path, "\n".join(lines))
    assert message.startswith(f":{last + 1}: design[2].pools[1].server: unknown server 'h100'")
    inline = "slo = { ttft_s = 2, quantile = 3 }\n"
    assert refusal(tmp_path, "\n" + inline).startswith(":2: slo.quantile: 3;")
    dotted = "name = 'x'\nfacility.power_w = 0\n"
    assert refusal(tmp_path, dotted).startswith(":2: facility.power_w: 0;")


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(ScenarioError, match="No such file"):
        Scenario.load(tmp_path / "none.toml")
    with pytest.raises(ScenarioError, match="Is a directory"):
        Scenario.load(tmp_path)
    with pytest.raises(ScenarioError, match="cannot be read"):
        Scenario.load("a\0b")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"powr_w": 1}, "unknown field 'powr_w'; did you mean 'power_w'"),
        ({"facility.powr_w": 1}, "did you mean 'power_w'"),
        ({"nowhere.power_w": 1}, "allowed sections: precision, workload"),
        ({"design.nobody.policy.chunk_tok": 64}, "unknown design; allowed: gpu-colocated"),
        ({"design.optical+gpu.pools.both.share": 0.5}, "no pool 'both'; allowed: prefill, decode"),
        ({"design.optical+gpu.colour": "red"}, "unknown field"),
        ({"power_w": "-3 kW"}, "facility.power_w: '-3 kW'"),
        ({"model": None}, None),
    ],
)
def test_a_bad_change_is_refused(changes, says):
    if says is None:
        # taking a field with a default away puts the default back
        assert Scenario.default().replace(**changes).model == "llama-3.1-70b"
        return
    with pytest.raises(ScenarioError, match=r"^[^\n]+$") as refused:
        Scenario.default().replace(**changes)
    assert says in str(refused.value)


def test_a_design_that_does_not_exist_is_refused():
    with pytest.raises(ScenarioError, match=r"did you mean 'gpu-colocated'"):
        Scenario.default().design("gpu-collocated")


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
_KEYS = st.sampled_from(
    [
        "schema",
        "name",
        "model",
        "precision",
        "workload",
        "slo",
        "facility",
        "design",
        "assumptions",
        "seed",
        "x",
    ]
)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(_KEYS, _VALUES, max_size=4))
def test_no_document_whatever_escapes_the_check(document):
    """Anything is either a scenario or one line of ScenarioError; never another exception."""
    try:
        scenario = Scenario.from_document(document)
    except ScenarioError as error:
        assert "\n" not in str(error)  # most documents are refused
    else:
        assert Scenario.from_document(scenario.document()) == scenario


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(["workload", "slo", "facility", "precision"]),
    st.dictionaries(
        st.sampled_from(
            [
                "power_w",
                "pue",
                "ttft_s",
                "quantile",
                "trace",
                "preset",
                "context_tok",
                "installed",
                "kv",
            ]
        ),
        _VALUES,
        max_size=3,
    ),
)
def test_no_section_whatever_escapes_the_check(section, table):
    try:
        Scenario.from_document({section: table})
    except ScenarioError as error:
        assert "\n" not in str(error)  # most tables are refused


_NAMES = st.sampled_from(
    ["power_w", "model", "designs", "tp", "chunk_tok", "facility", "facility.pue", "trace", "preset", "installed",
     "assumptions", "t_reload_s", "design.optical+gpu.policy", "design.optical+gpu.policy.chunk_tok", "design.optical+gpu.pools.0.server", "a.b", "x"]
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(_NAMES, _VALUES), max_size=3))
def test_no_change_whatever_escapes_the_check(changes):
    try:
        Scenario.default().replace(**dict(changes))
    except ScenarioError as error:
        assert "\n" not in str(error)  # most changes are refused
