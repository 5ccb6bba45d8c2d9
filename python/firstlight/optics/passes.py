"""How long an optical server takes to push a chunk of tokens through a model.

A mask holds one tile. Tokens stream past it once an optical cycle, then the next tile is loaded, so
a pass over a chunk costs at least one load for every tile, whatever the chunk. The chunk is bounded
by the partial sums that must be kept while the tiles of one output column pass by.

Attention is not in here: it runs on the server's digital part (see `firstlight.optics.table`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

import numpy as np

from firstlight.errors import ModelError, ScenarioError
from firstlight.optics.spec import checked_count
from firstlight.optics.tiles import hit_chance

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from firstlight.optics.spec import EngineSpec
    from firstlight.optics.tiles import LinearLayer, LinearStack

    F64 = NDArray[np.float64]

FirstReload = Literal["hidden", "exposed"]
"""Whether the load of a pass's first tile is waited for: weights are known, so a double-buffered
mask can be written before the pass begins (hidden) unless the engine was just switched on."""


def slices(spec: EngineSpec, *, weight_bits: int) -> int:
    """Return how many masks carry one weight of `weight_bits` bits.

    Each slice is its own tile load and its own cycle; the partial sums are shifted and added
    digitally. The sign rides on the rails, so that `mask_bits` bits of the magnitude fit one mask:
    the seven of an 8-bit weight take two 4-bit masks. The emulator cuts weights alike.

    Raises:
        ScenarioError: When `weight_bits` is not 1 to 16.
    """
    checked_count("weight_bits", weight_bits, high=16)
    return 1 if spec.mask_bits is None else max(1, -(-(weight_bits - 1) // spec.mask_bits))


def tile_bytes(spec: EngineSpec) -> float:
    """Return the bytes fetched to write one mask [byte]."""
    return spec.inputs * spec.outputs * spec.weight_stream_bits / 8


def tile_load_s(spec: EngineSpec) -> float:
    """Return the time to load one tile: the mask's own reload or the weight stream, the slower [s].

    All engines of a server load at the same time and share the stream.
    """
    stream_s = tile_bytes(spec) * spec.engines / spec.weight_stream_bytes_per_s
    return max(spec.t_reload_s, stream_s)


def reload_cycles(spec: EngineSpec) -> float:
    """Return f·t_reload: optical cycles lost by one reload that nothing hides."""
    return spec.f_cycle_hz * spec.t_reload_s


def break_even_tok(spec: EngineSpec) -> float:
    """Return the chunk that pays for a reload [tok].

    From here on a double-buffered engine is fully used, a single-buffered one half.
    """
    return reload_cycles(spec) / spec.encoding.passes


def utilization(spec: EngineSpec, *, chunk_tok: float) -> float:
    """Return the share of optical cycles that compute when `chunk_tok` tokens meet each tile."""
    _positive("chunk_tok", chunk_tok)
    busy_s = chunk_tok * spec.encoding.passes / spec.f_cycle_hz
    load_s = tile_load_s(spec)
    return busy_s / max(busy_s, load_s) if spec.double_buffer else busy_s / (busy_s + load_s)


def accumulator_bound_tok(spec: EngineSpec) -> int:
    """Return how many tokens' partial sums of one tile fit one engine's accumulators [tok]."""
    return int(spec.accumulator_sram_bytes * 8 // (spec.accumulator_bits * spec.outputs))


def chunk_bound_tok(spec: EngineSpec, *, hidden_size: int) -> int:
    """Return the largest chunk of one pass [tok].

    The accumulators of each engine hold the partial sums of one tile; the activation memories of all
    engines together hold the chunk's residual stream of `hidden_size` numbers a token. Wider
    intermediates (the feed-forward's) spill to the server's memory: at its bandwidth that hides
    behind the weight stream and costs a few percent of a token's energy.

    Raises:
        ModelError: When not even one token fits.
    """
    bound = accumulator_bound_tok(spec)
    if spec.activation_sram_bytes and spec.activation_bits is not None:
        bits = spec.activation_sram_bytes * 8 * spec.engines
        bound = min(bound, bits // (spec.activation_bits * hidden_size))
    if bound < 1:
        raise ModelError(
            f"the activations of one token ({hidden_size} wide) do not fit "
            f"activation_sram_bytes={spec.activation_sram_bytes} of {spec.engines} engines"
        )
    return int(bound)


def pass_time_s(
    stack: LinearStack,
    *,
    spec: EngineSpec,
    tokens: ArrayLike,
    weight_bits: int = 4,
    first_reload: FirstReload = "hidden",
) -> F64:
    """Return the time of one pass over all linear layers [s].

    Engines share the tiles of one layer; a layer starts when the previous one has ended, so a layer
    takes ⌈tiles/engines⌉ rounds. Experts that no token visits are not loaded. A tile takes the longer of streaming and loading when
    double-buffered, their sum otherwise. When every tile has its own engine, nothing is reloaded.

    Args:
        stack: The model.
        spec: Engine and server.
        tokens: Tokens of the pass, any shape; 0 tokens take no time.
        weight_bits: Bits of the model's weights.
        first_reload: Whether the first tile's load is waited for.

    Raises:
        ScenarioError: When a token count is negative or not finite.
    """
    count = _tokens(tokens)
    per_weight = slices(spec, weight_bits=weight_bits)
    passes = spec.encoding.passes
    load_s = 0.0 if is_resident(stack, spec=spec, weight_bits=weight_bits) else tile_load_s(spec)
    total = np.zeros_like(count)
    for layer in stack.layers:
        tiles = layer.tiles(spec) * per_weight
        if layer.experts == 1:
            stream_s = count * passes / spec.f_cycle_hz
            rounds = -(-tiles // spec.engines)
            total += layer.count * rounds * _tile_s(stream_s, load_s=load_s, spec=spec)
        else:
            total += layer.count * _mixture_s(
                layer, tokens=count, tiles=tiles, load_s=load_s, spec=spec
            )
    if first_reload == "exposed" and spec.double_buffer:
        total += load_s
    return np.where(count > 0, total, 0.0)


def _tile_s(stream_s: F64, *, load_s: float, spec: EngineSpec) -> F64:
    return np.maximum(stream_s, load_s) if spec.double_buffer else stream_s + load_s


def _mixture_s(
    layer: LinearLayer, *, tokens: F64, tiles: int, load_s: float, spec: EngineSpec
) -> F64:
    """One layer of experts: every expert hit loads its tiles, and a busier one streams longer.

    Tiles of different experts share the engines evenly, but no layer ends before its longest tile.
    """
    work, longest = np.zeros_like(tokens), np.zeros_like(tokens)
    for share in layer.visit_share():
        hit = hit_chance(share, tokens=tokens)
        visits = np.divide(tokens * share, hit, out=np.zeros_like(tokens), where=hit > 0)
        stream_s = visits * spec.encoding.passes / spec.f_cycle_hz
        tile_s = _tile_s(stream_s, load_s=load_s, spec=spec)
        work += hit * tile_s
        longest = np.maximum(longest, tile_s)
    return np.maximum(work * tiles / spec.engines, longest)


def prompt_time_s(
    stack: LinearStack,
    *,
    spec: EngineSpec,
    prompt_tok: int,
    chunk_tok: int | None = None,
    weight_bits: int = 4,
    first_reload: FirstReload = "hidden",
) -> float:
    """Return the time of a prompt's linear layers, cut into equal passes of at most `chunk_tok` [s].

    Args:
        stack: The model.
        spec: Engine and server.
        prompt_tok: Tokens of the prompt.
        chunk_tok: Largest pass; None takes the SRAM bound.
        weight_bits: Bits of the model's weights.
        first_reload: Whether each pass waits for its first tile.

    Raises:
        ScenarioError: When a count is not positive.
    """
    _positive("prompt_tok", prompt_tok)
    chunk = chunk_bound_tok(spec, hidden_size=stack.hidden_size) if chunk_tok is None else chunk_tok
    _positive("chunk_tok", chunk)
    full, rest = divmod(prompt_tok, chunk)
    times = pass_time_s(
        stack, spec=spec, tokens=[chunk, rest], weight_bits=weight_bits, first_reload=first_reload
    )
    return float(full * times[0] + times[1])


def is_resident(stack: LinearStack, *, spec: EngineSpec, weight_bits: int) -> bool:
    """Return whether the engines hold the whole model at once, so that nothing is ever reloaded."""
    tiles = sum(layer.tiles(spec) * layer.count * layer.experts for layer in stack.layers)
    return tiles * slices(spec, weight_bits=weight_bits) <= spec.engines


def _tokens(tokens: ArrayLike) -> F64:
    count = np.asarray(tokens, dtype=np.float64)
    if not np.all(np.isfinite(count)) or np.any(count < 0):
        raise ScenarioError(
            f"tokens: {tokens!r} holds a negative or non-finite count; allowed: ≥ 0"
        )
    return count


def _positive(name: str, value: float) -> None:
    if not math.isfinite(value) or value < 1:
        raise ScenarioError(f"{name}: {value!r} is not allowed; at least 1")
