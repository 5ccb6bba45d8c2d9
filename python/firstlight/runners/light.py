"""Where an engine's light does most good: more for layers whose sums drown in shot noise.

A layer's relative noise power is κ²/(n·p) when shot noise rules (κ: light over signal, n: inputs of
one sum, p: photons a multiply-accumulate), and its light is p times the M multiply-accumulates that
are lit for it: a source shines on all outputs of the engine, on those that the layer leaves empty
too. For one amount of light the sum over layers of s·κ²/(n·p), s telling how much a layer matters, is least
where p ∝ κ·√(s/(n·M)).

Source:
    Shot noise of a two-rail product, SNR = n·p/κ² (docs/physics.md); the minimum by Lagrange.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from firstlight.errors import ModelError
from firstlight.runners.hadamard import rotation
from firstlight.runners.preparation import layer_inputs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike

    from firstlight.runners.engine import OpticalEngine
    from firstlight.runners.llama import Llama
    from firstlight.runners.recipe import Recipe
    from firstlight.runners.weights import FloatArray

_SAMPLE_TOK = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerLight:
    """What decides a layer's share of the light.

    Attributes:
        name: The layer.
        kappa: Σ|x||w| over the rms output of each token, root mean square over tokens, as the light
            meets them: after the rotation.
        inputs: Numbers summed for one output.
        lit_macs_per_tok: Multiply-accumulates that are lit for one token, empty outputs included.
    """

    name: str
    kappa: float
    inputs: int
    lit_macs_per_tok: int

    def noise_frac(self, photons_per_mac: float) -> float:
        """Return the shot noise's power over the signal's."""
        return self.kappa**2 / (self.inputs * photons_per_mac)


def layer_lights(
    model: Llama, *, recipe: Recipe, calibration: ArrayLike, engine: OpticalEngine
) -> list[LayerLight]:
    """Return what decides the light of every layer that ``recipe`` does not keep digital.

    Args:
        model: The model.
        recipe: How layers are prepared.
        calibration: Token ids of some text.
        engine: The engine that will run them.
    """
    out, outputs = [], engine.engine.spec.outputs
    for name, inputs in layer_inputs(model, calibration):
        own = recipe.for_layer(name)
        if own is None:
            continue
        weight, x = model.linear(name), inputs[:_SAMPLE_TOK]
        if own.rotation == "hadamard":
            turn = rotation(weight.shape[1])
            weight, x = turn(np.ascontiguousarray(weight)), turn(x)
        out.append(
            LayerLight(
                name=name,
                kappa=_kappa(weight, x),
                inputs=weight.shape[1],
                lit_macs_per_tok=weight.shape[1] * -(-len(weight) // outputs) * outputs,
            )
        )
    return out


def share_light(
    layers: Sequence[LayerLight],
    *,
    photons_per_mac: float,
    importance: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """Return photons a multiply-accumulate by layer, for the light that a uniform one would take.

    Args:
        layers: From :func:`layer_lights`.
        photons_per_mac: The mean over all multiply-accumulates.
        importance: Kind of layer (``down``) -> what a share of noise there costs the model, in any
            unit; kinds that are not named count 1.

    Raises:
        ModelError: An importance or the mean light is not positive, or there is no layer.
    """
    weights = dict(importance or {})
    bad = {kind: value for kind, value in weights.items() if not 0 < value < math.inf}
    if bad or not 0 < photons_per_mac < math.inf or not layers:
        what = f"importance {bad}" if bad else f"{photons_per_mac} photons for {len(layers)} layers"
        raise ModelError(f"light: {what}; positive numbers and at least one layer are allowed")
    wanted = [
        layer.kappa
        * math.sqrt(
            weights.get(layer.name.rsplit(".", 1)[-1], 1.0)
            / (layer.inputs * layer.lit_macs_per_tok)
        )
        for layer in layers
    ]
    macs = [layer.lit_macs_per_tok for layer in layers]
    spent = sum(share * count for share, count in zip(wanted, macs, strict=True))
    unit = photons_per_mac * sum(macs) / spent
    return {layer.name: share * unit for layer, share in zip(layers, wanted, strict=True)}


def importance_of(
    losses: Mapping[tuple[str, ...], float],
    layers: Sequence[LayerLight],
    *,
    photons_per_mac: float,
) -> dict[str, float]:
    """Return what a share of noise costs the model in each kind of layer, from measured losses.

    A kind that lost nothing that could be measured counts a hundredth of the one that matters most:
    it is not known to be nothing.

    Args:
        losses: Kinds of layers (``("q", "k", "v")``) -> nats a token lost with only these optical.
        layers: From :func:`layer_lights`.
        photons_per_mac: The uniform light that they were measured with.

    Raises:
        ModelError: No kind lost anything.
    """
    found: dict[str, float] = {}
    for kinds, loss in losses.items():
        own = [each for each in layers if each.name.rsplit(".", 1)[-1] in kinds]
        noise = sum(each.noise_frac(photons_per_mac) for each in own)
        found |= dict.fromkeys(kinds, loss / noise if noise > 0 else 0.0)
    top = max(found.values(), default=0.0)
    if not top > 0:
        raise ModelError("light: no kind of layer lost anything; measure with less light")
    return {kind: max(value, top / 100) for kind, value in found.items()}


def with_light(recipe: Recipe, light: Mapping[str, float]) -> Recipe:
    """Return ``recipe`` with the light of every layer from :func:`share_light`."""
    own = {name: {"photons_per_mac": photons} for name, photons in light.items()}
    return replace(recipe, overrides={**recipe.overrides, **own})


def _kappa(weight: FloatArray, x: FloatArray) -> float:
    """Return light over rms signal, token by token; a layer without signal counts as all signal.

    The mean of the square is over tokens: one token of massive activations has most of the power of
    a text, and a layer judged by it would leave all other tokens in the dark.
    """
    power = np.square(x @ weight.T).mean(axis=1)
    light = (np.abs(x) @ np.abs(weight).T).mean(axis=1)
    has_signal = power > 0
    if not has_signal.any():
        return 1.0
    return math.sqrt(float((np.square(light[has_signal]) / power[has_signal]).mean()))
