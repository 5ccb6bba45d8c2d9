"""The real model against values computed by transformers and by a second NumPy program."""

import hashlib

import numpy as np
import pytest

from firstlight.errors import ModelError
from firstlight.runners.generation import generate
from firstlight.runners.gptq import gptq, round_to_nearest, tiles
from firstlight.runners.hadamard import rotation
from firstlight.runners.likelihood import cut_windows, likelihood
from firstlight.runners.preparation import layer_inputs
from firstlight.runners.tokenizer import load_tokenizer


def test_the_file_is_the_one_the_reference_was_made_from(smollm2_path, reference):
    assert hashlib.sha256(smollm2_path.read_bytes()).hexdigest() == reference["gguf_sha256"]


@pytest.mark.parametrize("prompt", range(4))
def test_logits_are_within_a_thousandth(smollm2, reference, prompt):
    ids = reference[f"p{prompt}_ids"]
    hidden = smollm2.hidden(ids, cache=smollm2.new_cache(capacity_tok=len(ids)))
    logits = smollm2.logits(hidden[-1:])[0]
    assert np.abs(logits[::16] - reference[f"p{prompt}_last_every_16"]).max() < 1e-3
    top = reference[f"p{prompt}_top_ids"]
    assert np.abs(logits[top] - reference[f"p{prompt}_top_logits"]).max() < 1e-3


def test_the_residual_stream_is_right_after_every_block(smollm2, reference):
    want = reference["p0_resid_after_block_every_8"]
    got = np.array([x[-1, ::8] for x in smollm2.residuals(reference["p0_ids"])])
    # The stream grows to some thousands in one channel.
    assert np.abs(got - want).max() < 1e-5 * np.abs(want).max()


@pytest.mark.parametrize("prompt", range(4))
def test_greedy_continuations_are_exact(smollm2, reference, prompt):
    case = reference["prompts"][prompt]
    got = generate(smollm2, case["prompt_ids"], max_tok=48, stop_id=2)
    assert got.tolist() == case["greedy_ids"]


@pytest.mark.parametrize("ctx", [512, 2048])
def test_every_token_of_the_first_window_is_as_likely_as_the_reference_says(
    smollm2, reference, ctx
):
    run = likelihood(smollm2, cut_windows(reference["ids_first_2048"], ctx_tok=ctx, windows=1))
    assert np.abs(run.nll[0] - reference[f"nll_ctx{ctx}_window0"]).max() < 1e-3


@pytest.mark.long
@pytest.mark.parametrize("ctx", [512, 2048])
def test_perplexity_of_the_whole_text(smollm2, reference, persuasion, ctx):
    ids = load_tokenizer(smollm2.weights).encode(persuasion)
    run = likelihood(smollm2, cut_windows(ids, ctx_tok=ctx))
    assert run.perplexity == pytest.approx(reference["perplexity_persuasion"][str(ctx)], rel=1e-4)


def test_token_ids_are_the_reference_and_text_comes_back(smollm2, reference, persuasion):
    tokenizer = load_tokenizer(smollm2.weights)
    ids = tokenizer.encode(persuasion)
    assert len(ids) == 16_384
    assert np.array_equal(ids[:2048], reference["ids_first_2048"])
    assert tokenizer.decode(ids) == persuasion
    assert (tokenizer.bos_id, tokenizer.eos_id, tokenizer.vocab) == (None, 2, 49_152)
    for case in reference["prompts"]:
        assert tokenizer.encode(case["prompt"]).tolist() == case["prompt_ids"]


@pytest.mark.parametrize("rotated", [False, True])
def test_gptq_is_no_worse_than_rounding_on_every_layers_own_objective(smollm2, reference, rotated):
    checked = 0
    for name, inputs in layer_inputs(smollm2, reference["ids_first_2048"][:256]):
        # The first block has the massive activations' origin, the last the largest stream.
        if name.split(".")[1] not in ("0", "15", "29"):
            continue
        weight, x = np.ascontiguousarray(smollm2.linear(name)), inputs
        if rotated:
            turn = rotation(weight.shape[1])
            weight, x = turn(weight), turn(x)
        edges = tiles(weight.shape[1], 576)
        rounded = round_to_nearest(weight, bits=4, tile_starts=edges)
        moved = gptq(weight, inputs=x, bits=4, tile_starts=edges)
        plain, best = (
            np.square((x @ (grid.weights - weight).T).astype(np.float64)).sum(axis=0)
            for grid in (rounded, moved)
        )
        # Float32 sums of both sides differ in their last digits where nothing was moved.
        assert (best <= plain * (1 + 1e-4)).all(), name
        assert best.sum() < plain.sum(), name
        checked += 1
    assert checked == 21


def test_a_tokenizer_of_another_model_is_refused(smollm2, tmp_path):
    tokenizers = pytest.importorskip("tokenizers", reason="needs firstlight[models]")
    vocab = {f"t{i}": i for i in range(60_000)}
    other = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocab, unk_token=next(iter(vocab))))
    other.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ModelError, match="60000 tokens, the model 49152"):
        load_tokenizer(smollm2.weights, path=tmp_path / "tokenizer.json")
    (tmp_path / "broken.json").write_text("{}")
    with pytest.raises(ModelError, match="no tokenizer"):
        load_tokenizer(smollm2.weights, path=tmp_path / "broken.json")
