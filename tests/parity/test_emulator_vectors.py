"""The emulator equals public analog emulators on shared settings, code for code.

Each family's rule is written in the emulator's own options. A result equals a reference when every
element is the same multiple of the converter's step, that is, within a thousandth of it.
"""

from pathlib import Path

import numpy as np
import pytest

from firstlight.errors import ScenarioError
from firstlight.optics import Engine

DATA = Path(__file__).parents[1] / "data" / "emulator"

CROSSSIM = {
    "inputs": 1024,
    "outputs": 1024,
    "activation_bits": 8,
    "input_scale": 3.0,
    "weight_scale": 0.2,
    "adc_bits": 8,
    "adc_range": 4.0,
    "adc_levels": "symmetric",
    "clip_order": "clip_then_round",
}
AIHWKIT = {
    "inputs": 1024,
    "outputs": 1024,
    "activation_bits": 8,
    "input_scale": "absmax",
    "weight_scale": 1.0,
    "adc_bits": 8,
    "adc_range": 3.0,
    "adc_levels": "symmetric",
    "clip_order": "round_then_clip",
}
RULES = {
    "cs1_signed_8_8_onetile": CROSSSIM,
    "cs2_unsigned_dac8_adc8_onetile": {**CROSSSIM, "signed_encoding": "nonnegative"},
    "cs3_unsigned_two_adc8": {
        **CROSSSIM, "signed_encoding": "nonnegative_digital", "adc_range": 16.0,
    },
    "cs4_signed_6_6_cell5": {
        **CROSSSIM, "activation_bits": 6, "adc_bits": 6, "adc_range": 4.1, "weight_bits": 6,
        "mask_bits": 5,
    },
    "cs5_signed_8_8_tiles64": {
        **CROSSSIM, "inputs": 64, "tile_split": "rounded", "adc_range": 2.0,
    },
    "cs7_bitserial_inputs_adc_per_bit": {**CROSSSIM, "input_slice_bits": 1},
    "cs8_weight_slices_2x4": {
        **CROSSSIM, "weight_bits": 8, "mask_bits": 4, "adc_range": 8.3,
    },
    "ai1_cpp_absmax_8_8": AIHWKIT,
    "ai1_torch_absmax_8_8": AIHWKIT,
    "ai2_cpp_fixed_6_5_clip": {
        **AIHWKIT, "activation_bits": 6, "adc_bits": 5, "adc_range": 1.0, "input_scale": 1.0,
    },
    "ai2_torch_fixed_6_5_clip": {
        **AIHWKIT, "activation_bits": 6, "adc_bits": 5, "adc_range": 1.0, "input_scale": 1.0,
    },
    "ai4_cpp_tiles64": {**AIHWKIT, "inputs": 64, "tile_split": "even"},
    "ai4_torch_tiles64": {**AIHWKIT, "inputs": 64, "tile_split": "even"},
    "li1_8_8_onetile": {
        **AIHWKIT, "input_scale": 3.0, "weight_scale": "tile", "adc_range": 12.0,
    },
    "av1_clamp_reduce15": {
        **AIHWKIT, "activation_bits": 5, "adc_bits": 5, "input_scale": 1.0, "adc_range": 2.0,
        "rounding": "half_to_zero",
    },
}  # fmt: skip
# AnalogVNN multiplies by 0.5 before its output converter on ±1: a range of ±2, halved after it.
GAIN = {"av1_clamp_reduce15": 0.5}


def test_every_reference_file_is_tried():
    files = {path.stem for path in DATA.glob("*.npz") if "_stat_" not in path.stem}
    assert files
    assert files == set(RULES)


@pytest.mark.parametrize("name", sorted(RULES))
def test_every_code_equals_the_reference(name):
    data = np.load(DATA / f"{name}.npz")
    engine = Engine.ideal(**RULES[name])

    y, _ = engine.matmul(data["x"], data["w"])

    assert y.shape == data["y"].shape
    np.testing.assert_allclose(y * GAIN.get(name, 1.0), data["y"], rtol=0, atol=2e-6)


@pytest.mark.parametrize("isa", ["scalar", "avx2"])
def test_a_forced_instruction_set_gives_the_same_bits(isa, monkeypatch):
    data = np.load(DATA / "cs8_weight_slices_2x4.npz")
    engine = Engine.preset("iris-nova-optimistic", outputs=32)
    best, _ = engine.matmul(data["x"], data["w"], seed=3)

    monkeypatch.setenv("FIRSTLIGHT_ISA", isa)
    try:
        forced = engine.compile(data["w"])
    except ScenarioError as refusal:  # the message lists what the machine has
        if isa in str(refusal).split("on this machine")[-1]:
            raise
        pytest.skip(f"this machine has no {isa}: {refusal}")

    assert forced.facts["isa"] == isa
    np.testing.assert_array_equal(forced(data["x"], seed=3), best)
