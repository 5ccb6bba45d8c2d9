"""PyTorch models whose linear layers run through the light, swapped in place.

``convert`` replaces linear layers, ``calibrate`` chooses their ranges on batches of real inputs,
``restore`` puts the old layers back. In a compiled or exported graph a layer is one opaque node.
Gradients pass straight through: backward is that of the exact product.
"""

from __future__ import annotations

from functools import cache
from itertools import count
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np

from firstlight.errors import ModelError
from firstlight.runners.preparation import prepare_layer
from firstlight.runners.recipe import Recipe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from torch import Tensor, nn

    from firstlight.runners.engine import OpticalEngine
    from firstlight.runners.optical import PreparedLinear
    from firstlight.runners.weights import FloatArray

_CALIBRATION_TOK = 1024
_LAYERS: WeakValueDictionary[int, OpticalLayer] = WeakValueDictionary()
"""Handle -> layer: a compiled graph can carry a number, not an object."""

_HANDLES = count(1)
_LIBRARY: list[Any] = []
"""Keeps the operator registered: it lives as long as its library object."""


class OpticalLayer:
    """What stands behind one replaced layer: its weights, its range, its place in the noise.

    Attributes:
        name: Name of the module in the model.
        prepared: The optical layer, None until it has seen inputs.
        seen_tok: Tokens computed since the last :meth:`restart`: they name the noise.
    """

    def __init__(
        self, name: str, weight: FloatArray, *, recipe: Recipe, seed: int, number: int,
        engine: OpticalEngine | None,
    ) -> None:  # fmt: skip
        self.name, self.seen_tok = name, 0
        self.prepared: PreparedLinear | None = None
        self._weight, self._recipe = weight, recipe
        self._seed, self._number, self._engine = seed, number, engine
        self._inputs: list[FloatArray] = []

    def observe(self, x: FloatArray) -> None:
        """Keep inputs, (tokens, inputs), to choose the range on."""
        kept = sum(map(len, self._inputs))
        if kept < _CALIBRATION_TOK:
            self._inputs.append(x[: _CALIBRATION_TOK - kept].copy())

    def freeze(self) -> None:
        """Choose the range on the inputs seen so far and write the masks.

        Raises:
            ModelError: No input was seen.
        """
        if not self._inputs:
            raise ModelError(f"layer {self.name} saw no input in calibration")
        self.prepared = prepare_layer(
            self.name,
            self._weight,
            calibration=np.concatenate(self._inputs),
            recipe=self._recipe,
            seed=self._seed,
            number=self._number,
            engine=self._engine,
        )
        self._inputs = []

    def __call__(self, x: FloatArray) -> FloatArray:
        """Return the outputs; the first batch calibrates a layer that was not calibrated."""
        if self.prepared is None:
            self.observe(x)
            self.freeze()
        assert self.prepared is not None, "Invariant: freeze prepares or raises"  # noqa: S101
        y = self.prepared(x, first_tok=self.seen_tok)
        self.seen_tok += len(x)
        return y

    def restart(self) -> None:
        """Begin the noise anew: the next token is token 0."""
        self.seen_tok = 0


def convert(
    model: nn.Module,
    engine: OpticalEngine | None = None,
    *,
    recipe: Recipe | None = None,
    filter_fn: Callable[[nn.Module, str], bool] | None = None,
    seed: int = 0,
) -> nn.Module:
    """Replace linear layers of ``model`` by optical ones, in place.

    Args:
        model: Any model.
        engine: The optical engine; None is converters and noise alone.
        recipe: How layers are prepared.
        filter_fn: Tells of (module, name) whether it is replaced; without it every ``nn.Linear``
            whose name does not end in ``lm_head``.
        seed: Names the noise.

    Returns:
        The same model.

    Raises:
        ModelError: PyTorch is missing, or no layer was replaced.
    """
    _torch()
    choose = filter_fn or (lambda _module, name: not name.endswith("lm_head"))
    chosen = recipe or Recipe()
    places, replaced = linear_places(model), 0
    for number, (parent, child, name, linear) in enumerate(places):
        own = chosen.for_layer(name)
        if own is not None and choose(linear, name):
            optical = optical_module(
                linear, name=name, recipe=own, seed=seed, number=number, engine=engine
            )
            setattr(parent, child, optical)
            replaced += 1
    if not replaced:
        raise ModelError(f"none of the {len(places)} linear layers passed the filter")
    return model


