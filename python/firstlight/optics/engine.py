"""`Engine`: the optical-cycle emulator. Numbers in, numbers and their ledger out.

An engine is a device (`EngineSpec`, from the catalog) and how it is driven (`Drive`). `matmul` sends
vectors past a matrix once; `compile` packs a matrix for many calls. All arithmetic is in Rust.

Example:
    >>> import numpy as np
    >>> from firstlight.optics import Engine
    >>> rng = np.random.default_rng(0)
    >>> x = rng.standard_normal((4, 64), dtype=np.float32)
    >>> w = rng.standard_normal((8, 64), dtype=np.float32)
    >>> y, ledger = Engine.preset("iris-nova-optimistic").matmul(x, w, seed=1)
    >>> y.shape, ledger.cycles, ledger.adc_reads
    ((4, 8), 4, 32)
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from firstlight import _core
from firstlight.errors import ScenarioError, nearest
from firstlight.optics.drive import EXTRA_ENCODINGS, Drive
from firstlight.optics.energy import electrons_per_output
from firstlight.optics.run_ledger import RunLedger, run_ledger
from firstlight.optics.spec import ENCODINGS, EngineSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    F32 = NDArray[np.float32]

_SEED_MAX = 2**64 - 1
_THREADS_MAX = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """An optical engine that can be run.

    Attributes:
        spec: The device, its noise and the energies of its parts.
        drive: How it is driven: scales, ranges, encodings, which effects are on.
    """

    spec: EngineSpec
    drive: Drive = field(default_factory=Drive)

    @classmethod
    def preset(cls, preset_id: str, **changes: Any) -> Self:  # noqa: ANN401  # any parameter
        """Return an engine of the catalog, with some parameters changed.

        Args:
            preset_id: A catalog id such as ``"iris-nova-optimistic"``.
            **changes: As for `replace`.

        Raises:
            CatalogError: When the id is unknown.
            ScenarioError: When a parameter is unknown or out of its range.
        """
        return cls(spec=EngineSpec.preset(preset_id)).replace(**changes)

    @classmethod
    def ideal(cls, **changes: Any) -> Self:  # noqa: ANN401
        """Return an engine without quantisation, noise or error, with some parameters changed."""
        return cls.preset("physical-limit", photons_per_mac=math.inf).replace(**changes)

    def replace(self, **changes: Any) -> Self:  # noqa: ANN401
        """Return a copy with some parameters changed.

        Args:
            **changes: Fields of `EngineSpec` or of `Drive`. Bits of ``None`` are ideal;
                ``photons_per_mac=math.inf`` is unlimited light.

        Raises:
            ScenarioError: When a name is unknown or a value is out of its range.
        """
        device = {item.name for item in dataclasses.fields(EngineSpec)}
        driven = {item.name for item in dataclasses.fields(Drive)}
        if changes.get("encoding") is not None:
            changes["signed_encoding"] = changes.pop("encoding")
        for name in changes:
            if name not in device | driven:
                known = sorted(device | driven)
                raise ScenarioError(
                    f"{name!r} is not a parameter of an engine{nearest(name, known)}"
                )
        spec = {name: value for name, value in changes.items() if name in device}
        drive = {name: value for name, value in changes.items() if name in driven}
        if "photons_per_mac" in spec:
            drive["is_light_unlimited"] = spec["photons_per_mac"] == math.inf
            if drive["is_light_unlimited"]:
                del spec["photons_per_mac"]
        if spec.get("signed_encoding") in {*ENCODINGS, *EXTRA_ENCODINGS}:
            drive["encoding"] = None
            if spec["signed_encoding"] in EXTRA_ENCODINGS:
                drive["encoding"] = spec.pop("signed_encoding")
        return dataclasses.replace(
            self, spec=self.spec.replace(**spec), drive=dataclasses.replace(self.drive, **drive)
        )

    @property
    def signed_encoding(self) -> str:
        """How signs ride on light."""
        return self.drive.encoding or self.spec.signed_encoding

    def compile(self, w: F32, *, calibration: F32 | None = None, layer: int = 0) -> Layer:
        """Write a matrix on masks, once for many calls.

        Args:
            w: Weights, (outputs, inputs) float32, C-contiguous.
            calibration: A sample of inputs, (tokens, inputs) float32, that sets the converter
                ranges, the laser and each column's gain and bias; at most 512 rows are used.
                Without it, operands are taken to be normally distributed.
            layer: Number of the layer in its model: part of the key of its noise.

        Raises:
            ScenarioError: When an array has the wrong dtype, shape or order, or is not finite.
        """
        w = _matrix("w", w)
        sample = None if calibration is None else _matrix("calibration", calibration)
        layer = _whole("layer", layer, high=_SEED_MAX)
        with _refusals():
            core = _core.OpticalLayer(w, self.core_spec(), calibration=sample)
        return Layer(engine=self, core=core, layer=layer)

    def matmul(
        self,
        x: F32,
        w: F32,
        *,
        seed: int = 0,
        layer: int = 0,
        first_tok: int = 0,
        threads: int | None = None,
        out: F32 | None = None,
        calibration: F32 | None = None,
    ) -> tuple[F32, RunLedger]:
        """Compute ``x @ w.T`` by light.

        Args:
            x: Activations, (tokens, inputs) float32, C-contiguous.
            w: Weights, (outputs, inputs) float32, C-contiguous.
            seed: Seed of the noise.
            layer: Number of the layer; part of the key of the noise.
            first_tok: Number of the first token in its stream: a batch cut in parts gives the same
                bits when each part says where it starts.
            threads: Threads to use; None takes every core. The result does not depend on it.
            out: Array to write, (tokens, outputs) float32.
            calibration: As for `compile`.

        Returns:
            The product, (tokens, outputs), and what it took.

        Raises:
            ScenarioError: When an argument is of the wrong type, shape or range.
        """
        # Both operands are checked before the matrix is packed.
        x, w = _matrix("x", x), _matrix("w", w)
        _same_inputs(x, w.shape[1])
        compiled = self.compile(w, calibration=calibration, layer=layer)
        return compiled.run(x, seed=seed, first_tok=first_tok, threads=threads, out=out)

    def core_spec(self) -> dict[str, Any]:
        """Return the parameters under the names of the compiled core."""
        spec, drive = self.spec, self.drive
        names = drive.core_names()
        names.update(
            inputs=spec.inputs,
            outputs=spec.outputs,
            signed_encoding=self.signed_encoding,
            activation_bits=spec.activation_bits,
            weight_bits=self.weight_bits,
            mask_bits=spec.mask_bits,
            adc_bits=spec.adc_bits,
            adc_enob=self._enob(),
            mask_contrast_ratio=spec.mask_contrast_ratio,
            mask_response_poly=spec.mask_response_poly,
            weight_error_sigma=spec.weight_error_sigma_frac,
            source_gain_sigma=spec.source_gain_sigma,
            column_gain_sigma=spec.column_gain_sigma,
            rail_ratio_sigma=spec.rail_ratio_sigma,
            rail_leak=spec.rail_leak,
            detector_offset_sigma=spec.detector_offset_sigma,
            receiver_noise_electrons=spec.receiver_noise_electrons,
            rin_rms=self.rin_rms,
            crosstalk=list(drive.crosstalk or [spec.crosstalk_each_side_frac] * 2),
            inter_symbol_frac=self.inter_symbol_frac if drive.inter_symbol else 0.0,
            drift_per_tok=drive.drift_frac_per_s / spec.f_cycle_hz,
        )
        if drive.electrons_full_scale is not None:
            names["electrons_full_scale"] = drive.electrons_full_scale
        elif not drive.is_light_unlimited:
            names["electrons_per_mac"] = electrons_per_output(spec) / spec.inputs
        return names

    @property
    def weight_bits(self) -> int | None:
        """Bits of a signed weight; those of the mask unless the drive says otherwise."""
        if self.drive.weight_bits is not None or self.spec.mask_bits is None:
            return self.drive.weight_bits
        return max(2, self.spec.mask_bits)

    @property
    def rin_rms(self) -> float:
        """Relative intensity noise of one reading: √(10^(RIN/10) · bandwidth)."""
        if self.spec.laser_rin_db_per_hz is None:
            return 0.0
        over_f = self.spec.receiver_bandwidth_over_f or 0.5
        density_per_hz = 10.0 ** (self.spec.laser_rin_db_per_hz / 10.0)
        return math.sqrt(density_per_hz * over_f * self.spec.f_cycle_hz)

    @property
    def inter_symbol_frac(self) -> float:
        """Share of the previous symbol that a single-pole receiver still holds: e^(−2πB/f)."""
        over_f = self.spec.receiver_bandwidth_over_f
        return 0.0 if over_f is None else math.exp(-2.0 * math.pi * over_f)

    def _enob(self) -> float | None:
        bits, enob = self.spec.adc_bits, self.spec.adc_enob
        if bits is None or enob is None or not self.drive.adc_noise:
            return None
        # Fewer nominal bits than the part's: they set the limit.
        return min(enob, float(bits))

    def explain(self, *, inputs: int | None = None, outputs: int | None = None) -> str:
        """Say in words what this engine does with a matrix of that shape.

        Args:
            inputs: Inputs of the matrix; one tile unless given.
            outputs: Outputs of the matrix; one tile unless given.
        """
        from firstlight.optics.account import account

        return account(self, inputs=inputs, outputs=outputs)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Layer:
    """A matrix on masks.

    Attributes:
        engine: The engine it was compiled for.
        core: The packed masks.
        layer: Number of the layer in its model.
    """

    engine: Engine
    core: _core.OpticalLayer
    layer: int

    def __call__(
        self,
        x: F32,
        *,
        seed: int = 0,
        first_tok: int = 0,
        threads: int | None = None,
        out: F32 | None = None,
    ) -> F32:
        """Return ``x @ w.T`` by light, (tokens, outputs); `run` returns the ledger, too."""
        y, _ = self.run(x, seed=seed, first_tok=first_tok, threads=threads, out=out)
        return y

    def run(
        self,
        x: F32,
        *,
        seed: int = 0,
        first_tok: int = 0,
        threads: int | None = None,
        out: F32 | None = None,
    ) -> tuple[F32, RunLedger]:
        """Return ``x @ w.T`` by light and what it took.

        Args:
            x: Activations, (tokens, inputs) float32, C-contiguous.
            seed: Seed of the noise.
            first_tok: Number of the first token in its stream.
            threads: Threads to use; None takes every core.
            out: Array to write, (tokens, outputs) float32, C-contiguous.

        Raises:
            ScenarioError: When an argument is of the wrong type, shape or range.
        """
        facts = self.facts
        x = _matrix("x", x)
        _same_inputs(x, facts["inputs"])
        seed = _whole("seed", seed, high=_SEED_MAX)
        first_tok = _whole("first_tok", first_tok, high=2**62)
        used = 0 if threads is None else _whole("threads", threads, low=1, high=_THREADS_MAX)
        shape = (x.shape[0], facts["outputs"])
        y = np.empty(shape, dtype=np.float32) if out is None else _matrix("out", out)
        if y.shape != shape:
            raise ScenarioError(f"out: shape {y.shape} does not match; allowed: {shape}")
        if not y.flags.writeable:
            raise ScenarioError("out: the array is read-only; allowed: a writeable one")
        if out is not None and np.may_share_memory(x, y):
            raise ScenarioError("out: it shares memory with x; allowed: an array of its own")
        with _refusals():
            counts = self.core.matmul(
                x, y, seed=seed, layer=self.layer, first_token=first_tok, threads=used
            )
        return y, run_ledger(counts, engine=self.engine, facts=facts, tokens=x.shape[0])

    @property
    def facts(self) -> dict[str, Any]:
        """What was compiled: tiles, path and why, packed bytes, light budget, converter steps."""
        return self.core.describe()

    @property
    def nbytes(self) -> int:
        """Memory of the packed masks [byte]."""
        return int(self.facts["bytes"])


class _refusals:  # noqa: N801  # used as a statement
    """Turns the core's refusals into the package's exception."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        if kind is not None and issubclass(kind, ValueError | OverflowError | TypeError):
            raise ScenarioError(str(error)) from None


