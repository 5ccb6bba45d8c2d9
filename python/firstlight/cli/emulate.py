"""`firstlight emulate`: one product through the optics, its error, its sources, its ledger."""

from __future__ import annotations

import contextlib
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    from firstlight.cli.destination import Destination
    from firstlight.optics import Engine

    F32 = NDArray[np.float32]


@click.command("emulate")
@click.option("--preset", default="iris-nova-optimistic", show_default=True,
              help="Engine of the catalog.")  # fmt: skip
@click.option(
    "--x",
    "x_file",
    metavar="FILE",
    help="Activations, (tokens, inputs) .npy or FILE.safetensors:NAME.",
)
@click.option(
    "--w",
    "w_file",
    metavar="FILE",
    help="Weights, (outputs, inputs) .npy or FILE.safetensors:NAME.",
)
@click.option("--shape", nargs=3, type=click.IntRange(1, 1 << 20), default=(256, 1024, 1024),
              show_default=True, metavar="TOKENS INPUTS OUTPUTS",
              help="Random operands where no file is given.")  # fmt: skip
@click.option("--set", "changes", multiple=True, metavar="NAME=VALUE",
              help="A parameter of the engine, as in --set adc_bits=6; 'none' is ideal.")  # fmt: skip
@click.option("--sweep", metavar="NAME=VALUES",
              help="Several runs, as in mask_bits=2..8 or photons_per_mac=1,10,100.")  # fmt: skip
