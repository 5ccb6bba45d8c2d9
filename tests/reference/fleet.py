"""What is simulated, in plain records."""

from __future__ import annotations

from dataclasses import dataclass, field

NEVER = 2**64 - 1


@dataclass
class Table:
    linear_ps: list
    head_ps: list
    prefill_attn_floor_ps: int
    prefill_attn_pair_fs: list
    decode_attn_floor_ps: list
    decode_attn_ctx_ps: list
    mix_1024: int
    linear_pj: list
    head_pj: list
    prefill_attn_pair_fj: list
    decode_attn_floor_pj: list
    decode_attn_ctx_pj: list
    mixed: tuple | None = None  # (four axes, times, skew in 1/1024)


@dataclass
class Rule:
    """SGLang's settings; shares in 2^-20."""

    longest_prefix_first: bool = True
    ratio: int = 0
    least_ratio: int = 0
    decay: int = 0
    most_new_tok: int = 0


@dataclass
class Speculation:
    """Speculative decoding; shares in 2^-32 and 2^-20."""

    accepted: list
    draft_share: int
    seed: int


@dataclass
class Pool:
    role: str
    replicas: int
    table: Table
    token_budget: int
    max_seqs: int
    kv_blocks: int
    watermark_blocks: int = 0
    window_ps: int = 0
    fill_tok: int = 0
    policy: str = "vllm"
    sglang: Rule | None = None
    chunk_tok: int = 0  # most tokens of one prompt in a step; 0: no such bound
    cap: Table | None = None  # what a step takes at least
    cache: tuple | None = None  # ([tier, tier], reused only)
    speculation: Speculation | None = None

    def drafts(self):
        return len(self.speculation.accepted) if self.speculation else 0


@dataclass
class Tier:
    units: int
    read_tok_ps: int
    latency_ps: int
    read_tok_pj: int
    write_tok_pj: int


@dataclass
class Settings:
    """Everything of a fleet beside its pools."""

    block_tok: int
    unit_tok: int
    link_tok_ps: int
    link_latency_ps: int
    link_layers: int
    first_token: str
    routing: str = "least-load"
    weight_1024: int = 1024
    credit_1024: tuple = (1024, 768, 256)
    disaggregation: str = "always"
    local_below_tok: int = 2048
    local_share_1024: int = 717
    local_queue_tok: int = 0
    local_busy_seqs: int = 0
    governor: tuple | None = None  # (tick, caps by level and pool, first level, above, below)


@dataclass
class Request:
    number: int
    arrival_ps: int
    isl: int
    cached: int
    osl: int
    units: tuple = ()
    parents: tuple = ()  # requests it waits for
    think_ps: int = 0
    state: str = "queued"
    computed: int = 0
    generated: int = 0
    charged: int = 0
    shares: dict = field(default_factory=dict)  # replica number -> units used from its cache
    started_ps: int = NEVER
    prompt_end_ps: int = NEVER
    first_ps: int = NEVER
    last_ps: int = NEVER
    emitted_ps: int = 0
    preemptions: int = 0
    decoding: bool = False  # its cache is complete: one token a step
    drafted: int = 0  # tokens that the step under way verifies beside that one
    prefill: Replica | None = None
    decode: Replica | None = None

    @property
    def tokens(self):
        return self.isl + self.generated

    def home(self):
        return self.decode or self.prefill


@dataclass
class Replica:
    pool: Pool
    number: int
    free: int
    running: list = field(default_factory=list)
    waiting: list = field(default_factory=list)
    ready: list = field(default_factory=list)
    loaded: list = field(default_factory=list)
    coming: int = 0
    link_free: int = 0
    load: int = 0
    ends: int = NEVER
    holds: int = NEVER
    started: int = 0
    plan: list = field(default_factory=list)
    users: dict = field(default_factory=dict)  # unit in HBM -> requests that use it
    unused: list = field(default_factory=list)  # units in HBM that nobody uses, oldest first
    lower: list = field(default_factory=lambda: [[], []])  # DRAM, storage, oldest first
    reused: set = field(default_factory=set)
    comes: dict = field(default_factory=dict)  # unit -> when it has been read back
    channel: list = field(default_factory=lambda: [0, 0])
    prompt_tok: int = 0
    context_tok: int = 0
    queue_ps: int = 0
    share: int = 0  # of what running requests may still generate that is kept free (SGLang)
    full: bool = False  # nobody is admitted until a request leaves (SGLang)
    troubles: int = 0  # faults that keep it down
    slow: Table | None = None  # step costs while a part of it has failed
    link_1024: int = 1024
    booked: dict = field(default_factory=dict)  # what the step under way costs

    def up(self):
        return self.troubles == 0

    def empty(self):
        """As at the beginning, but for what is wrong with it."""
        fresh = Replica(self.pool, self.number, self.pool.kv_blocks)
        if self.pool.policy == "sglang":
            fresh.share = self.pool.sglang.ratio
        for name in ("troubles", "slow", "link_1024", "link_free"):
            setattr(fresh, name, getattr(self, name))
        self.__dict__.update(fresh.__dict__)


COUNTERS = [
    "steps",
    "prefill_ps",
    "decode_ps",
    "prefill_tok",
    "recomputed_tok",
    "decode_tok",
    "emitted_tok",
    "drafted_tok",
    "accepted_tok",
    "draft_ps",
    "preemptions",
    "rerouted",
    "lost_tok",
    "blocks_taken",
    "blocks_freed",
    "pulled_tok",
    "link_ps",
    "capped_ps",
    "queried_tok",
    "hit_hbm_tok",
    "hit_dram_tok",
    "hit_storage_tok",
    "resumed_hit_tok",
    "evicted_tok",
    "dram_read_tok",
    "storage_read_tok",
    "dram_read_ps",
    "storage_read_ps",
    "dram_written_tok",
    "storage_written_tok",
    "dram_pj",
    "storage_pj",
    "pull_saved_tok",
    "local_prompts",
    "prefill_linear_pj",
    "prefill_attn_pj",
    "prefill_head_pj",
    "decode_linear_pj",
    "decode_attn_pj",
    "decode_head_pj",
]
