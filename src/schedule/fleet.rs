//! What is simulated: pools of replicas, and the link between them.

use std::sync::Arc;

use super::governor::GovernorSpec;
use super::speculation::SpeculationSpec;
use super::steps::StepTable;
use crate::error::Error;

/// What a pool does with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Both phases, in the same steps.
    Mixed,
    /// Prompts only; the KV cache is handed over at the end of the prompt.
    Prefill,
    /// Tokens after the hand-over; a preempted request is recomputed here.
    Decode,
}

impl Role {
    /// Reads a role's name.
    ///
    /// # Errors
    /// [`Error::Range`] for any other word.
    pub fn parse(name: &str) -> Result<Self, Error> {
        match name {
            "mixed" => Ok(Self::Mixed),
            "prefill" => Ok(Self::Prefill),
            "decode" => Ok(Self::Decode),
            _ => Err(Error::range("role", name, "mixed, prefill or decode")),
        }
    }
}

/// Who is in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// vLLM v1: running first, then the queue; prompts in chunks.
    Vllm {
        /// Most tokens of one prompt in a step (`long_prefill_token_threshold`); 0: no such bound.
        chunk_tok: u64,
    },
    /// Orca: requests join and leave every step, whole prompts, memory for the longest answer.
    Orca,
    /// SGLang: prompts first and alone, memory by estimate, retraction.
    Sglang(SglangSpec),
    /// Request-level batching: a batch is formed when the last one is done, whole prompts.
    Static,
}

/// The settings of SGLang's rule; shares are in units of 2⁻²⁰.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SglangSpec {
    /// Whether the queue is ordered by the longest cached prefix, or by arrival.
    pub longest_prefix_first: bool,
    /// Share of what running requests may still generate that is kept free for them at first.
    pub ratio: u64,
    /// The least that this share falls to.
    pub least_ratio: u64,
    /// How much it falls in a decode step.
    pub decay: u64,
    /// Tokens that requests say they may generate, where their answers are shorter.
    pub most_new_tok: u64,
}

impl Policy {
    /// Whether a request's whole memory is taken when it is admitted.
    pub(crate) fn reserves(self) -> bool {
        matches!(self, Self::Orca | Self::Static)
    }
}

/// Identical replicas under one policy.
#[derive(Debug, Clone)]
pub struct PoolSpec {
    /// Who is in a step.
    pub policy: Policy,
    /// What the pool does.
    pub role: Role,
    /// Number of replicas.
    pub replicas: u32,
    /// What a step costs on one replica.
    pub table: Arc<StepTable>,
    /// Most tokens in a step (`max_num_batched_tokens`; the SRAM chunk of an optical pass).
    pub token_budget: u64,
    /// Most sequences that run, or are being pulled, at once (`max_num_seqs`).
    pub max_seqs: u64,
    /// KV blocks of one replica.
    pub kv_blocks: u64,
    /// Blocks kept free when a request is admitted beside others.
    pub watermark_blocks: u64,
    /// How long an idle replica waits for prompts to fill a pass [ps]; 0: not at all.
    pub window_ps: u64,
    /// Prompt tokens that fill a pass.
    pub fill_tok: u64,
    /// Prefix cache of each replica, if any.
    pub cache: Option<CacheSpec>,
    /// What a step takes at least for its energy to stay below a power cap.
    pub cap: Option<Arc<StepTable>>,
    /// Speculative decoding, if any.
    pub speculation: Option<SpeculationSpec>,
}

/// One tier of KV memory below HBM, of one replica.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TierSpec {
    /// Units it holds; 0: there is no such tier.
    pub units: u64,
    /// Time to read one token back [ps]; reads follow each other.
    pub read_tok_ps: u64,
    /// Time before the first byte [ps].
    pub latency_ps: u64,
    /// Energy to read one token back [pJ].
    pub read_tok_pj: u64,
    /// Energy to write one token [pJ].
    pub write_tok_pj: u64,
}

