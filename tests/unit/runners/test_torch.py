"""PyTorch models through the light; needs firstlight[torch]."""

import numpy as np
import pytest

from firstlight.errors import ModelError
from firstlight.runners.preparation import prepare_layer
from firstlight.runners.recipe import Recipe

torch = pytest.importorskip("torch", reason="needs firstlight[torch]")

from firstlight.runners import torch as optical  # noqa: E402  # after the library is known


class Small(torch.nn.Module):
    """Two hidden layers and a head."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.first = torch.nn.Linear(48, 96)
        self.second = torch.nn.Linear(96, 48, bias=False)
        self.lm_head = torch.nn.Linear(48, 10, bias=False)

    def forward(self, x):
        return self.lm_head(self.second(torch.relu(self.first(x))))


@pytest.fixture
def model():
    return Small()


@pytest.fixture
def x():
    return torch.randn(3, 7, 48, generator=torch.Generator().manual_seed(1))


def test_every_linear_but_the_head_is_swapped_and_restored_exactly(model, x):
    exact = model(x)
    assert optical.convert(model) is model
    assert [layer.name for layer in optical.optical_layers(model)] == ["first", "second"]
    optical.calibrate(model, [x])
    got = model(x)
    assert not torch.equal(got, exact)
    assert (got - exact).norm() < 0.05 * exact.norm()
    optical.restore(model)
    assert torch.equal(model(x), exact)


def test_the_filter_and_the_recipe_choose(model):
    optical.convert(model, filter_fn=lambda _, name: name == "lm_head")
    assert [layer.name for layer in optical.optical_layers(model)] == ["lm_head"]
    optical.restore(model)
    optical.opticalize_(model, recipe=Recipe(keep_digital=("second",)))
    assert [layer.name for layer in optical.optical_layers(model)] == ["first"]
    with pytest.raises(ModelError, match="passed the filter"):
        optical.convert(Small(), filter_fn=lambda *_: False)
    with pytest.raises(ModelError, match="convert it first"):
        optical.calibrate(Small(), [])


def test_layers_are_counted_as_they_were_registered_and_shared_parents_once():
    block = torch.nn.Sequential(torch.nn.Linear(4, 4))
    model = torch.nn.Module()
    model.blocks = torch.nn.ModuleList([block, torch.nn.Sequential(torch.nn.Linear(4, 4)), block])
    model.lm_head = torch.nn.Linear(4, 2)
    names = [name for _, _, name, _ in optical.linear_places(model)]
    assert names == ["blocks.0.0", "blocks.1.0", "lm_head"]
    optical.convert(model)
    assert model.blocks[0][0] is model.blocks[2][0]
    assert type(optical.restore(model).blocks[2][0]) is torch.nn.Linear


def test_a_layer_gives_the_bits_of_the_numpy_path(model, x):
    recipe = Recipe(sigma_frac=0.01, rotation="hadamard")
    optical.convert(model, recipe=recipe, seed=4)
    optical.calibrate(model, [x])
    flat = x.reshape(-1, 48).numpy()
    weight = model.first.exact.weight.detach().numpy()
    alone = prepare_layer(
        "first", weight, calibration=flat, recipe=recipe, seed=4, number=0, engine=None
    )
    want = alone(flat)
    bias = model.first.exact.bias.detach().numpy()
    with torch.no_grad():
        got = model.first(x).numpy().reshape(-1, 96)
        assert np.array_equal(got, want + bias)
        # The next tokens have noise of their own; a restart repeats the first.
        assert not np.array_equal(model.first(x).numpy().reshape(-1, 96), want + bias)
        optical.restart(model)
        assert np.array_equal(model.first(x).numpy().reshape(-1, 96), want + bias)


def test_an_uncalibrated_layer_calibrates_itself_on_its_first_batch(model, x):
    exact = model(x)
    optical.convert(model)
    assert (model(x) - exact).norm() < 0.05 * exact.norm()


def test_gradients_are_those_of_the_exact_product(model, x):
    x.requires_grad_()
    model(x).sum().backward()
    want = x.grad.clone(), model.second.weight.grad.clone()
    x.grad = None
    model.zero_grad()
    optical.convert(model, filter_fn=lambda _, name: name == "second")
    optical.calibrate(model, [x.detach()])
    model(x).sum().backward()
    assert torch.allclose(x.grad, want[0], atol=1e-5)
    assert torch.allclose(model.second.exact.weight.grad, want[1], atol=1e-4)


def test_frozen_weights_get_no_gradient_and_inputs_still_do(model, x):
    x.requires_grad_()
    model.requires_grad_(requires_grad=False)
    optical.convert(model)
    model(x).sum().backward()
    assert x.grad is not None
    assert model.second.exact.weight.grad is None


def test_a_transposed_input_gives_the_bits_of_its_copy(model, x):
    optical.convert(model)
    optical.calibrate(model, [x])
    turned = x.transpose(0, 1)
    with torch.no_grad():
        got = model.first(turned)
        optical.restart(model)
        assert torch.equal(got, model.first(turned.contiguous()))


def test_the_operator_and_the_module_give_the_same_bits_with_and_without_a_graph(model, x):
    optical.convert(model, recipe=Recipe(sigma_frac=0.01))
    optical.calibrate(model, [x])
    layer, seen = model.second, []
    inputs = torch.randn(5, 96, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        seen.append(layer(inputs))
        optical.restart(model)
        seen.append(torch.ops.firstlight.linear(inputs, layer.exact.weight, layer.handle))
    optical.restart(model)
    with_graph = layer(inputs)
    assert with_graph.requires_grad
    seen.append(with_graph.detach())
    assert all(torch.equal(part, seen[0]) for part in seen)


def test_bfloat16_goes_in_and_comes_out(model, x):
    exact = model(x)
    model.to(torch.bfloat16)
    optical.convert(model)
    got = model(x.to(torch.bfloat16))
    assert got.dtype == torch.bfloat16
    assert (got.float() - exact).norm() < 0.1 * exact.norm()


def test_compile_and_export_keep_a_layer_one_node(model, x):
    optical.convert(model)
    optical.calibrate(model, [x])
    want = model(x)
    optical.restart(model)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    assert torch.allclose(compiled(x), want, atol=1e-5)
    graph = torch.export.export(model, (x,)).graph
    names = [str(node.target) for node in graph.nodes if node.op == "call_function"]
    assert sum("firstlight.linear" in name for name in names) == 2


def test_the_operator_passes_torchs_own_checks(model, x):
    optical.convert(model)
    optical.calibrate(model, [x])
    weight = model.first.exact.weight.detach()
    torch.library.opcheck(
        torch.ops.firstlight.linear, (x, weight, model.first.handle),
        test_utils=("test_schema", "test_faketensor"),
    )  # fmt: skip
