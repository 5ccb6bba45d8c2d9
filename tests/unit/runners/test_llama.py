import numpy as np
import pytest

from firstlight.errors import ModelError
from firstlight.runners import gguf
from firstlight.runners.cache import KvCache, rounded
from firstlight.runners.generation import generate
from firstlight.runners.likelihood import compare, cut_windows, likelihood
from reference import llama as plain
from reference.model_files import write_tiny_gguf

SHAPES = {
    "llama": {"family": "llama"},
    "llama, one key head": {"family": "llama", "kv_heads": 1},
    "mistral window": {"family": "mistral", "window": 5},
    "qwen3": {"family": "qwen3"},
    "qwen2 biases": {"family": "qwen2", "bias": True},
}


@pytest.mark.parametrize("case", SHAPES)
@pytest.mark.parametrize("chunk_tok", [3, 512])
def test_logits_are_those_of_the_plain_forward_pass(case, chunk_tok, tmp_path, rng):
    options = dict(SHAPES[case])
    tensors = write_tiny_gguf(tmp_path / "m.gguf", rng, **options)
    model, ids = gguf.load(tmp_path / "m.gguf"), rng.integers(0, 50, 23)
    hidden = model.hidden(ids, cache=model.new_cache(capacity_tok=23), chunk_tok=chunk_tok)
    want = plain.logits(
        tensors, ids, kv_heads=options.get("kv_heads", 2), window=options.get("window"),
        interleaved=options["family"] in ("llama", "mistral"),
    )  # fmt: skip
    assert np.abs(model.logits(hidden) - want).max() < 1e-4


@pytest.fixture
def tiny(tmp_path, rng):
    write_tiny_gguf(tmp_path / "m.gguf", rng)
    return gguf.load(tmp_path / "m.gguf")


def test_decoding_token_by_token_equals_the_prefill(tiny, rng):
    ids = rng.integers(0, 50, 17)
    whole = tiny.hidden(ids, cache=tiny.new_cache(capacity_tok=17))
    cache = tiny.new_cache(capacity_tok=17)
    one_by_one = np.concatenate([tiny.hidden([i], cache=cache) for i in ids])
    assert np.allclose(whole, one_by_one, atol=1e-5)


def test_a_replacement_takes_over_its_layer_only_and_knows_its_positions(tiny, rng):
    calls = []

    def spy(x, *, first_tok=0):
        calls.append((first_tok, x.shape))
        return x @ tiny.linear("layers.1.k").T

    ids = rng.integers(0, 50, 9)
    cache = tiny.new_cache(capacity_tok=9)
    got = tiny.hidden(ids, cache=cache, replacements={"layers.1.k": spy}, chunk_tok=4)
    want = tiny.hidden(ids, cache=tiny.new_cache(capacity_tok=9))
    assert np.allclose(got, want, atol=1e-5)
    assert calls == [(0, (4, 24)), (4, (4, 24)), (8, (1, 24))]


def test_bad_calls_are_refused(tiny):
    cache = tiny.new_cache(capacity_tok=4)
    for ids, message in [([50], "token id 50"), ([-1], "token id -1"), ([], "non-empty"),
                         ([0.5], "integers"), ([1] * 5, "KV cache for 4")]:  # fmt: skip
        with pytest.raises(ModelError, match=message):
            tiny.hidden(ids, cache=cache)
    for name in ("layers.2.q", "layers.0.x", "q", "layers.-1.q"):
        with pytest.raises(ModelError, match="no linear layer"):
            tiny.linear(name)
    with pytest.raises(ModelError, match="KV format"):
        tiny.new_cache(capacity_tok=4, kv_format="int3")
    with pytest.raises(ModelError, match="the text has 3 tokens, a window 4"):
        cut_windows([1, 2, 3], ctx_tok=4)
    with pytest.raises(ModelError, match="temperature"):
        generate(tiny, [1], max_tok=3, temperature=-1.0)


def test_generation_stops_at_the_stop_token_and_repeats_with_its_seed(tiny):
    greedy = generate(tiny, [1, 2, 3], max_tok=8)
    assert greedy.tolist() == generate(tiny, [1, 2, 3], max_tok=8).tolist()
    stopped = generate(tiny, [1, 2, 3], max_tok=8, stop_id=int(greedy[0]))
    assert stopped.tolist() == [greedy[0]]
    warm = [
        generate(tiny, [1, 2, 3], max_tok=8, temperature=2.0, seed=s).tolist() for s in (1, 1, 2)
    ]
    assert warm[0] == warm[1] != warm[2]


def test_a_run_against_itself_has_ratio_one_and_agrees(tiny, rng):
    windows = cut_windows(rng.integers(0, 50, 45), ctx_tok=20)
    run = likelihood(tiny, windows)
    same = compare(tiny, run, run)
    assert (same.ratio, same.top1_agreement_frac, same.tokens) == (1.0, 1.0, 38)
    assert same.kl < 1e-6
    logits = tiny.logits(tiny.hidden(windows[0], cache=tiny.new_cache(capacity_tok=20)))
    p = np.exp(logits.astype(np.float64))
    p /= p.sum(axis=1, keepdims=True)
    want = -np.log([p[t, windows[0][t + 1]] for t in range(19)])
    assert np.allclose(run.nll[0], want, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "given", "want"),
    [("f16", 1 + 2**-11, 1.0), ("bf16", 1 + 3 * 2**-8, 1 + 2**-6), ("fp8_e4m3", 17.0, 16.0),
     ("fp8_e4m3", 500.0, 448.0), ("fp8_e4m3", 2**-9, 2**-9), ("fp8_e4m3", 2**-11, 0.0)],
)  # fmt: skip
def test_narrow_cache_formats_round_to_their_nearest_number(kind, given, want):
    assert rounded(np.array([given], np.float32), kind)[0] == want


def test_a_cache_copy_is_independent_and_rounded(tiny):
    cache = KvCache(tiny.architecture, capacity_tok=8)
    tiny.hidden([1, 2, 3], cache=cache)
    twin = cache.copy(kv_format="fp8_e4m3")
    tiny.hidden([4], cache=cache)
    assert (twin.length_tok, cache.length_tok) == (3, 4)
    assert not np.array_equal(twin.keys[:, :, :3], cache.keys[:, :, :3])
    assert np.allclose(twin.keys[:, :, :3], cache.keys[:, :, :3], rtol=0.07, atol=0.01)
