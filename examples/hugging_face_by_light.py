"""A Hugging Face model whose linear layers run through the light: swapped, judged, put back.

    pip install 'firstlight[transformers]'
    python examples/hugging_face_by_light.py

The checkpoint is a small random Llama, so that the example needs no download: its numbers say that
the path works, not what a trained model loses. For that see `firstlight accuracy`.
"""

from __future__ import annotations

import tempfile

import torch
import transformers

import firstlight as fl
from firstlight.runners.transformers import OpticalConfig

transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
torch.manual_seed(0)
shape = transformers.LlamaConfig(
    hidden_size=192, intermediate_size=512, num_hidden_layers=4, num_attention_heads=6,
    num_key_value_heads=2, vocab_size=1000, max_position_embeddings=256,
)  # fmt: skip
prompt = torch.randint(0, 1000, (1, 128), generator=torch.Generator().manual_seed(1))

with tempfile.TemporaryDirectory() as folder:
    transformers.LlamaForCausalLM(shape).save_pretrained(folder)
    exact = transformers.LlamaForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        want = exact(prompt).logits

    print(f"{'machine':34} {'layers':>6} {'SNR [dB]':>8} {'top-1':>6} {'J/token':>9}")
    engine = fl.runners.engine.open_engine("iris-nova-optimistic")
    rotated = fl.runners.recipe.Recipe(rotation="hadamard")
    for name, config in (
        ("converters, 8 bits", OpticalConfig()),
        ("iris-nova-optimistic", OpticalConfig(engine=engine)),
        ("iris-nova-optimistic, rotated", OpticalConfig(engine=engine, recipe=rotated)),
    ):
        light = transformers.LlamaForCausalLM.from_pretrained(folder, quantization_config=config)
        with torch.no_grad():
            got = light(prompt).logits
        layers = fl.runners.torch.optical_layers(light)
        joules = sum(sum(layer.prepared.tally.energy_j.values()) for layer in layers)
        snr_db = 20 * torch.log10(want.norm() / (got - want).norm())
        same = (got.argmax(-1) == want.argmax(-1)).float().mean()
        cost = f"{joules / prompt.numel():9.2e}" if joules else f"{'?':>9}"
        print(f"{name:34} {len(layers):6} {snr_db:8.1f} {same:6.1%} {cost}")

    fl.runners.torch.restore(light)
    with torch.no_grad():
        print(
            "put back:", "the same bits" if torch.equal(light(prompt).logits, want) else "changed"
        )
