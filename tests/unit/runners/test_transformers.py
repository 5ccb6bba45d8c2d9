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


def test_the_float32_runner_agrees_with_transformers(folder):
    from firstlight.runners import safetensors

    ids = torch.arange(30) % 50
    with torch.no_grad():
        want = transformers.LlamaForCausalLM.from_pretrained(folder)(ids[None]).logits[0].numpy()
    model = safetensors.load(folder)
    got = model.logits(model.hidden(ids.numpy(), cache=model.new_cache(capacity_tok=30)))
    assert abs(got - want).max() < 1e-4