opticalize_ = convert
"""The same under the naming of torchao, where a trailing underscore means in place."""


def linear_places(model: nn.Module) -> list[tuple[nn.Module, str, str, nn.Module]]:
    """Return (parent, attribute, full name, layer) of every ``nn.Linear`` of ``model``, in order.

    The order is that in which modules were registered, so that a Hugging Face decoder counts its
    blocks from 0, as the runner does, and its head last.
    """
    linear, modules = _torch().nn.Linear, dict(model.named_modules(remove_duplicate=False))
    places: dict[tuple[int, str], tuple[nn.Module, str, str, nn.Module]] = {}
    for name, module in modules.items():
        if type(module) is linear and name:
            path, _, child = name.rpartition(".")
            # A parent that the model has twice holds its layer once.
            places.setdefault((id(modules[path]), child), (modules[path], child, name, module))
    return list(places.values())


def optical_module(
    linear: nn.Module,
    *,
    name: str,
    recipe: Recipe,
    seed: int,
    number: int,
    engine: OpticalEngine | None,
) -> Any:  # noqa: ANN401  # a class that needs torch to exist
    """Return the optical module that takes the place of one linear layer.

    Args:
        linear: The layer; kept whole for backward and :func:`restore`.
        name: Its name in the model.
        recipe: How it is prepared.
        seed: Names the noise.
        number: Its place in the model.
        engine: The optical engine; None is converters and noise alone.
    """
    _register()
    return _module_class()(linear, name, recipe, seed, number, engine)


def calibrate(model: nn.Module, batches: Iterable[Any]) -> None:
    """Run ``batches`` exactly, then choose the range of every optical layer on what it saw.

    Args:
        model: A converted model.
        batches: Positional arguments of one call each: a tuple, or a single argument.

    Raises:
        ModelError: The model has no optical layer, or one saw no input.
    """
    torch = _torch()
    layers = optical_layers(model)
    if not layers:
        raise ModelError("the model has no optical layer: convert it first")
    modules = [module for module in model.modules() if isinstance(module, _module_class())]
    for module in modules:
        module.is_observing = True
    try:
        with torch.no_grad():
            for batch in batches:
                model(*batch) if isinstance(batch, tuple) else model(batch)
    finally:
        for module in modules:
            module.is_observing = False
    for layer in layers:
        layer.freeze()


def restore(model: nn.Module) -> nn.Module:
    """Put the exact layers back, in place; their weights were never changed."""
    kind = _module_class()
    for parent in list(model.modules()):
        for child, module in list(parent.named_children()):
            if isinstance(module, kind):
                setattr(parent, child, module.exact)
    return model


restore_ = restore


def optical_layers(model: nn.Module) -> list[OpticalLayer]:
    """Return what stands behind every optical layer of ``model``."""
    kind = _module_class()
    return [module.layer for module in model.modules() if isinstance(module, kind)]


def restart(model: nn.Module) -> None:
    """Begin the noise of all layers anew, so that the next call repeats the first."""
    for layer in optical_layers(model):
        layer.restart()


def _run(handle: int, x: Tensor) -> Tensor:
    """Compute one layer on the CPU: float32 in place, other formats through one conversion."""
    torch = _torch()
    dtype, device = x.dtype, x.device
    is_plain = dtype is torch.float32 and device.type == "cpu"
    x = x.detach()
    if not is_plain:
        x = x.to(dtype=torch.float32, device="cpu")
    # NumPy's views cost a fraction of PyTorch's.
    inputs = x.numpy()
    flat = inputs.reshape(-1, inputs.shape[-1])
    if not flat.flags.c_contiguous:
        flat = np.ascontiguousarray(flat)
    outputs = _LAYERS[handle](flat)
    y: Tensor = torch.from_numpy(outputs.reshape(*inputs.shape[:-1], outputs.shape[-1]))
    return y if is_plain else y.to(dtype=dtype, device=device)


def _gradients(ctx: Any, grad: Any) -> tuple[Any, Any, None]:  # noqa: ANN401
    """Return the gradients of the exact product by input and weight, where they are asked for."""
    x, weight = ctx.saved_tensors
    by_input = grad @ weight if ctx.needs_input_grad[0] else None
    if not ctx.needs_input_grad[1]:
        return by_input, None, None
    return by_input, grad.reshape(-1, grad.shape[-1]).T @ x.reshape(-1, x.shape[-1]), None


