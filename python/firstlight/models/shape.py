"""The shape of a decoder-only transformer, and the counts that follow from it alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from firstlight.errors import ModelError, nearest

_LIMIT = 1 << 22
"""No layer, head or vocabulary count of a real model is near four million."""

_POSITIVE = (
    "num_layers",
    "hidden_size",
    "num_heads",
    "num_kv_heads",
    "head_dim",
    "ffn_size",
    "vocab_size",
    "max_context_tok",
)
_CONTEXT_LIMIT = 1 << 30
_NESTED = {
    "moe": {
        "experts": "moe_experts",
        "topk": "moe_topk",
        "expert_ffn": "moe_expert_ffn_size",
        "shared": "moe_shared_experts",
        "first_dense_layers": "moe_first_dense_layers",
    },
    "mla": {
        "q_lora_rank": "mla_q_lora_rank",
        "kv_lora_rank": "mla_kv_lora_rank",
        "qk_nope": "mla_qk_nope_dim",
        "qk_rope": "mla_qk_rope_dim",
        "v": "mla_v_dim",
    },
}
_ALIASES = {"max_context": "max_context_tok"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """What a model's matrices look like. Norm vectors and biases are not counted anywhere.

    Attributes:
        id: Name for messages and reports.
        num_layers: Transformer layers.
        hidden_size: Width of the residual stream.
        num_heads: Query heads.
        num_kv_heads: Key/value heads (equal to `num_heads` for multi-head attention).
        head_dim: Width of one query head.
        ffn_size: Inner width of a dense (gated) feed-forward layer.
        vocab_size: Rows of the embedding.
        max_context_tok: Longest context [tok].
        tie_embeddings: Whether the output head shares the input embedding.
        moe_experts: Routed experts a layer; 0 for a dense model.
        moe_topk: Experts a token visits.
        moe_expert_ffn_size: Inner width of one expert.
        moe_shared_experts: Experts that every token visits.
        moe_first_dense_layers: Leading layers that keep a dense feed-forward.
        mla_q_lora_rank: Rank of the query compression (multi-head latent attention); 0 for none.
        mla_kv_lora_rank: Rank of the cached latent; 0 when attention is not MLA.
        mla_qk_nope_dim: Query/key width without position, a head.
        mla_qk_rope_dim: Query/key width with position, a head.
        mla_v_dim: Value width, a head.
        sliding_window_tok: Window of the sliding layers [tok]; 0 for none.
        sliding_layers_per_full_layer: Sliding layers before each full-attention layer; 0 when no
            layer slides.
    """

    id: str
    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    ffn_size: int
    vocab_size: int
    max_context_tok: int
    tie_embeddings: bool = False
    moe_experts: int = 0
    moe_topk: int = 0
    moe_expert_ffn_size: int = 0
    moe_shared_experts: int = 0
    moe_first_dense_layers: int = 0
    mla_q_lora_rank: int = 0
    mla_kv_lora_rank: int = 0
    mla_qk_nope_dim: int = 0
    mla_qk_rope_dim: int = 0
    mla_v_dim: int = 0
    sliding_window_tok: int = 0
    sliding_layers_per_full_layer: int = 0

    def __post_init__(self) -> None:
        self._check_numbers()
        if self.num_heads % self.num_kv_heads:
            raise ModelError(
                f"model {self.id!r}: num_heads = {self.num_heads} is not a multiple of "
                f"num_kv_heads = {self.num_kv_heads}"
            )
        if self.is_moe and not (
            0 < self.moe_topk <= self.moe_experts and self.moe_expert_ffn_size > 0
        ):
            raise ModelError(
                f"model {self.id!r}: a mixture of {self.moe_experts} experts needs "
                f"1 <= moe_topk <= moe_experts and moe_expert_ffn_size > 0; given moe_topk = "
                f"{self.moe_topk}, moe_expert_ffn_size = {self.moe_expert_ffn_size}"
            )
        if self.moe_first_dense_layers > self.num_layers:
            raise ModelError(
                f"model {self.id!r}: moe_first_dense_layers = {self.moe_first_dense_layers} exceeds "
                f"num_layers = {self.num_layers}"
            )
        if self.is_mla and 0 in {self.mla_qk_nope_dim, self.mla_qk_rope_dim, self.mla_v_dim}:
            raise ModelError(
                f"model {self.id!r}: latent attention needs mla_qk_nope_dim, mla_qk_rope_dim and mla_v_dim > 0"
            )
        if bool(self.sliding_window_tok) != bool(self.sliding_layers_per_full_layer):
            raise ModelError(
                f"model {self.id!r}: sliding_window_tok and sliding_layers_per_full_layer go together; given "
                f"{self.sliding_window_tok} and {self.sliding_layers_per_full_layer}"
            )

    def _check_numbers(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "id":
                continue
            if field.name == "tie_embeddings":
                if not isinstance(value, bool):
                    raise ModelError(
                        f"model {self.id!r}: tie_embeddings must be true or false, not {value!r}"
                    )
                continue
            if isinstance(value, bool) or not isinstance(value, int):
                raise ModelError(
                    f"model {self.id!r}: {field.name} must be an integer, not {value!r}"
                )
            least = 1 if field.name in _POSITIVE else 0
            most = _CONTEXT_LIMIT if field.name == "max_context_tok" else _LIMIT
            if not least <= value <= most:
                raise ModelError(
                    f"model {self.id!r}: {field.name} = {value} is outside {least}..{most}"
                )

    @property
    def is_moe(self) -> bool:
        """Whether some feed-forward layers are mixtures of experts."""
        return self.moe_experts > 0

    @property
    def is_mla(self) -> bool:
        """Whether attention caches one compressed latent instead of keys and values."""
        return self.mla_kv_lora_rank > 0

    @property
    def moe_layers(self) -> int:
        """Layers whose feed-forward is a mixture of experts."""
        return self.num_layers - self.moe_first_dense_layers if self.is_moe else 0

    @property
    def dense_layers(self) -> int:
        """Layers with a dense feed-forward."""
        return self.num_layers - self.moe_layers

    @property
    def full_layers(self) -> int:
        """Layers that attend to the whole context."""
        return self.num_layers // (self.sliding_layers_per_full_layer + 1)

    @property
    def sliding_layers(self) -> int:
        """Layers that attend to the last `sliding_window_tok` tokens only."""
        return self.num_layers - self.full_layers

    @property
    def attention_params(self) -> int:
        """Weights of one layer's attention projections."""
        if not self.is_mla:
            return self.hidden_size * self.head_dim * 2 * (self.num_heads + self.num_kv_heads)
        query_width = self.num_heads * (self.mla_qk_nope_dim + self.mla_qk_rope_dim)
        rank = self.mla_q_lora_rank
        query = rank * (self.hidden_size + query_width) if rank else self.hidden_size * query_width
        latent = self.hidden_size * (self.mla_kv_lora_rank + self.mla_qk_rope_dim)
        expand = self.mla_kv_lora_rank * self.num_heads * (self.mla_qk_nope_dim + self.mla_v_dim)
        return query + latent + expand + self.num_heads * self.mla_v_dim * self.hidden_size

    @property
    def expert_params(self) -> int:
        """Weights of one expert (gate, up and down)."""
        return 3 * self.hidden_size * self.moe_expert_ffn_size

    @property
    def embedding_params(self) -> int:
        """Weights of the input embedding; the output head has as many."""
        return self.vocab_size * self.hidden_size

    def _linear(self, *, experts: int) -> int:
        dense = self.dense_layers * 3 * self.hidden_size * self.ffn_size
        router = self.hidden_size * self.moe_experts
        mixture = self.moe_layers * (
            router + (experts + self.moe_shared_experts) * self.expert_params
        )
        return self.num_layers * self.attention_params + dense + mixture

    @property
    def linear_params(self) -> int:
        """Weights of every linear layer, all experts, output head excluded."""
        return self._linear(experts=self.moe_experts)

    @property
    def linear_params_active(self) -> int:
        """Linear weights that one token visits, output head excluded."""
        return self._linear(experts=self.moe_topk)

    @property
    def _embeddings(self) -> int:
        return self.embedding_params * (1 if self.tie_embeddings else 2)

    @property
    def params_total(self) -> int:
        """Resident parameters: linear layers, embedding and (unless tied) output head."""
        return self.linear_params + self._embeddings

    @property
    def params_active(self) -> int:
        """Parameters that one token visits, counted with both embeddings."""
        return self.linear_params_active + self._embeddings

    def weight_bytes(self, bits: float, *, embedding_bits: float = 16) -> int:
        """Return the bytes that the resident weights take.

        Args:
            bits: Bits a linear weight, block scales included (4.5 for NVFP4).
            embedding_bits: Bits a weight of the embedding and the output head, which quantised
                checkpoints keep in 16 bits.

        Raises:
            ModelError: A width is not positive.
        """
        if not (bits > 0 and embedding_bits > 0):
            raise ModelError(
                f"model {self.id!r}: weights need a positive number of bits, not {bits}"
            )
        return int((self.linear_params * bits + self._embeddings * embedding_bits + 7) // 8)

    @property
    def kv_elements_per_tok(self) -> int:
        """Cached elements a token, every layer counted as full attention (an upper bound)."""
        if self.is_mla:
            return self.num_layers * (self.mla_kv_lora_rank + self.mla_qk_rope_dim)
        return self.num_layers * 2 * self.num_kv_heads * self.head_dim

    def kv_bytes_per_tok(self, kv_bits: float) -> int:
        """Return the KV cache a token takes [bytes], over all layers and heads.

        Raises:
            ModelError: `kv_bits` is not positive.
        """
        if not kv_bits > 0:
            raise ModelError(f"model {self.id!r}: the KV cache needs positive bits, not {kv_bits}")
        return int((self.kv_elements_per_tok * kv_bits + 7) // 8)

    @property
    def attention_flop_per_pair(self) -> int:
        """FLOP of one query-key pair in one layer: score and weighted sum, all heads (prefill)."""
        if self.is_mla:
            return (
                2 * self.num_heads * (self.mla_qk_nope_dim + self.mla_qk_rope_dim + self.mla_v_dim)
            )
        return 4 * self.num_heads * self.head_dim

    def attention_flop(self, q: int, kv: int) -> int:
        """Return the causal attention FLOP of `q` new tokens behind `kv` resident ones.

        A token attends to itself and all before it; sliding layers stop at their window.

        Args:
            q: New tokens.
            kv: Tokens already in the cache.

        Raises:
            ModelError: A length is negative.
        """
        if q < 0 or kv < 0:
            raise ModelError(f"model {self.id!r}: lengths must not be negative, given {q}, {kv}")
        full = q * kv + q * (q + 1) // 2
        pairs = self.full_layers * full + self.sliding_layers * self._window_pairs(q, kv)
        return pairs * self.attention_flop_per_pair

    def _window_pairs(self, q: int, kv: int) -> int:
        growing = max(0, min(q, self.sliding_window_tok - kv))
        return growing * kv + growing * (growing + 1) // 2 + (q - growing) * self.sliding_window_tok


def from_table(table: Mapping[str, object], *, id: str = "") -> ModelShape:  # noqa: A002
    """Build a shape from a flat or nested mapping of the fields above.

    ``moe`` and ``mla`` may be sub-tables (``moe = {experts = 8, topk = 2, expert_ffn = 14336}``) or
    flat keys (``moe_experts = 8``). Keys that describe nothing of the
    shape (``rope_theta``, ``source``, …) must have been removed.

    Args:
        table: Field name to value.
        id: Name of the model when the table has none.

    Raises:
        ModelError: A key is unknown or missing, or a value is impossible.

    Examples:
        >>> shape = from_table(
        ...     dict(
        ...         num_layers=2,
        ...         hidden_size=64,
        ...         num_heads=4,
        ...         num_kv_heads=2,
        ...         head_dim=16,
        ...         ffn_size=128,
        ...         vocab_size=100,
        ...         max_context_tok=512,
        ...     ),
        ...     id="toy",
        ... )
        >>> shape.kv_bytes_per_tok(16)
        256
    """
    flat = _flatten(table)
    name = flat.pop("id", None) or flat.pop("name", None) or id or "inline"
    flat.pop("name", None)
    allowed = {field.name for field in fields(ModelShape)}
    for key in flat:
        if key not in allowed:
            raise ModelError(
                f"model {name!r}: unknown field {key!r}{nearest(key, allowed)}; allowed: "
                f"{', '.join(sorted(allowed))}"
            )
    missing = [key for key in _POSITIVE if key not in flat]
    if missing:
        raise ModelError(f"model {name!r}: missing {', '.join(missing)}")
    return ModelShape(id=str(name), **flat)  # type: ignore[arg-type]


def _flatten(table: Mapping[str, object]) -> dict[str, object]:
    flat: dict[str, object] = {}
    for key, value in table.items():
        names = _NESTED.get(key)
        if names is not None and isinstance(value, Mapping):
            for inner, inner_value in value.items():
                if inner not in names:
                    raise ModelError(
                        f"unknown field {key}.{inner}{nearest(inner, names)}; allowed: "
                        f"{', '.join(names)}"
                    )
                flat[names[inner]] = inner_value
        elif value is not None:
            flat[_ALIASES.get(key, key)] = value
    return flat


def load(model: str | Mapping[str, object]) -> ModelShape:
    """Return the shape of a catalog model, or of an inline table.

    Args:
        model: Catalog id (``"llama-3.1-70b"``) or a table as `from_table` takes.

    Raises:
        CatalogError: The id is unknown.
        ModelError: The record or table lacks a field, or holds an impossible value.
    """
    if not isinstance(model, str):
        return from_table(model)
    from firstlight import catalog

    record = catalog.get(model, kind="model")
    allowed = {field.name for field in fields(ModelShape)} - {"id"}
    facts = {key: fact.value for key, fact in record.facts.items() if key in allowed}
    return from_table(facts, id=model)
