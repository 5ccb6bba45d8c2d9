"""torchao's quantize_ with an optical configuration; needs firstlight[torch] and torchao."""

import pytest

from firstlight.errors import ModelError
from firstlight.runners.recipe import Recipe

torch = pytest.importorskip("torch", reason="needs firstlight[torch]")
pytest.importorskip("torchao", reason="needs torchao")
pytestmark = pytest.mark.filterwarnings("ignore")  # torchao's own, of the PyTorch beside it

from firstlight.runners import torch as optical  # noqa: E402  # after the library is known
from firstlight.runners.torchao import optical_config  # noqa: E402


def small():
    torch.manual_seed(3)
    return torch.nn.Sequential(
        torch.nn.Linear(48, 96), torch.nn.ReLU(), torch.nn.Linear(96, 48, bias=False)
    )


@pytest.fixture
def x():
    return torch.randn(21, 48, generator=torch.Generator().manual_seed(1))


def quantize(model, config, **options):
    from torchao.quantization import quantize_

    quantize_(model, config, **options)
    return model


def test_quantize_gives_the_bits_of_convert(x):
    recipe = Recipe(sigma_frac=0.01, rotation="hadamard")
    ours = optical.convert(small(), recipe=recipe, seed=4)
    theirs = small()
    quantize(theirs, optical_config(recipe=recipe, model=theirs, seed=4))
    with torch.no_grad():
        assert torch.equal(theirs(x), ours(x))


def test_layers_without_a_model_are_counted_and_restored(x):
    model = small()
    exact = model(x)
    quantize(model, optical_config())
    assert [layer.name for layer in optical.optical_layers(model)] == ["linear0", "linear1"]
    assert 0 < (model(x) - exact).norm() < 0.05 * exact.norm()
    assert torch.equal(optical.restore(model)(x), exact)


def test_the_filter_and_the_recipe_choose():
    model = quantize(small(), optical_config(), filter_fn=lambda _, name: name == "2")
    assert [type(layer).__name__ for layer in model] == ["Linear", "ReLU", "OpticalLinear"]
    model = small()
    quantize(model, optical_config(recipe=Recipe(keep_digital=("2",)), model=model))
    assert [layer.name for layer in optical.optical_layers(model)] == ["0"]


def test_names_that_cannot_be_known_are_refused():
    with pytest.raises(ModelError, match="pass model="):
        optical_config(recipe=Recipe(keep_digital=("2",)))
    with pytest.raises(ModelError, match="not in the model"):
        quantize(small(), optical_config(model=small()))
