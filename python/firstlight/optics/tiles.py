"""Cutting a model's linear layers into the tiles of a mask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from firstlight.errors import ModelError
from firstlight.models.operator import LOAD_SPREAD, operators

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from firstlight.models import ModelShape
    from firstlight.optics.spec import EngineSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearLayer:
    """A matrix product that occurs `count` times in a model.

    Attributes:
        name: What it is, for tables and errors.
        k: Inputs.
        n: Outputs.
        count: Occurrences (usually the number of layers).
        experts: Resident copies to choose from (1 for a dense layer).
        top_k: Copies each token uses.

    Raises:
        ModelError: When a size is not a positive whole number or `top_k` exceeds `experts`.
    """

    name: str
    k: int
    n: int
    count: int = 1
    experts: int = 1
    top_k: int = 1

    def __post_init__(self) -> None:
        for what in ("k", "n", "count", "experts", "top_k"):
            value = getattr(self, what)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ModelError(
                    f"layer {self.name!r}: {what}={value!r} must be a whole number ≥ 1"
                )
        if self.top_k > self.experts:
            raise ModelError(
                f"layer {self.name!r}: top_k={self.top_k} exceeds experts={self.experts}"
            )

    def k_tiles(self, spec: EngineSpec) -> int:
        """Tiles along the inputs."""
        return -(-self.k // spec.inputs)

    def n_tiles(self, spec: EngineSpec) -> int:
        """Tiles along the outputs."""
        return -(-self.n // spec.outputs)

    def tiles(self, spec: EngineSpec) -> int:
        """Tiles of one copy of one occurrence."""
        return self.k_tiles(spec) * self.n_tiles(spec)

    def visit_share(self) -> NDArray[np.float64]:
        """Return the chance that a token visits each copy, (experts,); they sum to `top_k`.

        Routers are uneven: a power law on uniform quantiles, as the silicon side assumes.
        """
        import numpy as np

        place = (np.arange(self.experts) + 0.5) / self.experts
        weight = place**LOAD_SPREAD
        share: NDArray[np.float64] = np.minimum(1.0, self.top_k * weight / weight.sum())
        return share

    def experts_hit(self, tokens: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return how many copies a batch is expected to touch, shape of `tokens`."""
        import numpy as np

        hit = np.zeros_like(tokens)
        for share in self.visit_share():
            hit += hit_chance(share, tokens=tokens)
        return hit


def hit_chance(share: float, *, tokens: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the chance that a batch touches a copy that each token visits with chance `share`."""
    import numpy as np

    if share >= 1.0:
        return np.where(tokens > 0, 1.0, 0.0)
    # 1 − (1 − share)^tokens, exact for small shares and faster than a power.
    chance: NDArray[np.float64] = -np.expm1(tokens * np.log1p(-share))
    return chance


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearStack:
    """What an optical server has to compute for one model.

    Attributes:
        layers: Every linear layer except the output head.
        hidden_size: Width of the residual stream; a chunk's activations are this wide.
        head: The output head, computed digitally for the last token of a prompt, or None.
        attention_mac_per_pair: Multiply-accumulates of one query-key pair over all layers that
            attend to the whole context.
        attention_mac_per_tok: Multiply-accumulates of one token in sliding layers, whole windows.
        kv_elements_per_tok: Numbers stored for one token over all layers.
    """

    layers: tuple[LinearLayer, ...]
    hidden_size: int
    head: LinearLayer | None = None
    attention_mac_per_pair: int = 0
    attention_mac_per_tok: int = 0
    kv_elements_per_tok: int = 0

    def __post_init__(self) -> None:
        if not self.layers:
            raise ModelError("a model without linear layers has nothing to compute optically")
        if self.hidden_size < 1:
            raise ModelError(f"hidden_size={self.hidden_size!r} must be ≥ 1")

    @property
    def resident_weights(self) -> int:
        """Weights of all layers, every expert counted, head excluded."""
        return sum(layer.k * layer.n * layer.count * layer.experts for layer in self.layers)

    @property
    def active_weights(self) -> int:
        """Weights one token meets, head excluded."""
        return sum(layer.k * layer.n * layer.count * layer.top_k for layer in self.layers)


def tile_count(stack: LinearStack | Sequence[LinearLayer], *, spec: EngineSpec) -> int:
    """Return the tiles of a model, every resident expert counted, output head excluded.

    Examples:
        Llama-3.1-8B is 6,656 tiles of 1,024² or 1,664 of 2,048².
    """
    layers = stack.layers if isinstance(stack, LinearStack) else stack
    return sum(layer.tiles(spec) * layer.count * layer.experts for layer in layers)


def linear_stack(shape: ModelShape) -> LinearStack:
    """Extract the linear layers of a model, with q, k, v fused and gate, up fused.

    Fusing matters: it is one mask sweep over the same inputs, and it is how tiles are counted. The
    routers of a mixture of experts are left to the digital part: they are tiny and decide exactly.

    Args:
        shape: The model.
    """
    linear, head = [], None
    for operator in operators(shape):
        if operator.kind == "linear" and operator.name != "router":
            layer = LinearLayer(
                name=operator.name,
                k=operator.rows,
                n=operator.cols,
                count=operator.count,
                experts=operator.experts,
                top_k=operator.experts_active,
            )
            linear.append(layer)
        elif operator.kind == "head":
            head = LinearLayer(name=operator.name, k=operator.rows, n=operator.cols)
    mac = shape.attention_flop_per_pair // 2
    return LinearStack(
        layers=tuple(linear),
        hidden_size=shape.hidden_size,
        head=head,
        attention_mac_per_pair=shape.full_layers * mac,
        attention_mac_per_tok=shape.sliding_layers * shape.sliding_window_tok * mac,
        kv_elements_per_tok=shape.kv_elements_per_tok,
    )
