"""`firstlight accuracy`: what a model loses on its way through the light."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable

    from firstlight.runners.accuracy import Laboratory, Row, Study
    from firstlight.runners.preparation import LayerSignal, OpticalModel
    from firstlight.runners.split import SplitPoint

_BAR = 24
_LIMITS = (0.01, 0.05, 0.10)


@click.command("accuracy")
@click.argument("model", metavar="MODEL")
@click.option("--text", "text_path", required=True, help="UTF-8 text to predict.")
@click.option(
    "--calibration",
    "calibration_path",
    help="Text that ranges are chosen on; without it the end of TEXT, which is then not scored.",
)
@click.option("--tokenizer", help="A tokenizer.json, where the model has none of its own.")
@click.option(
    "--engine", help="Optical engine of the catalog; without it converters and noise alone."
)
@click.option("--ctx", "ctx_tok", default=512, show_default=True, help="Tokens a window.")
@click.option("--windows", type=int, help="At most so many windows.")
@click.option("--seeds", "seed_count", default=1, show_default=True, help="Noise seeds a setting.")
@click.option("--seed", default=0, show_default=True, help="The first of them.")
@click.option(
    "--only", multiple=True, help="Only settings whose name contains this; may be given again."
)
@click.option(
    "--split/--no-split",
    "is_split",
    default=True,
    show_default=True,
    help="Also prefill by light and decode by silicon.",
)
@click.option(
    "--sensitivity/--no-sensitivity",
    "is_sensitivity",
    default=True,
    show_default=True,
    help="Also make one kind of layer optical at a time.",
)
@click.option("--resume", "journal", help="File of measured settings; they are not measured again.")
@click.option("--plot", help="Write the picture here: .svg, .png or .pdf.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option("-o", "--output", help="Write the JSON document here as well.")
def command(
    *, model: str, text_path: str, calibration_path: str | None, tokenizer: str | None,
    engine: str | None, ctx_tok: int, windows: int | None, seed_count: int, seed: int,
    only: tuple[str, ...], is_split: bool, is_sensitivity: bool, journal: str | None,
    plot: str | None, as_json: bool, output: str | None,
) -> None:  # fmt: skip
    """Measure MODEL (GGUF, safetensors or a Hugging Face folder) through the light on a text.

    Prints perplexity over float32 perplexity with its standard error for many settings of the
    machine, which kinds of layer suffer, what the continuation of a prompt suffers when only the
    prompt is computed by light, and the cheapest setting within 1, 5 and 10 %.
    """
    from firstlight.runners.accuracy import Laboratory
    from firstlight.runners.engine import open_engine
    from firstlight.runners.llama import Llama
    from firstlight.runners.points import points_for, sensitivity_points
    from firstlight.runners.tokenizer import load_tokenizer
    from firstlight.runners.weights import open_weights

    if seed_count < 1:
        raise click.BadParameter("at least 1 is allowed", param_hint="--seeds")
    chosen = open_engine(engine) if engine else None
    points = _selected(points_for(chosen), only)
    loaded = Llama(open_weights(model))
    words = load_tokenizer(loaded.weights, path=tokenizer)
    ids = words.encode(_read(text_path))
    if calibration_path:
        calibration = words.encode(_read(calibration_path))[:1024]
    else:
        held = min(1024, len(ids) // 4)
        ids, calibration = ids[:-held], ids[-held:]
    laboratory = Laboratory(
        loaded,
        text=ids,
        calibration=calibration,
        ctx_tok=ctx_tok,
        windows=windows,
        engine=chosen,
        journal=Path(journal) if journal else None,
        progress=_progress(),
    )
    seeds = range(seed, seed + seed_count)
    study = laboratory.study(points, seeds=seeds)
    best = study.within(1 + _LIMITS[1]) or min(study.rows, key=lambda row: row.ratio)
    parts, splits, optical = None, [], None
    if is_sensitivity or is_split:
        optical = laboratory.prepared(best.point, seed=best.measurements[0].seed)
    if is_sensitivity:
        parts = laboratory.study(sensitivity_points(best.point, loaded), seeds=seeds)
    if is_split and optical is not None:
        splits = _splits(laboratory, optical, ids)
    signals = optical.signals if optical is not None and is_sensitivity else []
    document = _document(study, parts, splits, signals)
    if output:
        _write(output, document)
    if plot:
        from firstlight.runners.picture import draw

        draw(study, path=Path(plot))
    if as_json:
        click.echo(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        _print(study, parts, splits, signals, best)


def _selected(points: list[Any], only: tuple[str, ...]) -> list[Any]:
    """Keep the points whose name contains one of the words."""
    kept = [point for point in points if not only or any(word in point.name for word in only)]
    if not kept:
        names = "; ".join(point.name for point in points)
        raise click.BadParameter(f"no setting contains {', '.join(only)}; there are: {names}")
    return kept


def _splits(laboratory: Laboratory, optical: OpticalModel, ids: Any) -> list[SplitPoint]:  # noqa: ANN401
    """Measure prefill by light and decode by silicon at several prompt lengths."""
    from firstlight.runners.split import sweep_lengths

    lengths = [n for n in (32, 128, 448, 1984) if n + 64 <= len(ids)]
    return sweep_lengths(
        laboratory.model, ids, prefill=optical.layers, prompt_lengths_tok=lengths, prompts=6
    )


def _document(
    study: Study, parts: Study | None, splits: list[SplitPoint], signals: list[LayerSignal]
) -> dict[str, Any]:
    """Return everything as one JSON document."""
    from dataclasses import asdict

    return study.document() | {
        "sensitivity": parts.document()["rows"] if parts else None,
        "layers": [
            {key: None if value in (math.inf, -math.inf) else value for key, value in each.items()}
            for each in map(asdict, signals)
        ],
        "split": [
            {key: None if value != value else value for key, value in asdict(point).items()}  # NaN
            for point in splits
        ],
    }


def _print(
    study: Study, parts: Study | None, splits: list[SplitPoint], signals: list[LayerSignal],
    best: Row,
) -> None:  # fmt: skip
    """Print tables to stdout."""
    name = max(24, *(len(row.point.name) for row in study.rows))
    click.echo(
        f"{study.model}: float32 perplexity {study.reference_perplexity:.3f} on {study.text_tok} "
        f"tokens in windows of {study.ctx_tok}\n"
    )
    header = f"{'setting':{name}} {'ratio':>9} {'± s.e.':>7} {'seeds':>7} {'KL':>7} {'top-1':>6} {'SNR':>5} {'clip':>8} {'J/token':>9}"
    click.echo(header)
    for row in study.rows:
        first = row.measurements[0]
        spread = "" if math.isnan(row.seed_sd) else f"±{row.seed_sd:.4f}"
        energy = row.energy_j_per_tok
        click.echo(
            f"{row.point.name:{name}} {row.ratio:9.4f} {row.ratio_se:7.4f} {spread:>7} "
            f"{first.kl:7.4f} {first.top1_agreement_frac:6.1%} {first.snr_db:5.1f} "
            f"{first.clipped_frac:8.1e} {'?' if math.isnan(energy) else f'{energy:.2e}':>9}"
        )
    if parts:
        _print_sensitivity(parts, best)
        _print_signals(signals)
    if splits:
        _print_splits(splits, best)
    click.echo("\ncheapest setting that surely stays within")
    for limit in _LIMITS:
        click.echo(f"  {limit:4.0%}  {_advice(study.within(1 + limit))}")


def _advice(row: Row | None) -> str:
    """Say in a line which setting it is and what it costs."""
    if row is None:
        return "none of these settings"
    first = row.measurements[0]
    energy = row.energy_j_per_tok
    cost = (
        f"{first.readings_per_tok:,.0f} readings a token"
        if math.isnan(energy)
        else f"{energy:.2e} J a token (engine)"
    )
    return f"{row.point.name}: ratio {row.ratio:.4f} ± {row.ratio_se:.4f}, {cost}"


def _print_sensitivity(parts: Study, best: Row) -> None:
    """Print which kind of layer costs how much."""
    click.echo(f"\nwhich layers suffer ({best.point.name})")
    losses = [fmean(m.nll_difference for m in row.measurements) for row in parts.rows]
    top = max(*(abs(loss) for loss in losses), 1e-9)
    for row, loss in zip(parts.rows, losses, strict=True):
        bar = "█" * round(_BAR * max(loss, 0) / top)
        # A ratio's relative error is the error of its logarithm.
        click.echo(f"  {row.point.name:16} {loss:+.4f} ± {row.ratio_se / row.ratio:.4f} nat  {bar}")


def _print_signals(signals: list[LayerSignal]) -> None:
    """Print what every kind of layer does to its signal, and in which block it is worst."""
    kinds: dict[str, list[LayerSignal]] = {}
    for signal in signals:
        kinds.setdefault(signal.name.rsplit(".", 1)[-1], []).append(signal)
    click.echo(
        f"  {'layer':8} {'SNR [dB]':>8} {'worst':>6}  {'in':14} {'κ':>5} {'clip':>8} {'crest':>6}"
    )
    for kind, own in kinds.items():
        worst = min(own, key=lambda signal: signal.snr_db)
        middle = {
            key: median(getattr(signal, key) for signal in own)
            for key in ("snr_db", "kappa", "crest")
        }
        click.echo(
            f"  {kind:8} {middle['snr_db']:8.1f} {worst.snr_db:6.1f}  {worst.name:14} "
            f"{middle['kappa']:5.1f} {fmean(s.clipped_frac for s in own):8.1e} "
            f"{middle['crest']:6.1f}"
        )


def _print_splits(splits: list[SplitPoint], best: Row) -> None:
    """Print what a continuation suffers, by prompt length."""
    click.echo(f"\nprompt by light, continuation by silicon in float32 ({best.point.name})")
    click.echo(
        f"  {'prompt':>6} {'prompts':>7} {'ΔNLL':>8} {'± s.e.':>7} {'KL':>7} {'top-1':>6} {'first':>6}"
    )
    for point in splits:
        click.echo(
            f"  {point.prompt_tok:6} {point.prompts:7} {point.nll_difference:+8.4f} "
            f"{point.nll_difference_se:7.4f} {point.kl:7.4f} {point.top1_agreement_frac:6.1%} "
            f"{point.first_token_agreement_frac:6.1%}"
        )


def _read(path: str) -> str:
    """Return the text in ``path``.

    Raises:
        ModelError: It cannot be read, or is not UTF-8.
    """
    from firstlight.errors import ModelError

    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ModelError(f"{path}: not UTF-8 at byte {error.start}") from error


def _write(path: str, document: dict[str, Any]) -> None:
    """Write the JSON document whole or not at all."""
    from firstlight.errors import OutputError

    target, text = Path(path), json.dumps(document, indent=2, ensure_ascii=False)
    partial = target.with_name(target.name + ".part")
    try:
        partial.write_text(text + "\n", encoding="utf-8")
        partial.replace(target)
    except OSError as error:
        raise OutputError(f"{path}: {error.strerror or error}") from error


def _progress() -> Callable[[str, int, int], None]:
    """Return a progress line on stderr with the time left; silent where that is no terminal."""
    from time import monotonic

    started: dict[str, float] = {}
    terminal = sys.stderr.isatty()

    def report(what: str, done: int, whole: int) -> None:
        begin = started.setdefault(what, monotonic())
        if not terminal:
            return
        left = (monotonic() - begin) * (whole - done) / max(done, 1)
        end = "\n" if done >= whole else ""
        click.echo(
            f"\r{what[:48]:48} {done / whole:4.0%}  {left:4.0f} s left{end}", err=True, nl=False
        )

    return report
