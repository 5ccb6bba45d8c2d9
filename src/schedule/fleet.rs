//! What is simulated: pools of replicas, and the link between them.

use std::sync::Arc;

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

/// Identical replicas under one policy.
#[derive(Debug, Clone)]
pub struct PoolSpec {
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
}

/// The KV link into each decode replica; pulls of one replica follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkSpec {
    /// Time per token of context [ps].
    pub tok_ps: u64,
    /// Time before the first byte [ps].
    pub latency_ps: u64,
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
        let has = |role| self.pools.iter().any(|pool| pool.role == role);
        if has(Role::Prefill) != has(Role::Decode) {
            let given = if has(Role::Prefill) { "prefill alone" } else { "decode alone" };
            return Err(Error::range("pools", given, "prefill and decode together, or mixed"));
        }
        if has(Role::Mixed) == has(Role::Prefill) {
            let given = if has(Role::Mixed) { "mixed beside prefill" } else { "none" };
            return Err(Error::range("pools", given, "mixed alone, or prefill and decode"));
        }
        for (at, pool) in self.pools.iter().enumerate() {
            pool.check(at)?;
            pool.table.check_context(pool.kv_blocks.saturating_mul(self.block_tok))?;
        }
        let replicas: u64 = self.pools.iter().map(|pool| u64::from(pool.replicas)).sum();
        if replicas > MOST_REPLICAS {
            return Err(Error::range("replicas", replicas, format!("at most {MOST_REPLICAS}")));
        }
        Ok(())
    }
}

impl PoolSpec {
    fn check(&self, at: usize) -> Result<(), Error> {
        let name = |field: &str| format!("pools[{at}].{field}");
        self.table.check()?;
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
        if self.watermark_blocks >= self.kv_blocks {
            let allowed = format!("below kv_blocks, {}", self.kv_blocks);
            return Err(Error::range(name("watermark_blocks"), self.watermark_blocks, allowed));
        }
        Ok(())
    }
}
