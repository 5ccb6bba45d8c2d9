"""Hugging Face models through the light; needs firstlight[transformers]."""

import pytest

from firstlight.runners.recipe import Recipe

torch = pytest.importorskip("torch", reason="needs firstlight[torch]")
transformers = pytest.importorskip("transformers", reason="needs firstlight[transformers]")
pytest.importorskip("accelerate", reason="needs firstlight[transformers]")

from firstlight.runners.torch import optical_layers  # noqa: E402
from firstlight.runners.transformers import optical_config  # noqa: E402


@pytest.fixture
def folder(tmp_path):
    """A small random Llama, saved as a checkpoint."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, vocab_size=50, max_position_embeddings=64,
    )  # fmt: skip
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path)
    return tmp_path


def test_from_pretrained_gives_an_optical_model(folder):
    exact = transformers.LlamaForCausalLM.from_pretrained(folder)
    light = transformers.LlamaForCausalLM.from_pretrained(
        folder, quantization_config=optical_config(recipe=Recipe(rotation="hadamard"))
    )
    assert len(optical_layers(light)) == 14
    assert type(light.lm_head) is torch.nn.Linear
    ids = torch.arange(20)[None]
    with torch.no_grad():
        want, got = exact(ids).logits, light(ids).logits
    assert 0 < (got - want).norm() < 0.1 * want.norm()


def test_the_configuration_is_a_class_of_the_library_and_generation_works(folder):
    from firstlight.runners.transformers import OpticalConfig

    chosen = OpticalConfig(recipe=Recipe(mask_bits=8), keep_digital=("lm_head", "down_proj"))
    assert chosen.to_dict()["quant_method"] == "firstlight"
    light = transformers.AutoModelForCausalLM.from_pretrained(folder, quantization_config=chosen)
    assert len(optical_layers(light)) == 12
    ids = torch.arange(10)[None]
    out = light.generate(ids, max_new_tokens=4, do_sample=False, pad_token_id=0)
    assert out.shape == (1, 14)
    # A KV cache feeds one token at a time: every layer saw the prompt and all but the last token.
    assert {layer.seen_tok for layer in optical_layers(light)} == {13}


def test_a_checkpoint_of_optical_layers_is_refused(folder, tmp_path):
    light = transformers.LlamaForCausalLM.from_pretrained(
        folder, quantization_config=optical_config()
    )
    with pytest.raises(ValueError, match="not serializable"):
        light.save_pretrained(tmp_path / "out")


def test_an_engine_of_the_catalog_computes_a_hugging_face_model(folder):
    from firstlight.runners.engine import open_engine

    exact = transformers.LlamaForCausalLM.from_pretrained(folder)
    engine = open_engine("physical-limit")
    light = transformers.LlamaForCausalLM.from_pretrained(
        folder, quantization_config=optical_config(engine=engine)
    )
    ids = torch.arange(20)[None]
    with torch.no_grad():
        want, got = exact(ids).logits, light(ids).logits
    assert 0 < (got - want).norm() < 0.1 * want.norm()
    assert all(layer.prepared.tally.cycles > 0 for layer in optical_layers(light))


@pytest.mark.parametrize("preset", [None, "iris-nova-optimistic"])
def test_pytorch_numpy_and_the_runner_give_the_same_bits_for_every_layer(folder, preset):
    from firstlight.runners import safetensors
    from firstlight.runners.engine import open_engine
    from firstlight.runners.preparation import layer_inputs, prepare, prepare_layer

    engine = open_engine(preset) if preset else None
    recipe = Recipe(rotation="hadamard", sigma_frac=0.002)
    # The runner, layer by layer, on its own inputs; noise is named by layer and position.
    model = safetensors.load(folder)
    ids = (torch.arange(30) % 50).numpy()
    runner = prepare(model, recipe=recipe, calibration=ids, seed=5, engine=engine)
    light = transformers.LlamaForCausalLM.from_pretrained(
        folder, quantization_config=optical_config(engine=engine, recipe=recipe, seed=5)
    )
    swapped = [module for module in light.modules() if type(module).__name__ == "OpticalLinear"]
    for number, (module, (name, inputs)) in enumerate(
        zip(swapped, layer_inputs(model, ids), strict=True)
    ):
        if engine is None:
            module.layer.name = name  # converters name their noise by the layer, engines by place
        module.layer.observe(inputs)
        module.layer.freeze()
        alone = prepare_layer(
            name, model.linear(name), calibration=inputs, recipe=recipe, seed=5, number=number,
            engine=engine,
        )  # fmt: skip
        want = runner.layers[name](inputs, first_tok=0)
        assert (alone(inputs) == want).all()
        with torch.no_grad():
            assert (module(torch.from_numpy(inputs)).numpy() == want).all()


def test_the_float32_runner_agrees_with_transformers(folder):
    from firstlight.runners import safetensors

    ids = torch.arange(30) % 50
    with torch.no_grad():
        want = transformers.LlamaForCausalLM.from_pretrained(folder)(ids[None]).logits[0].numpy()
    model = safetensors.load(folder)
    got = model.logits(model.hidden(ids.numpy(), cache=model.new_cache(capacity_tok=30)))
    assert abs(got - want).max() < 1e-4


def test_the_example_prints_what_is_shipped():
    import subprocess
    import sys
    from pathlib import Path

    root = Path(__file__).parents[3]
    example = root / "examples" / "hugging_face_by_light.py"
    done = subprocess.run(
        [sys.executable, str(example)], capture_output=True, text=True, check=True, cwd=root
    )
    shipped = example.with_suffix(".out").read_text().splitlines()
    printed = done.stdout.splitlines()
    # Random weights come from PyTorch's generator, which another release may change.
    assert len(printed) == len(shipped)
    assert printed[0] == shipped[0]
    assert printed[-1] == shipped[-1] == "put back: the same bits"
    for row, want in zip(printed[1:-1], shipped[1:-1], strict=True):
        assert row[:41] == want[:41]
        assert abs(float(row[41:50]) - float(want[41:50])) < 2.0