@click.option("--plot", metavar="FILE", help="Draw the sweep into a PNG, SVG or PDF file.")
@click.option("--calibrate", is_flag=True, help="Set ranges, bias and gain from the activations.")
@click.option("--explain", is_flag=True, help="Say what the engine does with the matrix, first.")
@click.option("--threads", type=click.IntRange(1, 1024), help="Threads; all cores by default.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option("-o", "--output", metavar="FILE", help="Write the product to a .npy file.")
def command(**options: Any) -> None:  # noqa: ANN401
    """Send vectors past a matrix of light: error against exact, what causes it, what it takes."""
    from firstlight.errors import ScenarioError
    from firstlight.optics import Engine

    engine = Engine.preset(options["preset"]).replace(**_changes(options["changes"]))
    if options["plot"] and not options["sweep"]:
        raise ScenarioError("--plot draws a sweep; give --sweep NAME=VALUES, too")
    if options["output"] and options["sweep"]:
        raise ScenarioError("-o writes one product, --sweep makes several; leave one of them out")
    if options["sweep"]:
        x, w = _operands(options)
        _sweep(engine, x, w, options)
        return
    with _product_file(options["output"]) as product:
        x, w = _operands(options)
        _once(engine, x, w, options, product)


def _once(
    engine: Engine, x: F32, w: F32, options: dict[str, Any], product: Destination | None
) -> None:
    from firstlight.optics.study import error_sources, exact_product, snr_db
    from firstlight.report import emulation

    calibration = x if options["calibrate"] else None
    layer = engine.compile(w, calibration=calibration)
    y, ledger = layer.run(x, seed=options["seed"], threads=options["threads"])
    ratio_db = snr_db(y, exact_product(x, w))
    rows = error_sources(engine, x, w, seed=options["seed"], calibration=calibration)
    if product is not None:
        product.write(_npy(y))
    if options["as_json"]:
        document = {
            "schema": 1,
            "preset": options["preset"],
            "shape": [*x.shape, w.shape[0]],
            "seed": options["seed"],
            "snr_db": _finite(ratio_db),
            "path": layer.facts["path"],
            "reason": layer.facts["reason"],
            "ledger": ledger.as_dict(),
            "error_sources": [
                {
                    "effect": row.effect,
                    "alone_snr_db": _finite(row.alone_snr_db),
                    "without_snr_db": _finite(row.without_snr_db),
                }
                for row in rows
            ],
        }
        click.echo(json.dumps(document, indent=2, ensure_ascii=False))
        return
    tokens, inputs = x.shape
    if options["explain"]:
        click.echo(engine.explain(inputs=inputs, outputs=w.shape[0]) + "\n")
    click.echo(
        f"{tokens} × {inputs} × {w.shape[0]} through {options['preset']}: signal over error "
        f"{emulation.decibels(ratio_db)}"
    )
    click.echo("\n".join(emulation.ledger_lines(ledger)))
    click.echo("\n" + "\n".join(emulation.source_lines(rows)))


def _sweep(engine: Engine, x: F32, w: F32, options: dict[str, Any]) -> None:
    from firstlight.optics.study import sweep
    from firstlight.report import emulation

    name, values = _values(options["sweep"])
    calibration = x if options["calibrate"] else None
    points = sweep(
        engine, x, w, name=name, values=values, seed=options["seed"], calibration=calibration
    )
    if options["plot"]:
        emulation.draw_sweep(options["plot"], {options["preset"]: points}, name=name)
    if options["as_json"]:
        document = {
            "schema": 1,
            "preset": options["preset"],
            "parameter": name,
            "points": [
                {
                    "value": _finite(point.value),
                    "snr_db": _finite(point.snr_db),
                    "ledger": point.ledger.as_dict(),
                }
                for point in points
            ],
        }
        click.echo(json.dumps(document, indent=2, ensure_ascii=False))
        return
    click.echo("\n".join(emulation.sweep_lines(name, points)))


def _finite(value: Any) -> Any:  # noqa: ANN401
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _operands(options: dict[str, Any]) -> tuple[F32, F32]:
    import numpy as np

    from firstlight.errors import ScenarioError

    tokens, inputs, outputs = options["shape"]
    rng = np.random.default_rng(options["seed"])
    w = _load("--w", options["w_file"]) if options["w_file"] else None
    x = _load("--x", options["x_file"]) if options["x_file"] else None
    if w is not None:
        inputs = w.shape[1]
    elif x is not None:
        inputs = x.shape[1]
    if max(tokens * inputs, outputs * inputs) > 1 << 31:
        raise ScenarioError("--shape: more than 2^31 numbers; allowed: smaller operands")
    if x is None:
        x = rng.standard_normal((tokens, inputs), dtype=np.float32)
    if w is None:
        w = rng.standard_normal((outputs, inputs), dtype=np.float32)
    return x, w


def _load(option: str, source: str) -> F32:
    """Read a matrix; a file of another float type is converted, since its name says so."""
    import numpy as np

    from firstlight.errors import ScenarioError

    path, _, tensor = source.partition(".safetensors:")
    try:
        if tensor:
            array = _tensor(path + ".safetensors", tensor)
        else:
            # Mapped, so that a header that lies about its size costs nothing.
            array = np.load(source, allow_pickle=False, mmap_mode="r")
    except (OSError, ValueError, EOFError, KeyError) as error:
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        if "Python objects" in reason or "allow_pickle" in reason:
            reason = "it holds Python objects, which could run code; allowed: numbers"
        raise ScenarioError(f"{option} {source!r}: cannot be read ({reason})") from None
    if not isinstance(array, np.ndarray) or array.ndim != 2:
        raise ScenarioError(f"{option} {source!r}: not a matrix; allowed: two dimensions")
    if array.dtype.kind != "f":
        raise ScenarioError(f"{option} {source!r}: dtype {array.dtype}; allowed: floating point")
    return np.ascontiguousarray(array, dtype=np.float32)


def _tensor(path: str, name: str) -> Any:  # noqa: ANN401
    from firstlight.errors import ScenarioError

    try:
        from safetensors import safe_open  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        raise ScenarioError(
            f"{path}: reading it needs safetensors; pip install safetensors"
        ) from None
    with safe_open(path, framework="numpy") as file:
        return file.get_tensor(name)


@contextlib.contextmanager
def _product_file(path: str | None) -> Iterator[Destination | None]:
    """Claim the product's file before the work; what is written is whole or not there."""
    from firstlight.cli.destination import Destination
    from firstlight.errors import OutputError

    if path is None:
        yield None
        return
    if Path(path).suffix != ".npy":
        raise OutputError(f"-o {path!r}: unknown format; allowed: .npy")
    with Destination(path) as product:
        yield product


def _npy(y: F32) -> bytes:
    import io

    import numpy as np

    buffer = io.BytesIO()
    np.save(buffer, y)
    return buffer.getvalue()


def _changes(pairs: tuple[str, ...]) -> dict[str, Any]:
    from firstlight.errors import ScenarioError

    changes = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise ScenarioError(f"--set {pair!r}: no value; allowed: NAME=VALUE")
        changes[name.strip()] = _value(value.strip())
    return changes


def _values(text: str) -> tuple[str, list[Any]]:
    """Read ``name=2..8``, ``name=1..1000:log:4`` or ``name=a,b,c``."""
    from firstlight.errors import ScenarioError

    name, equals, spread = text.partition("=")
    low, dots, rest = spread.partition("..")
    if not equals or not spread:
        raise ScenarioError(f"--sweep {text!r}: allowed: NAME=2..8, NAME=1..1e3:log:4, NAME=1,2,3")
    if not dots:
        return name.strip(), [_value(part.strip()) for part in spread.split(",")]
    high, _, form = rest.partition(":")
    first, last = _value(low), _value(high)
    if not isinstance(first, int | float) or not isinstance(last, int | float) or first > last:
        raise ScenarioError(f"--sweep {text!r}: {spread!r} is not a range of numbers")
    if form.startswith("log:") and first > 0:
        return name.strip(), _spaced(text, form[4:], first, last)
    if form or not isinstance(first, int) or not isinstance(last, int) or last - first > 1000:
        raise ScenarioError(f"--sweep {text!r}: allowed: whole numbers, or LOW..HIGH:log:COUNT")
    return name.strip(), list(range(first, last + 1))


def _spaced(text: str, count: str, first: float, last: float) -> list[Any]:
    from firstlight.errors import ScenarioError

    number = _value(count)
    if not isinstance(number, int) or not 2 <= number <= 1000:
        raise ScenarioError(f"--sweep {text!r}: {count!r} points; allowed: 2 to 1000")
    ratio = (last / first) ** (1 / (number - 1))
    return [float(f"{first * ratio**index:.6g}") for index in range(number)]


def _value(text: str) -> Any:  # noqa: ANN401  # a number, a switch or a word
    words = {"none": None, "ideal": None, "true": True, "false": False}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
