"""What is simulated: pools, links, caches, and who takes a request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from firstlight.steps import StepTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """One tier of KV memory below HBM, of one replica.

    Attributes:
        units: Cache units (`Fleet.unit_tok` tokens each) it holds.
        read_tok_ps: Time to read one token back [ps]; reads follow each other, so they share it.
        latency_ps: Time before the first byte [ps].
        read_tok_pj: Energy to read one token back [pJ].
        write_tok_pj: Energy to write one token [pJ].
    """

    units: int
    read_tok_ps: int = 0
    latency_ps: int = 0
    read_tok_pj: int = 0
    write_tok_pj: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """A prefix cache by chained block hash, least recently freed evicted first.

    Attributes:
        dram: Tier that takes what HBM evicts; None: evicted units are gone.
        storage: Tier that takes what DRAM evicts, or HBM where there is no DRAM.
        write_back: ``all`` evicted units, or those ``reused`` at least once.
    """

    dram: Tier | None = None
    storage: Tier | None = None
    write_back: Literal["all", "reused"] = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """Which replica takes a request.

    Attributes:
        policy: ``least-load``: unfinished requests (prompt tokens to compute on prefill replicas);
            ``round-robin``; ``prefix-aware``: Dynamo's cost, `weight` × (prompt tokens to compute −
            credits) + context tokens in use; ``least-ttft``: least estimated time to the end of the
            prompt, cached prefix counted (Mooncake, FAST'25, Algorithm 1, without its copies
            between prefill instances).
        weight: Dynamo's overlap weight.
        hbm_credit: What a token cached in HBM is worth, 0 to 1.
        dram_credit: The same for DRAM.
        storage_credit: The same for storage.
    """

    policy: Literal["least-load", "round-robin", "prefix-aware", "least-ttft"] = "least-load"
    weight: float = 1.0
    hbm_credit: float = 1.0
    dram_credit: float = 0.75
    storage_credit: float = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Disaggregation:
    """Which prompts the decode pool computes itself.

    Attributes:
        policy: ``always``: the prefill pool computes every prompt; ``never``: none;
            ``conditional``: Dynamo's rule, decode replica chosen first. Local when fewer than
            `local_below_tok` prompt tokens are uncached there *and* they are less than
            `local_below_frac` of the prompt, or when the prefill replica has more than
            `queue_tok` tokens to compute (0: never for that reason); remote in any case when the
            decode replica has `busy_seqs` unfinished requests (0: no such line).
        local_below_tok: See `policy` [tok].
        local_below_frac: See `policy`.
        queue_tok: See `policy` [tok].
        busy_seqs: See `policy`.
    """

    policy: Literal["always", "never", "conditional"] = "always"
    local_below_tok: int = 2048
    local_below_frac: float = 0.7
    queue_tok: int = 0
    busy_seqs: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SGLang:
    """Settings of the ``sglang`` policy, named as that server names them.

    Attributes:
        order: ``lpm``: the longest cached prefix first (by arrival while more than 128 wait);
            ``fcfs``: by arrival.
        conservativeness: ``schedule_conservativeness``. A running request keeps 0.7 of this, times
            what it may still generate, free at first; 0.14 of that after 600 decode steps.
        most_new_tok: What requests name as ``max_new_tokens`` where their answers turn out shorter;
            0: they name their answer's length [tok].
    """

    order: Literal["lpm", "fcfs"] = "lpm"
    conservativeness: float = 1.0
    most_new_tok: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """Speculative decoding: drafts are verified in one step, and a run of them from the first comes out.

    Attributes:
        drafts: Tokens drafted for each decoding request in a step, 1 to 32.
        accept_frac: How probable it is that a draft holds when all before it did, the same for every
            draft; or, as servers measure it, for each draft that it and all before it held.
        draft_frac: Time and energy of drafting one token for all, as a share of a plain decode step
            of the same requests: about the share of the weights a draft model has, 0 for n-grams.
        seed: Key of the draws; a draw belongs to a request and to how many tokens it has out.

    Source:
        Leviathan et al., "Fast Inference from Transformers via Speculative Decoding", ICML 2023.
    """

    drafts: int
    accept_frac: float | tuple[float, ...]
    draft_frac: float = 0.0
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Identical replicas under one policy.

    Attributes:
        name: What reports call it.
        role: ``mixed`` does both phases; ``prefill`` hands its prompts over to ``decode``.
        replicas: Number of replicas.
        table: What a step costs on one replica.
        token_budget: Most tokens in a step [tok]; the SRAM chunk of an optical pass.
        max_seqs: Most sequences at once.
        kv_blocks: KV blocks of one replica.
        watermark_blocks: Blocks kept free when a request is admitted beside others.
        window_ps: How long an idle replica waits for prompts to fill a pass [ps].
        fill_tok: Prompt tokens that fill a pass [tok].
        cache: Prefix cache of each replica.
        policy: Who is in a step. ``vllm``: the v1 rule, running first, then the queue, prompts in
            chunks; ``orca``: requests join and leave every step, but prompts are whole and memory
            is reserved for the whole answer; ``static``: a batch is formed when the last is done;
            ``sglang``: prompts first and alone, memory by estimate, retraction.
        chunk_tok: Most tokens of one prompt in a step under ``vllm``
            (`long_prefill_token_threshold`); 0: no such bound [tok].
        sglang: Settings under ``sglang``.
        cap_w: Most power of a replica's device group above its idle power [W]; a step that would
            draw more takes longer, at the same energy. None: no cap.
        speculation: Speculative decoding, on a mixed or decode pool under ``vllm`` without
            `chunk_tok`; `token_budget` then holds all drafts of `max_seqs` requests. None: none.
    """

    name: str
    role: Literal["mixed", "prefill", "decode"]
    replicas: int
    table: StepTable
    token_budget: int
    max_seqs: int
    kv_blocks: int
    watermark_blocks: int = 0
    window_ps: int = 0
    fill_tok: int = 0
    cache: Cache | None = None
    cap_w: float | None = None
    policy: Literal["vllm", "orca", "static", "sglang"] = "vllm"
    chunk_tok: int = 0
    sglang: SGLang = SGLang()
    speculation: Speculation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Governor:
    """Moves watts between pools while they run, a level at a time.

    At every tick: a level up when more than `above_tok` prompt tokens wait for each replica that
    computes prompts, a level down when fewer than `below_tok` do. Steps that begin after it feel it.

    Attributes:
        tick_ps: Time between two looks [ps].
        caps_w: For each level the cap of one replica of each pool above its idle power [W]: from the
            most for decode to the most for prefill. `shared_caps_w` makes them of one cap for all.
        first: The level at first.
        above_tok: See above [tok].
        below_tok: See above, at most `above_tok` [tok].

    Source:
        RAPID, arXiv 2601.12241, moves power between prefill and decode; the two thresholds are ours.
    """

    tick_ps: int
    caps_w: tuple[tuple[float, ...], ...]
    first: int = 0
    above_tok: int = 8192
    below_tok: int = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """A fleet, or one cell of it.

    Attributes:
        pools: One ``mixed`` pool, or ``prefill`` and ``decode`` pools.
        block_tok: Tokens in a KV block [tok].
        link_tok_ps: Time to move one token's KV into a decode replica [ps].
        link_latency_ps: Time before the first byte [ps].
        first_token: Who emits the first token of a disaggregated request.
        link_layers: Layers of the model if each layer's KV is sent while later layers are computed;
            1 sends all at the end of the prompt.
        unit_tok: Tokens in a unit of the prefix cache, a multiple of `block_tok`; 0: `block_tok`.
        routing: Which replica takes a request.
        disaggregation: Which prompts the decode pool computes itself.
        imitate_dynosim: Price and hand over as NVIDIA's DynoSim 1.3.1 does, to be compared with it:
            a prompt step costs as its number of chunks times their mean, rounded down; a decode
            step costs by the tokens of whole blocks in use or reserved; pulls do not share the
            link, and of several prompts that end together all but the first are taken one step
            later.
        governor: Who moves watts between the pools; their own `cap_w` is then None.
    """

    pools: tuple[Pool, ...]
    block_tok: int = 16
    link_tok_ps: int = 0
    link_latency_ps: int = 0
    first_token: Literal["prefill", "decode"] = "prefill"
    link_layers: int = 1
    unit_tok: int = 0
    routing: Routing = Routing()
    disaggregation: Disaggregation = Disaggregation()
    imitate_dynosim: bool = False
    governor: Governor | None = None
