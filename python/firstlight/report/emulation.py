"""Emulated products in words and pictures: tables, a plot of characters, a plot in a file."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from firstlight.errors import OutputError
from firstlight.units import format_si

if TYPE_CHECKING:
    from collections.abc import Sequence

    from firstlight.optics.run_ledger import RunLedger
    from firstlight.optics.study import ErrorSource, SweepPoint

_BAR = 40
_FORMATS = (".png", ".svg", ".pdf")


def decibels(value: float) -> str:
    """Return a ratio as text; one that never ends is a dash."""
    return f"{value:.1f} dB" if math.isfinite(value) else "–"


def ledger_lines(ledger: RunLedger) -> list[str]:
    """Return the ledger as lines of text."""
    parts = sorted(ledger.energy_j_by_part.items(), key=lambda item: -item[1])
    total = ledger.energy_j or 1.0
    lines = [
        (
            f"cycles      {ledger.cycles:,}, {ledger.reloads:,} mask(s) written, "
            f"{ledger.utilization_frac:.0%} of the pixels' capacity used"
        ),
        (
            f"conversions {ledger.dac_writes:,} in ({ledger.dac_clip_frac:.2%} clipped), "
            f"{ledger.adc_reads:,} out ({ledger.adc_clip_frac:.2%} clipped)"
        ),
        f"light       {_photons(ledger)}, κ {ledger.kappa:.1f}",
        f"noise       analog signal over noise {decibels(ledger.snr_db)}",
        (
            f"energy      {format_si(ledger.energy_j, 'J')} at the engine, "
            f"{format_si(ledger.energy_j / max(ledger.macs, 1), 'J')} a MAC"
        ),
    ]
    lines += [
        f"  {name:<12}{format_si(joules, 'J'):>10}{joules / total:>7.1%}"
        for name, joules in parts
        if joules > 0
    ]
    return lines


def _photons(ledger: RunLedger) -> str:
    if math.isinf(ledger.photons_per_mac):
        return "unlimited"
    if ledger.photons_per_mac == 0:
        return "none carries signal: weights or activations are all zero"
    return f"{ledger.photons:.3g} photons, {ledger.photons_per_mac:.4g} electrons a MAC"


def source_lines(rows: Sequence[ErrorSource]) -> list[str]:
    """Return the table of error sources, worst first."""
    lines = [f"{'effect':<18}{'alone':>10}{'left out':>12}"]
    for row in sorted(rows, key=lambda row: row.alone_snr_db):
        alone, without = decibels(row.alone_snr_db), decibels(row.without_snr_db)
        lines.append(f"{row.effect:<18}{alone:>10}{without:>12}")
    return lines


def sweep_lines(name: str, points: Sequence[SweepPoint]) -> list[str]:
    """Return a sweep as a bar chart of characters."""
    finite = [point.snr_db for point in points if math.isfinite(point.snr_db)]
    low, high = min([0.0, *finite]), max([1.0, *finite])
    width = max(len(name), *(len(str(point.value)) for point in points))
    lines = [f"{name:<{width}}  {'signal over error':<{_BAR + 10}}{'energy a MAC':>14}"]
    for point in points:
        share = (min(point.snr_db, high) - low) / (high - low)
        bar = "█" * max(1, round(share * _BAR))
        joules = format_si(point.ledger.energy_j / max(point.ledger.macs, 1), "J")
        value = decibels(point.snr_db)
        lines.append(f"{point.value!s:<{width}}  {bar} {value:<{_BAR + 9 - len(bar)}}{joules:>14}")
    return lines


def draw_sweep(path: str, curves: dict[str, Sequence[SweepPoint]], *, name: str) -> None:
    """Draw sweeps into a PNG, SVG or PDF file.

    Args:
        path: File to write.
        curves: Points by label.
        name: The parameter, for the axis.

    Raises:
        OutputError: When the format is unknown, matplotlib is missing or the file cannot be
            written.
    """
    if Path(path).suffix not in _FORMATS:
        raise OutputError(f"plot {path!r}: unknown format; allowed: {', '.join(_FORMATS)}")
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise OutputError("plot: needs matplotlib; pip install 'firstlight[plot]'") from None
    figure = Figure(figsize=(7.0, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for label, points in curves.items():
        x = [point.value for point in points]
        axes.plot(x, [point.snr_db for point in points], marker="o", label=label)
    values = [point.value for points in curves.values() for point in points]
    numbers = [value for value in values if isinstance(value, int | float)]
    is_wide = len(numbers) == len(values) and min(numbers) > 0 and max(numbers) > 50 * min(numbers)
    if is_wide:
        axes.set_xscale("log")
    axes.set_xlabel(name.replace("_", " "))
    axes.set_ylabel("signal over error [dB]")
    axes.grid(visible=True, alpha=0.3)
    if len(curves) > 1:
        axes.legend(frameon=False)
    try:
        figure.savefig(path, dpi=160)
    except OSError as error:
        raise OutputError(f"plot {path!r}: {error.strerror or error}") from None