def _matrix(name: str, value: object) -> F32:
    if not isinstance(value, np.ndarray):
        raise ScenarioError(f"{name}: {type(value).__name__} is not an array; allowed: float32")
    if value.dtype != np.float32 or not value.dtype.isnative:
        raise ScenarioError(
            f"{name}: dtype {value.dtype} is not allowed; float32: {name}.astype(numpy.float32)"
        )
    if value.ndim != 2:
        raise ScenarioError(f"{name}: shape {value.shape} is not allowed; two dimensions")
    if not value.flags.c_contiguous:
        raise ScenarioError(
            f"{name}: rows are not contiguous; numpy.ascontiguousarray({name}) makes a copy that is"
        )
    if not value.flags.aligned:
        raise ScenarioError(f"{name}: the array is not aligned; {name}.copy() is")
    return value


def _same_inputs(x: F32, inputs: int) -> None:
    if x.shape[1] != inputs:
        raise ScenarioError(
            f"x: shape {x.shape} does not fit the weights; allowed: (tokens, {inputs})"
        )


def _whole(name: str, value: object, *, low: int = 0, high: int) -> int:
    is_whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not is_whole or not low <= int(value) <= high:  # type: ignore[call-overload]
        raise ScenarioError(f"{name}: {value!r} is not allowed; a whole number {low} to {high}")
    return int(value)  # type: ignore[call-overload,no-any-return]


def parameters(engine: Engine) -> Mapping[str, Any]:
    """Return every parameter of an engine by name."""
    device = {item.name: getattr(engine.spec, item.name) for item in dataclasses.fields(EngineSpec)}
    driven = {item.name: getattr(engine.drive, item.name) for item in dataclasses.fields(Drive)}
    return {**device, **driven}
