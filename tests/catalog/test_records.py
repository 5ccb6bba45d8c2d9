"""The records agree with each other and with the physics that ties their facts."""

from __future__ import annotations

import pytest

from firstlight import catalog
from firstlight.catalog import Status
from firstlight.errors import CatalogError

GPU_SERVERS = [record for record in catalog.records("server") if "device" in record]
OPTICAL_SERVERS = [record for record in catalog.records("server") if "engine" in record]


@pytest.mark.parametrize("server", GPU_SERVERS, ids=lambda server: server.id)
def test_server_power_is_its_devices_and_its_host(server):
    device = catalog.get(server.text("device"), kind="device")
    devices = server.count("device_count")
    peak = server.value("host_peak_w") + devices * device.value("tdp_w")
    idle = server.value("host_idle_w") + devices * device.value("idle_w")
    assert server.value("peak_w") == pytest.approx(peak, rel=1e-3)
    assert server.value("idle_w") == pytest.approx(idle, rel=1e-3)
    assert server.value("idle_w") < server.value("typical_w") < server.value("peak_w")
    assert 0 < server.value("host_idle_w") < server.value("host_peak_w")


@pytest.mark.parametrize("server", GPU_SERVERS, ids=lambda server: server.id)
def test_every_gpu_server_can_be_simulated(server):
    assert server.complete
    assert catalog.get(server.text("device"), kind="device").complete


def test_the_h100_server_is_the_measured_one():
    server = catalog.get("h100-sxm-8x", kind="server")
    assert server.value("peak_w") == 8400
    assert server.fact("peak_w").status is Status.MEASURED
    assert server.value("idle_w") == 2800


@pytest.mark.parametrize("server", OPTICAL_SERVERS, ids=lambda server: server.id)
def test_an_optical_server_is_assumed_and_has_an_engine_of_its_name(server):
    assert server.text("engine") == server.id
    assert server.value("mem_bytes") == 256e9
    assert server.value("mem_bytes_per_s") == 1e12
    assert server.value("nic_bytes_per_s") == 1e11
    assert server.fact("mem_bytes").status is Status.ASSUMED
    # one fact under two names: the scenario overrides the assumption
    assert server.value("price_ratio") == catalog.assumption("optical_price_ratio").value
    assert server.complete


def test_every_optical_server_has_an_engine_and_the_reverse():
    assert {server.id for server in OPTICAL_SERVERS} == set(catalog.ids("engine"))


@pytest.mark.parametrize("device", catalog.records("device"), ids=lambda device: device.id)
def test_a_device_peak_is_ordered_by_width(device):
    peaks = [device.get(f"dense_{name}_flop_per_s", 0.0) for name in ("bf16", "fp8", "fp4")]
    known = [peak for peak in peaks if peak]
    assert known == sorted(known)
    if "tdp_w" in device:
        assert 0 < device.value("idle_w") < device.value("tdp_w")


def test_what_cannot_be_simulated_says_what_is_missing():
    rubin = catalog.get("rubin-r200", kind="device")
    assert rubin.missing == ("tdp_w",)
    with pytest.raises(CatalogError, match=r"has no 'tdp_w'; missing: tdp_w"):
        rubin.value("tdp_w")
    complete = [device.id for device in catalog.records("device") if device.complete]
    assert {"h100-sxm", "b200", "rtx-4090", "rtx-pro-6000", "mi300x"} <= set(complete)
    assert "etched-sohu" not in complete


@pytest.mark.parametrize(
    ("model", "params", "kv_bytes_per_tok"),
    [
        ("llama-3.1-8b", 8.03e9, 131072),
        ("llama-3.1-70b", 70.55e9, 327680),
        ("deepseek-v3", 671e9, 70272),
    ],
)
def test_models_have_their_published_size(model, params, kv_bytes_per_tok):
    record = catalog.get(model, kind="model")
    assert record.value("params_total") == pytest.approx(params, rel=1e-3)
    assert record.value("kv_bytes_per_tok_bf16") == kv_bytes_per_tok


def test_a_dense_model_has_the_parameters_its_shapes_give():
    # Llama: q and o, k and v, three MLP matrices; embedding and head; norms not counted
    shape = catalog.get("llama-3.1-70b", kind="model")
    hidden, ffn = shape.count("hidden_size"), shape.count("ffn_size")
    heads, kv_heads, dim = (shape.count(key) for key in ("num_heads", "num_kv_heads", "head_dim"))
    layer = 2 * hidden * heads * dim + 2 * hidden * kv_heads * dim + 3 * hidden * ffn
    ends = 2 * shape.count("vocab_size") * hidden
    assert shape.count("num_layers") * layer + ends == shape.value("params_total")


def test_engines_differ_where_they_are_said_to():
    slow = catalog.get("iris-nova-conservative", kind="engine")
    fast = catalog.get("iris-nova-optimistic", kind="engine")
    differ = [key for key in fast if fast.get(key) != slow.get(key)]
    assert differ == ["t_reload_s"]
    assert slow.value("t_reload_s") == 6.9e-4
    assert fast.value("t_reload_s") == 1e-5
    assert fast.fact("t_reload_s").status is Status.ASSUMED


def test_the_limit_engine_switches_effects_off_by_a_word():
    limit = catalog.get("physical-limit", kind="engine")
    assert limit.get("adc_bits") == "ideal"
    with pytest.raises(CatalogError, match="a number is needed"):
        limit.value("adc_bits")


def test_weakest_is_the_last_of_the_order():
    assert catalog.weakest("measured", "vendor", "estimate") is Status.VENDOR
    assert catalog.weakest(Status.PAPER, Status.MEASURED) is Status.PAPER
    assert catalog.weakest("assumed", "measured") is Status.ASSUMED
    with pytest.raises(CatalogError, match="at least one"):
        catalog.weakest()
    with pytest.raises(CatalogError, match="did you mean 'measured'"):
        catalog.weakest("measurd")


def test_unknown_names_are_answered_with_the_nearest():
    with pytest.raises(CatalogError, match="did you mean 'h100-sxm'"):
        catalog.get("h100", kind="device")
    with pytest.raises(CatalogError, match="did you mean 'device'"):
        catalog.ids("devices")
    with pytest.raises(CatalogError, match="did you mean 'cached_frac'"):
        catalog.assumption("cache_frac")
    with pytest.raises(CatalogError, match="did you mean 'tdp_w'"):
        catalog.get("b200", kind="device").value("tdp")


def test_reading_one_record_reads_one_file(monkeypatch):
    shelf = catalog.Catalog()
    shelf.get("h100-sxm", kind="device")
    assert list(shelf._files) == ["device/h100-sxm.toml"]


def test_currency_rates_are_those_the_prices_were_converted_with():
    for record in catalog.records("electricity"):
        for currency in ("eur", "gbp"):
            if f"electricity_{currency}_per_kwh" in record:
                rate = catalog.assumption(f"usd_per_{currency}").value
                local = record.value(f"electricity_{currency}_per_kwh")
                assert record.value("electricity_usd_per_kwh") == pytest.approx(
                    local * rate, abs=1e-4
                )


def test_colocation_is_the_annuity_it_says_it_is():
    build = 15.0  # usd/W, the low end of an AI building
    rate = float(catalog.assumption("cost_of_capital_frac").value)
    years = float(catalog.assumption("facility_life_years").value)
    annuity = rate / (1 - (1 + rate) ** -years)
    month = build * 1000 * annuity / 12
    assert catalog.assumption("colocation_usd_per_kw_month").value == pytest.approx(month, rel=0.02)