/// The prefix cache of one replica; HBM is its first tier.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CacheSpec {
    /// DRAM and storage.
    pub tiers: [TierSpec; 2],
    /// Write back only units that were found again at least once.
    pub reused_only: bool,
}

/// The KV link into each decode replica; pulls of one replica follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkSpec {
    /// Time per token of context [ps].
    pub tok_ps: u64,
    /// Time before the first byte [ps].
    pub latency_ps: u64,
    /// Layers whose KV is sent while later layers are computed; 1: all is sent at the end.
    pub layers: u64,
}

impl LinkSpec {
    /// What is left of `wire` when a prompt that took `prompt_ps` ends: at least the last layer.
    pub(crate) fn left_after(&self, wire: u64, prompt_ps: u64) -> u64 {
        let early = |whole: u64| {
            let part = u128::from(whole) * u128::from(self.layers - 1) / u128::from(self.layers);
            u64::try_from(part).expect("Invariant: a part is at most the whole")
        };
        wire - early(wire).min(early(prompt_ps))
    }
}

/// Which replica takes a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Routing {
    /// The least load: unfinished requests, or prompt tokens to compute on prefill replicas.
    LeastLoad,
    /// One after the other.
    RoundRobin,
    /// Dynamo's cost: prompt tokens to compute, less those cached here, against context in use.
    PrefixAware {
        /// Weight of prompt tokens against context tokens, in 1/1024.
        weight_1024: u64,
        /// What a token cached in HBM, DRAM and storage is worth, in 1/1024.
        credit_1024: [u64; 3],
    },
    /// The least estimated time to the end of the prompt, cached prefix counted: Mooncake's
    /// Algorithm 1 without its copies between prefill instances.
    LeastTtft,
}

/// When a decode replica computes a prompt itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disaggregation {
    /// Every prompt is computed by the prefill pool.
    Always,
    /// None is.
    Never,
    /// Dynamo's rule: local when little is left to compute, or the prefill pool is busy.
    Conditional {
        /// Local when fewer prompt tokens than this are uncached …
        below_tok: u64,
        /// … and they are less than this share of the prompt, in 1/1024.
        share_1024: u64,
        /// Local too when the chosen prefill replica has more tokens to compute; 0: never.
        queue_tok: u64,
        /// Never local when the decode replica has this many unfinished requests; 0: no such line.
        busy_seqs: u64,
    },
}

/// Who emits the first token of a disaggregated request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstToken {
    /// The prefill replica, at the end of the prompt.
    Prefill,
    /// The decode replica, in its first step.
    Decode,
}

/// A fleet, or one cell of it.
#[derive(Debug, Clone)]
pub struct FleetSpec {
    /// The pools, in the order their replicas are numbered.
    pub pools: Vec<PoolSpec>,
    /// Tokens in a KV block.
    pub block_tok: u64,
    /// The link between prefill and decode replicas.
    pub link: LinkSpec,
    /// Who emits the first token of a disaggregated request.
    pub first_token: FirstToken,
    /// Tokens in a unit of the prefix cache: whole blocks.
    pub unit_tok: u64,
    /// Which replica takes a request.
    pub routing: Routing,
    /// Which prompts the decode pool computes itself.
    pub disaggregation: Disaggregation,
    /// Who moves watts between the pools, instead of their own caps.
    pub governor: Option<GovernorSpec>,
    /// Prices and hands over as NVIDIA's `DynoSim` 1.3.1 does, to be compared with it: a prompt step
    /// costs as its number of chunks times their mean, rounded down; a decode step costs by the
    /// tokens of whole blocks in use or reserved; pulls do not share the link, and of several
    /// prompts that end together all but the first are taken one step later.
    pub imitate_dynosim: bool,
}

/// More replicas than this are refused before anything is allocated.
const MOST_REPLICAS: u64 = 100_000;

