"""The emulator against NumPy's float32 product, in one process, alternated.

`python benches/bench_emulator.py` prints the table of bars (ratios; best of many pairs, in time on
the CPU); `pytest benches/bench_emulator.py` tracks the same cases with pytest-benchmark.

NumPy must run as its users run it: OPENBLAS_CORETYPE and OPENBLAS_L2_SIZE unset, one thread.
`--like-for-like` holds both to AVX2 on a machine that has more.
"""

import argparse
import os
import sys
import time

os.environ["OPENBLAS_NUM_THREADS"] = "1"
for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
    if name in os.environ:
        sys.exit(f"{name} is set: NumPy would not run its own kernel; unset it")
if "--like-for-like" in sys.argv:
    os.environ |= {"OPENBLAS_CORETYPE": "Haswell", "FIRSTLIGHT_ISA": "avx2"}

import numpy as np  # the environment is read when it loads
import pytest

from firstlight.optics import Engine

SHAPES = {
    "512x576x1536 tile 576": (512, 576, 1536, 576),
    "512x2048x2048 tile 512": (512, 2048, 2048, 512),
    "512x2048x2048 tile 1024": (512, 2048, 2048, 1024),
    "512x2048x2048 tile 2048": (512, 2048, 2048, 2048),
    "2048x4096x4096 tile 1024": (2048, 4096, 4096, 1024),
}

CLEAN = {
    "weight_error_sigma_frac": 0.0,
    "source_gain_sigma": 0.0,
    "column_gain_sigma": 0.0,
    "rail_ratio_sigma": 0.0,
}


def engine(name, tile):
    """DAC, four quadrants, shot, receiver and laser noise, crosstalk, 8-bit ADC a tile, ledger."""
    changes = {"inputs": tile, "outputs": max(tile, 1024)}
    if name.startswith("no noise"):
        return Engine.ideal(mask_bits=4, activation_bits=8, adc_bits=8, **changes)
    changes["mask_bits"] = 8 if "8x8" in name else 4
    changes["variance"] = "exact" if "exact" in name else "grouped"
    if "specimen" not in name:
        changes |= CLEAN
    return Engine.preset("iris-nova-optimistic", **changes)


BARS = {
    "physics 8x4": 1.3,
    "physics 8x4, specimen": 1.3,
    "physics 8x8": 1.0,
    "physics 8x8, specimen": 1.0,
    "physics 8x4, exact light": 1.0,
    "no noise 8x4": 1.6,
}
"""Setting -> least ratio to NumPy. `specimen` adds the static errors of the preset."""


def operands(shape):
    tokens, k, n, _ = SHAPES[shape]
    rng = np.random.default_rng(0)
    x = rng.standard_normal((tokens, k), dtype=np.float32)
    return x, rng.standard_normal((n, k), dtype=np.float32)


def cpu_s(work):
    started = time.process_time()
    work()
    return time.process_time() - started


def wall_s(work):
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def compare(shapes, pairs):
    worst = True
    print(f"{'shape':<26}{'setting':<26}{'NumPy':>9}{'light':>9}{'ratio':>7}{'bar':>6}  path")
    for shape in shapes:
        x, w = operands(shape)
        exact = x @ w.T
        for setting, bar in BARS.items():
            layer = engine(setting, SHAPES[shape][3]).compile(w)
            out = np.empty_like(exact)
            layer(x, seed=1, threads=1, out=out)
            error = float(np.square(out - exact).mean() / np.square(exact).mean())
            assert error < 0.05, f"{setting}: not the product any more ({error:.2g})"
            numpy_s = light_s = np.inf
            for _ in range(pairs):
                numpy_s = min(numpy_s, cpu_s(lambda x=x, w=w: x @ w.T))
                light_s = min(
                    light_s,
                    cpu_s(lambda layer=layer, x=x, out=out: layer(x, seed=1, threads=1, out=out)),
                )
            ratio = numpy_s / light_s
            worst &= ratio >= bar
            facts = layer.facts
            print(
                f"{shape:<26}{setting:<26}{numpy_s * 1e3:>6.1f} ms{light_s * 1e3:>6.1f} ms"
                f"{ratio:>7.2f}{bar:>6.1f}  {facts['path']} {facts['isa']}",
                flush=True,
            )
    return worst


def two_threads(shape, pairs):
    x, w = operands(shape)
    layer = engine("physics 8x4", SHAPES[shape][3]).compile(w)
    out = np.empty((len(x), len(w)), np.float32)
    best = {1: np.inf, 2: np.inf}
    for _ in range(pairs):
        for threads, least_s in best.items():
            took_s = wall_s(lambda threads=threads: layer(x, seed=1, threads=threads, out=out))
            best[threads] = min(least_s, took_s)
    one_s, two_s = best.values()
    print(f"{shape}: two threads {one_s / two_s:.2f} times one (wall, best of {pairs} pairs)")


@pytest.mark.parametrize("setting", sorted(BARS))
@pytest.mark.parametrize("shape", ["512x576x1536 tile 576", "512x2048x2048 tile 1024"])
def test_emulated_product(benchmark, shape, setting):
    x, w = operands(shape)
    layer = engine(setting, SHAPES[shape][3]).compile(w)
    y = benchmark(layer, x, seed=1, threads=1)
    assert np.corrcoef(y[0], x[0] @ w.T)[0, 1] > 0.95


@pytest.mark.parametrize("shape", ["512x576x1536 tile 576", "512x2048x2048 tile 1024"])
def test_numpy_product(benchmark, shape):
    x, w = operands(shape)
    y = benchmark(lambda: x @ w.T)
    assert y.shape == (len(x), len(w))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", choices=SHAPES, action="append", help="default: all")
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--like-for-like", action="store_true", help="both with AVX2")
    parser.add_argument("--threads", action="store_true", help="only two threads against one")
    given = parser.parse_args()
    if given.threads:
        two_threads("2048x4096x4096 tile 1024", given.pairs)
    else:
        all_reached = compare(given.shape or list(SHAPES), given.pairs)
        print("every bar is reached" if all_reached else "a bar is missed")
        sys.exit(not all_reached)
