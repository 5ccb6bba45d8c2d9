"""What an engine does with a matrix, in words: tiles, ranges, photons, interfaces, assumptions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from firstlight import catalog
from firstlight.errors import ScenarioError
from firstlight.optics.energy import electrons_per_output
from firstlight.units import format_si

if TYPE_CHECKING:
    from firstlight.optics.engine import Engine


def account(engine: Engine, *, inputs: int | None, outputs: int | None) -> str:
    """Return the account of a matrix of that shape as lines of text.

    Args:
        engine: The engine.
        inputs: Inputs of the matrix; one tile unless given.
        outputs: Outputs of the matrix; one tile unless given.

    Raises:
        ScenarioError: When a side is not positive.
    """
    spec = engine.spec
    k = spec.inputs if inputs is None else inputs
    n = spec.outputs if outputs is None else outputs
    if k < 1 or n < 1:
        raise ScenarioError(f"shape: {k} × {n} is not allowed; both sides 1 or more")
    # A thin matrix of normal operands has the same tiles along the inputs and the same ranges.
    rng = np.random.default_rng(0)
    thin = rng.standard_normal((min(n, 64), k), dtype=np.float32)
    facts = engine.compile(thin).facts
    n_tiles = math.ceil(n / spec.outputs)
    cycles = facts["cycles_per_tile"]
    lines = [
        (
            f"matrix      {k} inputs × {n} outputs in {facts['k_tiles']} × {n_tiles} tiles of "
            f"{spec.inputs} × {spec.outputs}, {facts['masks_per_tile']} mask(s) a tile"
        ),
        (
            f"encoding    {engine.signed_encoding}: {cycles} cycle(s), {facts['readings']} reading(s) "
            "an output and tile"
        ),
        f"inputs      {_bits(spec.activation_bits)}, scale {engine.drive.input_scale}",
        (
            f"weights     {_bits(engine.weight_bits)} on {_bits(spec.mask_bits)} pixels, "
            f"scale {engine.drive.weight_scale}"
        ),
        f"converters  {_converters(engine, facts)}",
        f"light       {_light(engine, facts)}",
        f"path        {facts['path']} ({facts['isa']}): {facts['reason']}",
        (
            f"per cycle   {2 * spec.inputs * spec.outputs:,} operations; "
            f"{format_si(2 * spec.inputs * spec.outputs * spec.f_cycle_hz / cycles, 'op/s')} at full use"
        ),
        f"vectors     {_bits_per_s(engine, cycles)}",
        f"masks       {_mask_interface(engine)}",
        f"previous    {_inter_symbol(engine)}",
        f"assumed     {_assumed(engine)}",
    ]
    return "\n".join(lines)


def _bits(bits: int | None) -> str:
    return "ideal" if bits is None else f"{bits} bit"


def _converters(engine: Engine, facts: dict[str, float]) -> str:
    spec, drive = engine.spec, engine.drive
    if spec.adc_bits is None:
        return "ideal"
    low, high = facts["adc_step_low"], facts["adc_step_high"]
    reach = (
        f"±{drive.adc_range_sigma:g} σ a {drive.adc_range_per}"
        if drive.adc_range is None
        else f"range {drive.adc_range:g}"
    )
    enob = "" if spec.adc_enob is None else f" (ENOB {min(spec.adc_enob, spec.adc_bits):g})"
    return (
        f"{spec.adc_bits} bit{enob}, {reach}, step {low:.3g} to {high:.3g} of a full-scale source "
        f"through an open pixel, {drive.clip_order.replace('_', ' ')}, ties "
        f"{drive.rounding.replace('_', ' ')}"
    )


def _light(engine: Engine, facts: dict[str, float]) -> str:
    electrons = facts["electrons_full_scale"]
    if math.isinf(electrons):
        return "unlimited"
    per_mac = electrons_per_output(engine.spec) / engine.spec.inputs
    budget = (
        f"{per_mac:.4g} electrons a MAC"
        if engine.drive.electrons_full_scale is None
        else "set at full scale"
    )
    return (
        f"{budget}, {electrons:.4g} of a full-scale source through an open pixel; mean input "
        f"{facts['mean_input']:.3f}, mean transmission {facts['mean_transmission']:.3f}; receiver "
        f"{engine.spec.receiver_noise_electrons:g} electrons, laser noise {engine.rin_rms:.2%} "
        f"({engine.drive.rin_mode})"
    )


def _bits_per_s(engine: Engine, cycles: int) -> str:
    spec = engine.spec
    rate_hz = spec.f_cycle_hz / cycles
    into = spec.inputs * (spec.activation_bits or 32) * rate_hz
    out = spec.outputs * spec.link_out_bits * rate_hz
    return f"{into / 1e12:.2f} Tb/s in, {out / 1e12:.2f} Tb/s out at {format_si(rate_hz, 'Hz')}"


def _mask_interface(engine: Engine) -> str:
    spec = engine.spec
    bits = spec.inputs * spec.outputs * spec.weight_stream_bits
    if spec.t_reload_s <= 0:
        return f"{bits / 1e6:.2f} Mb a reload, reload taken as free"
    tokens = spec.f_cycle_hz * spec.t_reload_s
    return (
        f"{bits / spec.t_reload_s / 1e12:.2f} Tb/s while a mask is written in "
        f"{format_si(spec.t_reload_s, 's')}; a reload pays after {tokens:,.0f} cycles"
    )


def _inter_symbol(engine: Engine) -> str:
    if engine.inter_symbol_frac <= 0:
        return "no trace of the previous symbol (ideal receiver bandwidth)"
    state = "on" if engine.drive.inter_symbol else "off (inter_symbol=True switches it on)"
    return f"{engine.inter_symbol_frac:.2%} of the previous symbol stays: {state}"


def _assumed(engine: Engine) -> str:
    """Names of the device's parameters that still have a value the catalog marks as assumed."""
    closest: tuple[float, str, list[str]] = (0.0, "", [])
    for preset in catalog.ids("engine"):
        facts = catalog.get(preset, kind="engine").facts
        same = [
            name
            for name, fact in facts.items()
            if _is_same(getattr(engine.spec, name, None), fact.value)
        ]
        assumed = sorted(name for name in same if facts[name].status == "assumed")
        closest = max(closest, (len(same) / len(facts), preset, assumed))
    share, preset, assumed = closest
    if share < 0.8:
        return "not a preset: nothing is known about where these parameters come from"
    return f"{len(assumed)} parameters of {preset}: {', '.join(assumed)}"


def _is_same(value: object, fact: object) -> bool:
    return value == fact or (value is None and fact == "ideal")
