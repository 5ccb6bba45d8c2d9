"""The settings that a study measures."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from firstlight.runners.recipe import Recipe

if TYPE_CHECKING:
    from collections.abc import Mapping

    from firstlight.runners.engine import OpticalEngine
    from firstlight.runners.llama import Llama

KINDS = (("q", "k", "v"), ("o",), ("gate", "up"), ("down",))
"""Groups of layers whose share in the loss is measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One setting of the machine.

    Attributes:
        name: What the table calls it.
        recipe: How layers are prepared.
        engine: Changed parameters of the optical engine; empty is the engine as it is.
        series: The sweep it belongs to: ``photons per MAC``, ``mask bits`` …
        value: Its place in that sweep.
    """

    name: str
    recipe: Recipe
    engine: Mapping[str, Any] = field(default_factory=dict)
    series: str = ""
    value: float = math.nan


def points_for(engine: OpticalEngine | None) -> list[Point]:
    """Return the settings to measure on ``engine``, or on converters alone."""
    return converter_points() if engine is None else engine_points()


def engine_points() -> list[Point]:
    """Return settings of an engine: as published, then what each part of it is worth.

    All sweeps stand about one setting: rotated, 8-bit masks, calibrated range. ``exact masks`` write
    weights three times better than the preset assumes; ``fine`` adds a converter of 10 bits (9
    effective).
    """
    base = Recipe(rotation="hadamard")
    four = replace(base, mask_bits=4, rounding="gptq", overrides={"down": {"mask_bits": 8}})
    exact = {"weight_error_sigma_frac": 0.003}
    fine = exact | {"adc_enob": 9.0}
    tenth = {
        "weight_error_sigma_frac": 0.001,
        "rail_ratio_sigma": 0.0002,
        "source_gain_sigma": 0.0005,
        "crosstalk": (0.001, 0.001),
        "adc_enob": 9.0,
    }
    ten = replace(base, adc_bits=10)
    return [
        Point(name="4-bit masks, nearest", recipe=Recipe(mask_bits=4)),
        Point(name="4-bit masks rotated, GPTQ, down 8 bits", recipe=four),
        Point(name="engine's own range", recipe=Recipe(receiver="engine")),
        Point(name="calibrated range", recipe=Recipe()),
        Point(name="engine's own range rotated", recipe=replace(base, receiver="engine")),
        Point(name="calibrated range rotated", recipe=base),
        Point(name="8-bit weights in slices of 4", recipe=replace(base, pixel_bits=4)),
        Point(name="exact masks", recipe=base, engine=exact),
        Point(name="exact masks, fine converter", recipe=ten, engine=fine),
        Point(name="errors a tenth, fine converter", recipe=ten, engine=tenth),
        Point(
            name="errors a tenth, 3000 photons per MAC",
            recipe=ten,
            engine=tenth | {"photons_per_mac": 3000.0},
        ),
        Point(
            name="errors a tenth, 10000 photons per MAC, 12-bit converter",
            recipe=replace(base, adc_bits=12),
            engine=tenth | {"photons_per_mac": 10_000.0, "adc_enob": 11.0},
        ),
        *(_lit(photons, base, {}, "") for photons in (10.0, 30.0, 100.0, 1000.0)),
        *(_lit(photons, ten, fine, " fine") for photons in (100.0, 1000.0, 10_000.0)),
        *(_swept(f"{n}-bit masks", "mask bits", n, replace(base, mask_bits=n)) for n in (4, 6, 8)),
        *(_swept(f"{n}-bit ADC", "ADC bits", n, replace(base, adc_bits=n)) for n in (6, 8)),
        *(
            Point(
                name=f"{share:.0%} crosstalk",
                recipe=base,
                engine={"crosstalk": (share, share)},
                series="crosstalk",
                value=share,
            )
            for share in (0.0, 0.01, 0.03)
        ),
    ]


def converter_points() -> list[Point]:
    """Return the settings of the published studies: bits, ranges and noise without an engine."""
    base, rotated = Recipe(), Recipe(rotation="hadamard")
    both = (("", base), (" rotated", rotated))
    four = replace(rotated, receiver="ideal", mask_bits=4, rounding="gptq")
    detector = replace(rotated, receiver="detector-max", sigma_frac=0.01)
    return [
        Point(name="W8A8, ideal readout", recipe=replace(base, receiver="ideal")),
        Point(name="W4A8 nearest", recipe=replace(base, receiver="ideal", mask_bits=4)),
        Point(name="W4A8 rotated, GPTQ", recipe=four),
        Point(name="range K, ADC 12", recipe=replace(base, receiver="worst", adc_bits=12)),
        *(Point(name=f"calibrated range{word}", recipe=recipe) for word, recipe in both),
        *(
            _swept(
                f"σ {sigma:.1%} of the range{word}",
                f"noise{word}",
                sigma,
                replace(recipe, sigma_frac=sigma),
            )
            for sigma in (0.001, 0.003, 0.01)
            for word, recipe in both
        ),
        *(
            Point(
                name=f"fixed gain K/16, σ 0.3%{word}",
                recipe=replace(recipe, receiver="fixed-gain", sigma_frac=0.003),
            )
            for word, recipe in both
        ),
        Point(name="range per detector, σ 1% rotated", recipe=detector),
    ]


def sensitivity_points(point: Point, model: Llama) -> list[Point]:
    """Return ``point`` with only one kind of layer optical, for each kind."""
    every = {name.rsplit(".", 1)[-1] for name in model.linear_names}
    return [
        replace(
            point,
            name=f"only {', '.join(kinds)}",
            recipe=replace(point.recipe, keep_digital=tuple(sorted(every - set(kinds)))),
            series="sensitivity",
            value=float(index),
        )
        for index, kinds in enumerate(KINDS)
    ]


def _lit(photons: float, recipe: Recipe, engine: Mapping[str, Any], word: str) -> Point:
    """Return one point of a sweep of the light."""
    return Point(
        name=f"{photons:g} photons per MAC{word}",
        recipe=recipe,
        engine={**engine, "photons_per_mac": photons},
        series=f"photons per MAC{word}",
        value=photons,
    )


def _swept(name: str, series: str, value: float, recipe: Recipe) -> Point:
    """Return one point of a sweep of the recipe."""
    return Point(name=name, recipe=recipe, series=series, value=value)