def _register() -> None:
    """Register the operator once."""
    torch = _torch()
    if _LIBRARY:
        return

    # Defined by the plain library calls: `custom_op` adds a wrapper of its own to every call.
    library = torch.library.Library("firstlight", "FRAGMENT")
    library.define("linear(Tensor x, Tensor weight, int handle) -> Tensor")

    def linear(x: Tensor, weight: Tensor, handle: int) -> Tensor:  # noqa: ARG001  # for backward
        return _run(handle, x)

    def shape_of(x: Tensor, weight: Tensor, handle: int) -> Tensor:  # noqa: ARG001
        return x.new_empty(*x.shape[:-1], weight.shape[0])

    library.impl("linear", linear, "CompositeExplicitAutograd")
    torch.library.register_fake("firstlight::linear", shape_of, lib=library)

    def keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:  # noqa: ANN401, ARG001
        x, weight, _ = inputs
        ctx.save_for_backward(x, weight)

    torch.library.register_autograd(
        "firstlight::linear", _gradients, setup_context=keep, lib=library
    )
    _LIBRARY.append(library)


@cache
def _straight_through() -> Any:  # noqa: ANN401  # a class that needs torch to exist
    """Return the product as a function with a gradient, for graphs built call by call.

    The operator would do, but its autograd layer costs several times the dispatch itself.
    """
    torch = _torch()

    class StraightThrough(torch.autograd.Function):  # type: ignore[misc, name-defined, unused-ignore]
        """Forward by light, backward by the exact product."""

        @staticmethod
        def forward(ctx: Any, x: Tensor, weight: Tensor, handle: int) -> Tensor:  # noqa: ANN401
            ctx.save_for_backward(x, weight)
            return _run(handle, x)

        @staticmethod
        def backward(ctx: Any, grad: Any) -> tuple[Any, Any, None]:  # noqa: ANN401
            return _gradients(ctx, grad)

    return StraightThrough


@cache
def _module_class() -> Any:  # noqa: ANN401  # a class that needs torch to exist
    """Return the module that replaces ``nn.Linear``; made when PyTorch is first needed."""
    torch = _torch()
    is_compiling, is_grad_enabled = torch.compiler.is_compiling, torch.is_grad_enabled
    straight_through = _straight_through().apply

    class OpticalLinear(torch.nn.Module):  # type: ignore[misc, name-defined, unused-ignore]
        """A linear layer whose product is taken through the light; the bias is added digitally."""

        def __init__(
            self, exact: Any, name: str, recipe: Recipe, seed: int, number: int,  # noqa: ANN401
            engine: OpticalEngine | None,
        ) -> None:  # fmt: skip
            super().__init__()
            self.exact = exact
            self.is_observing = False
            weight = exact.weight.detach().to(device="cpu", dtype=torch.float32)
            layer = OpticalLayer(
                name, weight.contiguous().numpy(), recipe=recipe, seed=seed, number=number,
                engine=engine,
            )  # fmt: skip
            self.layer, self.handle = layer, next(_HANDLES)
            _LAYERS[self.handle] = layer

        def forward(self, x: Any) -> Any:  # noqa: ANN401
            if self.is_observing:
                flat = x.detach().reshape(-1, x.shape[-1]).to(device="cpu", dtype=torch.float32)
                self.layer.observe(flat.contiguous().numpy())
                return self.exact(x)
            exact = self.exact
            if is_compiling() or type(x) is not torch.Tensor:
                y = torch.ops.firstlight.linear.default(x, exact.weight, self.handle)
            elif is_grad_enabled() and (x.requires_grad or exact.weight.requires_grad):
                y = straight_through(x, exact.weight, self.handle)
            else:
                y = _run(self.handle, x)
            bias = exact.bias
            return y if bias is None else y + bias

        def extra_repr(self) -> str:
            return f"{self.exact.in_features} → {self.exact.out_features}"

    return OpticalLinear


@cache
def _torch() -> Any:  # noqa: ANN401  # a module
    """Import PyTorch."""
    try:
        import torch
    except ImportError as error:
        raise ModelError(
            "PyTorch models need PyTorch: pip install 'firstlight[torch]' (a CPU build suffices)"
        ) from error
    return torch
