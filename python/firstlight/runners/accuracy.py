"""What a model loses on its way through the light: many settings, one text, one table.

A study measures points, each a recipe with a seed, against the float32 model on the same tokens. A
measured point is written down at once, so that a study that was interrupted goes on where it was.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

import numpy as np

from firstlight.errors import ModelError, OutputError
from firstlight.runners.likelihood import Likelihood, compare, cut_windows, likelihood
from firstlight.runners.preparation import OpticalModel, prepare

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from firstlight.runners.engine import OpticalEngine
    from firstlight.runners.llama import Llama
    from firstlight.runners.points import Point


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One point with one seed.

    Attributes:
        point: Its name.
        seed: Names noise and static errors.
        tokens: Predictions scored.
        perplexity: With the optical layers.
        ratio: Over the float32 perplexity.
        ratio_se: Standard error over tokens.
        nll_difference: Nats a token lost [nat].
        kl: Divergence from the float32 prediction [nat].
        top1_agreement_frac: Share of tokens with the same first choice.
        snr_db: Median over layers [dB].
        snr_worst_db: Of the worst layer [dB].
        snr_worst_layer: Its name.
        kappa: Median over layers: light over signal.
        clipped_frac: Share of readings beyond full scale.
        readings_per_tok: Detector readings for one token.
        digital_ops_per_tok: Digital work around the light for one token.
        energy_j_per_tok: Engine's energy for one token by part; empty where no engine is modelled.
        cycles_per_tok: Optical cycles for one token, 0 where no engine is modelled.
        tok_per_s: Speed of this simulation, not of the engine.
    """

    point: str
    seed: int
    tokens: int
    perplexity: float
    ratio: float
    ratio_se: float
    nll_difference: float
    kl: float
    top1_agreement_frac: float
    snr_db: float
    snr_worst_db: float
    snr_worst_layer: str
    kappa: float
    clipped_frac: float
    readings_per_tok: float
    digital_ops_per_tok: float
    energy_j_per_tok: Mapping[str, float]
    cycles_per_tok: float
    tok_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One point, all seeds.

    Attributes:
        point: The setting.
        ratio: Mean perplexity ratio.
        ratio_se: Standard error over tokens of one seed.
        seed_sd: Standard deviation over seeds; NaN with one seed.
        measurements: One for each seed.
    """

    point: Point
    ratio: float
    ratio_se: float
    seed_sd: float
    measurements: tuple[Measurement, ...]

    @property
    def ratio_high(self) -> float:
        """Upper end of the ratio: two standard errors, seeds' spread included where known."""
        spread = 0.0 if math.isnan(self.seed_sd) else self.seed_sd
        return self.ratio + 2 * math.hypot(self.ratio_se, spread)

    @property
    def energy_j_per_tok(self) -> float:
        """Engine's energy for one token [J]; NaN where no engine is modelled."""
        totals = [sum(m.energy_j_per_tok.values()) for m in self.measurements if m.energy_j_per_tok]
        return fmean(totals) if totals else math.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A finished study.

    Attributes:
        model: The model's file.
        text_tok: Tokens scored.
        ctx_tok: Tokens a window [tok].
        reference_perplexity: Of the float32 model.
        reference_tok_per_s: Speed of the float32 model here.
        rows: One for each point, in order.
    """

    model: str
    text_tok: int
    ctx_tok: int
    reference_perplexity: float
    reference_tok_per_s: float
    rows: tuple[Row, ...]

    def within(self, limit: float) -> Row | None:
        """Return the cheapest row whose ratio surely stays below ``limit``.

        Cheapest by the engine's energy; where no engine is modelled, by detector readings.
        """
        fit = [row for row in self.rows if row.ratio_high <= limit]
        return min(fit, key=_cost) if fit else None

    def front(self) -> list[Row]:
        """Return the rows that no other row beats in both accuracy and energy, cheapest first."""
        known = [row for row in self.rows if not math.isnan(row.energy_j_per_tok)]
        out: list[Row] = []
        for row in sorted(known, key=lambda row: (row.energy_j_per_tok, row.ratio)):
            if not out or row.ratio < out[-1].ratio:
                out.append(row)
        return out

    def document(self) -> dict[str, Any]:
        """Return the study as one JSON document; what is not known is null."""
        rows = [
            {
                "name": row.point.name,
                "series": row.point.series,
                "value": row.point.value,
                "recipe": asdict(row.point.recipe),
                "engine": dict(row.point.engine),
                "ratio": row.ratio,
                "ratio_se": row.ratio_se,
                "seed_sd": row.seed_sd,
                "energy_j_per_tok": row.energy_j_per_tok,
                "measurements": [asdict(m) for m in row.measurements],
            }
            for row in self.rows
        ]
        within = {f"{limit:g}": self.within(1 + limit) for limit in (0.01, 0.05, 0.10)}
        document = {
            "schema": 1,
            "model": self.model,
            "text_tok": self.text_tok,
            "ctx_tok": self.ctx_tok,
            "reference_perplexity": self.reference_perplexity,
            "rows": rows,
            "within": {limit: row and row.point.name for limit, row in within.items()},
            "front": [row.point.name for row in self.front()],
        }
        cleaned: dict[str, Any] = _without_nan(document)
        return cleaned


class Laboratory:
    """A model, a text and the float32 run on it, ready to measure points."""

    def __init__(
        self,
        model: Llama,
        *,
        text: NDArray[np.int64],
        calibration: NDArray[np.int64],
        ctx_tok: int = 512,
        windows: int | None = None,
        engine: OpticalEngine | None = None,
        journal: Path | None = None,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> None:
        """Score the text with the float32 model.

        Args:
            model: The model.
            text: Token ids to score.
            calibration: Token ids that ranges are chosen on; no part of what is scored.
            ctx_tok: Tokens a window [tok].
            windows: At most so many windows.
            engine: The optical engine; None is converters and noise alone.
            journal: File of measured points, one JSON line each; they are not measured again.
            progress: Called with (what, tokens done, tokens in all).

        Raises:
            ModelError: The text is shorter than a window, or overlaps the calibration.
        """
        self.model, self.engine, self._journal = model, engine, journal
        self._progress = progress or (lambda _what, _done, _all: None)
        self.windows = cut_windows(text, ctx_tok=ctx_tok, windows=windows)
        self.calibration = np.asarray(calibration, np.int64)
        if len(self.calibration) < 16:
            raise ModelError(f"{len(self.calibration)} calibration tokens; at least 16 are allowed")
        self.reference, self.reference_tok_per_s = self._scored("float32", None)
        self._known = _read_journal(journal)

    def study(self, points: Iterable[Point], *, seeds: Sequence[int] = (0,)) -> Study:
        """Measure every point with every seed; points without noise take one seed.

        Raises:
            OutputError: The journal cannot be written.
        """
        rows = []
        for point in points:
            own = seeds if self._is_random(point) else seeds[:1]
            rows.append(_row(point, [self.measure(point, seed=seed) for seed in own]))
        return Study(
            model=self.model.weights.path.name,
            text_tok=self.windows.size,
            ctx_tok=self.windows.shape[1],
            reference_perplexity=self.reference.perplexity,
            reference_tok_per_s=self.reference_tok_per_s,
            rows=tuple(rows),
        )

    def measure(self, point: Point, *, seed: int) -> Measurement:
        """Return the measurement of one point, from the journal if it is there."""
        key = self._key(point, seed)
        if key not in self._known:
            optical = self.prepared(point, seed=seed)
            run, tok_per_s = self._scored(point.name, optical)
            self._known[key] = self._measurement(point, seed, optical, run, tok_per_s)
            self._write_journal(key)
        return replace(self._known[key], point=point.name)

    def prepared(self, point: Point, *, seed: int) -> OpticalModel:
        """Return the optical layers of one point."""
        return prepare(
            self.model,
            recipe=point.recipe,
            calibration=self.calibration,
            seed=seed,
            engine=self.engine.changed(point.engine) if self.engine else None,
            progress=lambda done: self._progress(
                f"{point.name}: preparing", done, len(self.model.linear_names)
            ),
        )

    def _scored(self, what: str, optical: OpticalModel | None) -> tuple[Likelihood, float]:
        """Score the text; return the run and its speed."""
        from time import perf_counter

        start = perf_counter()
        run = likelihood(
            self.model,
            self.windows,
            replacements=optical.layers if optical else None,
            progress=lambda done: self._progress(what, done, self.windows.size),
        )
        return run, self.windows.size / (perf_counter() - start)

    def _is_random(self, point: Point) -> bool:
        """Tell whether another seed gives another result."""
        return self.engine is not None or point.recipe.sigma_frac > 0

    def _measurement(
        self, point: Point, seed: int, optical: OpticalModel, run: Likelihood, tok_per_s: float
    ) -> Measurement:
        """Summarise one run."""
        result = compare(self.model, self.reference, run)
        tally, tokens = optical.tally(), self.windows.size
        signals = sorted(optical.signals, key=lambda signal: signal.snr_db)
        median = signals[len(signals) // 2] if signals else None
        return Measurement(
            point=point.name,
            seed=seed,
            tokens=result.tokens,
            perplexity=result.perplexity,
            ratio=result.ratio,
            ratio_se=result.ratio_se,
            nll_difference=result.nll_difference,
            kl=result.kl,
            top1_agreement_frac=result.top1_agreement_frac,
            snr_db=median.snr_db if median else math.inf,
            snr_worst_db=signals[0].snr_db if signals else math.inf,
            snr_worst_layer=signals[0].name if signals else "",
            kappa=float(np.median([s.kappa for s in signals])) if signals else math.nan,
            clipped_frac=tally.clipped_frac,
            readings_per_tok=tally.readings / tokens,
            digital_ops_per_tok=tally.digital_ops / tokens,
            energy_j_per_tok={part: j / tokens for part, j in sorted(tally.energy_j.items())},
            cycles_per_tok=tally.cycles / tokens,
            tok_per_s=tok_per_s,
        )

    def _key(self, point: Point, seed: int) -> str:
        """Return what names a measurement: everything that changes its numbers."""
        weights = self.model.weights
        parts = [
            weights.path.name,
            sorted((name, list(shape)) for name, shape in weights.shapes.items())[:8],
            hashlib.sha256(self.model.head[:64].tobytes()).hexdigest(),
            hashlib.sha256(self.windows.tobytes() + self.calibration.tobytes()).hexdigest(),
            list(self.windows.shape),
            asdict(point.recipe),
            dict(point.engine),
            self.engine.name if self.engine else "converters",
            seed,
        ]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:24]

    def _write_journal(self, key: str) -> None:
        """Write one measurement down."""
        if self._journal is None:
            return
        line = json.dumps({"key": key, **_without_nan(asdict(self._known[key]))})
        try:
            with self._journal.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
        except OSError as error:
            raise OutputError(f"{self._journal}: {error.strerror or error}") from error


def _row(point: Point, measured: list[Measurement]) -> Row:
    """Average over seeds."""
    ratios = [m.ratio for m in measured]
    return Row(
        point=point,
        ratio=fmean(ratios),
        ratio_se=fmean(m.ratio_se for m in measured),
        seed_sd=stdev(ratios) if len(ratios) > 1 else math.nan,
        measurements=tuple(measured),
    )


def _cost(row: Row) -> float:
    """What a row costs: joules where they are known, else readings."""
    energy = row.energy_j_per_tok
    return row.measurements[0].readings_per_tok if math.isnan(energy) else energy


def _read_journal(path: Path | None) -> dict[str, Measurement]:
    """Read measured points; a line that was cut short ends what is known."""
    if path is None or not path.exists():
        return {}
    known: dict[str, Measurement] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            fields: dict[str, Any] = json.loads(line)
            key = fields.pop("key")
            # JSON has no NaN: it was written as null.
            told: dict[str, Any] = {
                name: math.nan if value is None else value for name, value in fields.items()
            }
            known[key] = Measurement(**told)
        except (ValueError, TypeError, KeyError, AttributeError):
            break
    return known


def _without_nan(value: Any) -> Any:  # noqa: ANN401  # any JSON value
    """Replace numbers that JSON cannot write by null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    return value