impl FleetSpec {
    /// Checks the whole specification once.
    ///
    /// # Errors
    /// [`Error::Range`] or [`Error::Shape`] with the pool's number and what is allowed.
    pub fn check(&self) -> Result<(), Error> {
        if !(1..=4096).contains(&self.block_tok) {
            return Err(Error::range("block_tok", self.block_tok, "1 to 4096"));
        }
        if self.link.tok_ps > 1_000_000_000_000 || self.link.latency_ps > 1_000_000_000_000_000 {
            return Err(Error::range("link", "a slower link", "1 s a token, 1000 s latency"));
        }
        if self.imitate_dynosim
            && (self.first_token != FirstToken::Decode
                || self.pools.iter().any(|pool| pool.cache.is_some() || pool.speculation.is_some()))
        {
            let allowed = "false, or first_token = decode without prefix cache and speculation";
            return Err(Error::range("imitate_dynosim", true, allowed));
        }
        if self.link.layers == 0 || self.link.layers > 4096 {
            return Err(Error::range("link.layers", self.link.layers, "1 to 4096"));
        }
        if self.unit_tok == 0
            || !self.unit_tok.is_multiple_of(self.block_tok)
            || self.unit_tok > 1 << 20
        {
            let allowed = format!("a multiple of block_tok, {}, up to 2^20", self.block_tok);
            return Err(Error::range("unit_tok", self.unit_tok, allowed));
        }
        if let Routing::PrefixAware { weight_1024, credit_1024 } = self.routing {
            let credit = credit_1024.into_iter().max().unwrap_or(0);
            if weight_1024 > 1 << 20 || credit > 1024 {
                return Err(Error::range(
                    "routing",
                    "other weights",
                    "weights ≤ 1024, credits ≤ 1",
                ));
            }
        }
        let has = |role| self.pools.iter().any(|pool| pool.role == role);
        if has(Role::Prefill) != has(Role::Decode) {
            let given = if has(Role::Prefill) { "prefill alone" } else { "decode alone" };
            return Err(Error::range("pools", given, "prefill and decode together, or mixed"));
        }
        if has(Role::Mixed) == has(Role::Prefill) {
            let given = if has(Role::Mixed) { "mixed beside prefill" } else { "none" };
            return Err(Error::range("pools", given, "mixed alone, or prefill and decode"));
        }
        let changes = self.pools.windows(2).filter(|pair| pair[0].role != pair[1].role).count();
        if changes > 1 {
            return Err(Error::range("pools", "mixed order", "pools of one role side by side"));
        }
        for (at, pool) in self.pools.iter().enumerate() {
            pool.check(at)?;
            let sglang = matches!(pool.policy, Policy::Sglang(_));
            if sglang && pool.token_budget < self.block_tok {
                let name = format!("pools[{at}].token_budget");
                let allowed = format!("a block, {}, or more under sglang", self.block_tok);
                return Err(Error::range(name, pool.token_budget, allowed));
            }
            let kv_tok = pool.kv_blocks.saturating_mul(self.block_tok);
            pool.table.check_context(kv_tok)?;
            if let Some(cap) = &pool.cap {
                cap.check_context(kv_tok)?;
            }
        }
        if let Some(governor) = &self.governor {
            if self.pools.iter().any(|pool| pool.cap.is_some()) {
                return Err(Error::range("governor", "beside caps of pools", "one of the two"));
            }
            governor.check(self)?;
        }
        let replicas: u64 = self.pools.iter().map(|pool| u64::from(pool.replicas)).sum();
        if replicas > MOST_REPLICAS {
            return Err(Error::range("replicas", replicas, format!("at most {MOST_REPLICAS}")));
        }
        Ok(())
    }
}

impl FleetSpec {
    /// Blocks in a unit of the prefix cache.
    pub(crate) fn unit_blocks(&self) -> u64 {
        self.unit_tok / self.block_tok
    }
}

