"""The picture of a study: perplexity against what was swept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from firstlight.errors import OutputError

if TYPE_CHECKING:
    from pathlib import Path

    from firstlight.runners.accuracy import Row, Study

_SUFFIXES = (".svg", ".png", ".pdf")


def draw(study: Study, *, path: Path) -> None:
    """Draw one panel for every sweep of ``study`` and the accuracy–energy front where it is known.

    Args:
        study: A finished study.
        path: File to write; its suffix chooses the format.

    Raises:
        OutputError: The suffix is unknown, Matplotlib is missing, or the file cannot be written.
    """
    if path.suffix not in _SUFFIXES:
        raise OutputError(f"{path}: a picture is written as {', '.join(_SUFFIXES)}")
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise OutputError("pictures need Matplotlib: pip install 'firstlight[plot]'") from error
    panels = _panels(study)
    figure = Figure(figsize=(3.4 * max(len(panels), 1), 3.2), layout="constrained")
    for index, (title, lines) in enumerate(panels.items()):
        _panel(figure.add_subplot(1, len(panels), index + 1), title, lines)
    figure.suptitle(
        f"{study.model}, {study.text_tok} tokens: perplexity over float32 "
        f"({study.reference_perplexity:.2f}), bars two standard errors",
        fontsize=9,
    )
    try:
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    except OSError as error:
        raise OutputError(f"{path}: {error.strerror or error}") from error


def _panels(study: Study) -> dict[str, dict[str, list[Row]]]:
    """Group rows by sweep; a sweep that differs only by `` rotated`` shares its panel."""
    panels: dict[str, dict[str, list[Row]]] = {}
    for row in study.rows:
        if row.point.series:
            title = row.point.series.removesuffix(" rotated")
            panels.setdefault(title, {}).setdefault(row.point.series, []).append(row)
    if study.front():
        panels["J per token"] = {"front": study.front()}
    return panels


def _panel(axes: Any, title: str, lines: dict[str, list[Row]]) -> None:  # noqa: ANN401  # Matplotlib
    """Draw one sweep."""
    for name, rows in lines.items():
        is_front = name == "front"
        x = [row.energy_j_per_tok if is_front else row.point.value for row in rows]
        y = [row.ratio for row in rows]
        bars = [row.ratio_high - row.ratio for row in rows]
        axes.errorbar(x, y, yerr=bars, marker="o", markersize=3, capsize=2, label=name)
    values = [row.point.value for rows in lines.values() for row in rows]
    if title == "J per token" or (min(values) > 0 and max(values) > 20 * min(values)):
        axes.set_xscale("log")
    axes.set_yscale("log")
    for limit in (1.01, 1.05, 1.10):
        axes.axhline(limit, color="grey", linewidth=0.5, linestyle=":")
    axes.set_xlabel(title)
    axes.tick_params(labelsize=7)
    if len(lines) > 1:
        axes.legend(fontsize=7)
