"""Power of an optical server, boundary by boundary, and a readable account of an engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from firstlight.errors import ScenarioError
from firstlight.optics import energy, passes
from firstlight.optics.tiles import LinearStack, tile_count

if TYPE_CHECKING:
    from firstlight.optics.spec import EngineSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPower:
    """Idle and peak power at three boundaries [W].

    Attributes:
        engine_idle_w: All engines' bias and clocks.
        engine_peak_w: All engines computing at full rate, or their digital attention, whichever is
            more: in a pass one waits for the other.
        idle_w: Server at the plug, idle: (host + engines idle) × supply factor.
        peak_w: Server at the plug, peak: (host + engines peak) × supply factor.
        facility_idle_w: Server idle × PUE.
        facility_peak_w: Server peak × PUE.
        psu_factor: Power at the plug over power at the boards; it also applies to the energies of a
            step table, which are at the engine.
        derivation: How each boundary follows from the one inside it.
    """

    engine_idle_w: float
    engine_peak_w: float
    idle_w: float
    peak_w: float
    facility_idle_w: float
    facility_peak_w: float
    psu_factor: float
    derivation: dict[str, str]


def server_power(spec: EngineSpec, *, pue: float = 1.0) -> ServerPower:
    """Return idle and peak power of one server.

    The peak charges every partial sum a read and a write and, when double-buffered, masks written
    back to back while light computes: an upper bound that holds for every model.

    Args:
        spec: Engine and server.
        pue: Facility energy over server energy.

    Raises:
        ScenarioError: When `pue` is below 1 or not finite.
    """
    if not 1.0 <= pue < 10.0:
        raise ScenarioError(f"pue: {pue!r} is not allowed; 1 to 10")
    idle = spec.engine_static_power_w * spec.engines
    linear = _linear_peak_w(spec) * spec.engines
    attention = spec.attention_op_per_s_per_engine / 2 * spec.attention_energy_j_per_mac
    engine_peak = idle + max(linear, attention * spec.engines)
    server_idle = (spec.host_power_w + idle) * spec.psu_factor
    server_peak = (spec.host_power_w + engine_peak) * spec.psu_factor
    return ServerPower(
        engine_idle_w=idle,
        engine_peak_w=engine_peak,
        idle_w=server_idle,
        peak_w=server_peak,
        facility_idle_w=server_idle * pue,
        facility_peak_w=server_peak * pue,
        psu_factor=spec.psu_factor,
        derivation={
            "engine": "engines × static power, plus energy a cycle × clock and reload energy a load, "
            "or digital attention at full rate if that is more",
            "server": "(host + engines) × supply factor",
            "facility": "server × PUE",
        },
    )


def _linear_peak_w(spec: EngineSpec) -> float:
    """One engine at full rate on a matrix of many K tiles, where first writes do not count."""
    deep = energy.layer_ledger(1, k=spec.inputs * 1024, n=spec.outputs, spec=spec)
    streaming = (deep.energy_j - deep.reload_j) / deep.cycles * spec.f_cycle_hz
    load_s = passes.tile_load_s(spec)
    reloading = energy.reload_j_per_tile(spec) / load_s
    return streaming + reloading if spec.double_buffer else max(streaming, reloading)


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The numbers that decide what an engine does for a model.

    Attributes:
        reload_cycles: f·t_reload: optical cycles one reload costs.
        break_even_tok: Tokens a pass needs to pay for its reloads.
        chunk_tok: Tokens that fit one pass.
        tiles: Tiles of the model.
        tiles_per_pass: Tile loads of a pass, weight slices counted, when every expert is hit.
        pass_time_s: Time of the largest pass [s].
        pass_floor_s: Time of a pass of one token [s].
        utilization: Share of cycles that compute in the largest pass.
        input_tok_per_s: Linear layers only, largest passes back to back [tok/s].
        vector_in_bit_per_s: Inputs of one engine [bit/s].
        vector_out_bit_per_s: Outputs of one engine [bit/s].
        weight_bit_per_s: Weights of one engine at its reload rate [bit/s].
        cycle_energy_j: Energy of one cycle [J].
        reload_energy_j: Energy of one tile load [J].
        op_per_j: Engine, reload included, at the largest pass [op/J].
    """

    reload_cycles: float
    break_even_tok: float
    chunk_tok: int
    tiles: int
    tiles_per_pass: int
    pass_time_s: float
    pass_floor_s: float
    utilization: float
    input_tok_per_s: float
    vector_in_bit_per_s: float
    vector_out_bit_per_s: float
    weight_bit_per_s: float
    cycle_energy_j: float
    reload_energy_j: float
    op_per_j: float


def explain(spec: EngineSpec, *, stack: LinearStack, weight_bits: int = 4) -> Explanation:
    """Return the numbers that decide what an engine does for a model.

    Examples:
        >>> # explain(EngineSpec.preset("iris-nova-optimistic"), stack=linear_stack(shape))
    """
    chunk = passes.chunk_bound_tok(spec, hidden_size=stack.hidden_size)
    floor_s, full_s = passes.pass_time_s(
        stack, spec=spec, tokens=[1, chunk], weight_bits=weight_bits
    )
    tiles = tile_count(stack, spec=spec)
    return Explanation(
        reload_cycles=passes.reload_cycles(spec),
        break_even_tok=passes.break_even_tok(spec),
        chunk_tok=chunk,
        tiles=tiles,
        tiles_per_pass=tiles * passes.slices(spec, weight_bits=weight_bits),
        pass_time_s=float(full_s),
        pass_floor_s=float(floor_s),
        utilization=passes.utilization(spec, chunk_tok=chunk),
        input_tok_per_s=chunk / float(full_s),
        vector_in_bit_per_s=spec.inputs * (spec.activation_bits or 0) * spec.f_cycle_hz,
        vector_out_bit_per_s=spec.outputs * spec.link_out_bits * spec.f_cycle_hz,
        weight_bit_per_s=passes.tile_bytes(spec) * 8 / passes.tile_load_s(spec),
        cycle_energy_j=energy.cycle_ledger(stack, spec=spec).energy_j,
        reload_energy_j=energy.reload_j_per_tile(spec),
        op_per_j=energy.engine_op_per_j(stack, spec=spec, chunk_tok=chunk),
    )