impl PoolSpec {
    /// Checks a cap's step times against the pool's.
    pub(crate) fn check_cap(&self, cap: &StepTable, name: &str) -> Result<(), Error> {
        cap.check()?;
        if cap.mixed.is_some() {
            return Err(Error::range(name, "a measured table", "an affine one"));
        }
        let shape = |table: &StepTable| format!("{} by {}", table.max_tok(), table.max_seqs());
        if shape(cap) != shape(&self.table) {
            return Err(Error::shape(name, shape(cap), shape(&self.table)));
        }
        if self.speculation.is_some() { cap.check_rows(self.verified_rows()) } else { Ok(()) }
    }

    fn check(&self, at: usize) -> Result<(), Error> {
        let name = |field: &str| format!("pools[{at}].{field}");
        self.table.check()?;
        if let Some(cap) = &self.cap {
            self.check_cap(cap, &name("cap"))?;
        }
        if self.replicas == 0 {
            return Err(Error::range(name("replicas"), 0, "1 or more"));
        }
        let most = self.table.max_seqs();
        if !(1..=most).contains(&self.max_seqs) {
            return Err(Error::range(name("max_seqs"), self.max_seqs, format!("1 to {most}")));
        }
        let (least, most) = (self.max_seqs, self.table.max_tok());
        if !(least..=most).contains(&self.token_budget) {
            let allowed = format!("{least} (max_seqs) to {most} (the step table)");
            return Err(Error::range(name("token_budget"), self.token_budget, allowed));
        }
        if !(1..=1 << 40).contains(&self.kv_blocks) {
            return Err(Error::range(name("kv_blocks"), self.kv_blocks, "1 to 2^40"));
        }
        if self.policy.reserves() && (self.role != Role::Mixed || self.cache.is_some()) {
            let allowed = "vllm on this pool; the others need a mixed pool without prefix cache";
            return Err(Error::range(name("policy"), format!("{:?}", self.policy), allowed));
        }
        if let Policy::Sglang(rule) = self.policy {
            if self.role != Role::Mixed {
                let allowed = "vllm on this pool; sglang needs a mixed pool";
                return Err(Error::range(name("policy"), "sglang", allowed));
            }
            let whole = 1 << 20;
            if rule.ratio > whole || rule.least_ratio > rule.ratio || rule.decay > whole {
                let given = format!("{} falling to {}", rule.ratio, rule.least_ratio);
                let allowed = "shares in 2^-20 that fall, at most 2^20";
                return Err(Error::range(name("sglang"), given, allowed));
            }
        }
        if let Some(rule) = &self.speculation {
            self.check_speculation(rule, at)?;
        }
        if self.window_ps > 0 && self.role == Role::Decode {
            let allowed = "0 on a decode pool: nobody waits to fill a decode step";
            return Err(Error::range(name("window_ps"), self.window_ps, allowed));
        }
        if self.window_ps > 1_000_000_000_000_000 {
            return Err(Error::range(name("window_ps"), self.window_ps, "at most 1000 s"));
        }
        for tier in self.cache.iter().flat_map(|cache| cache.tiers) {
            let slow = tier.read_tok_ps > 1_000_000_000_000
                || tier.latency_ps > 1_000_000_000_000_000
                || tier.read_tok_pj.max(tier.write_tok_pj) > 1_000_000_000_000_000;
            if slow || tier.units >= u64::from(u32::MAX) {
                let allowed = "1 s and 1 kJ a token, 1000 s latency, below 2^32 units";
                return Err(Error::range(name("cache.tiers"), "a larger tier", allowed));
            }
        }
        if self.watermark_blocks >= self.kv_blocks {
            let allowed = format!("below kv_blocks, {}", self.kv_blocks);
            return Err(Error::range(name("watermark_blocks"), self.watermark_blocks, allowed));
        }
        Ok(())
    }
}
