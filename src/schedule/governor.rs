//! Watts that move between pools under one cap, a level at a time.
//!
//! ```text
//! level 0 ── most for decode ── … ── most for prefill ── last level
//!         ◄── few prompt tokens wait      many wait ──►       (looked at every tick)
//! ```
//!
//! A change is felt by steps that begin after it.
//!
//! Source: power reallocation between prefill and decode pools is RAPID's (arXiv 2601.12241); the
//! rule with two thresholds is ours.

use std::sync::Arc;

use super::clock::Ps;
use super::fleet::FleetSpec;
use super::steps::StepTable;
use crate::error::Error;

/// How watts are moved.
#[derive(Debug, Clone)]
pub struct GovernorSpec {
    /// Time between two looks [ps].
    pub tick_ps: Ps,
    /// For each level and pool, what a step takes at least for its energy to stay below the cap.
    pub levels: Vec<Vec<Arc<StepTable>>>,
    /// The level at first.
    pub first: usize,
    /// A level up when more prompt tokens than this wait for each replica that computes prompts.
    pub above_tok: u64,
    /// A level down when fewer do.
    pub below_tok: u64,
}

impl GovernorSpec {
    /// Checks that every pool has a cap of its shape at every level.
    ///
    /// # Errors
    /// [`Error::Range`] or [`Error::Shape`] with what is allowed.
    pub(crate) fn check(&self, fleet: &FleetSpec) -> Result<(), Error> {
        if self.tick_ps < 1_000_000 {
            return Err(Error::range("governor.tick_ps", self.tick_ps, "1 us or more"));
        }
        if self.levels.len() < 2 || self.first >= self.levels.len() {
            let given = format!("{} of {}", self.first, self.levels.len());
            return Err(Error::range("governor.first", given, "one of two levels or more"));
        }
        if self.below_tok > self.above_tok {
            let allowed = format!("at most above_tok, {}", self.above_tok);
            return Err(Error::range("governor.below_tok", self.below_tok, allowed));
        }
        for level in &self.levels {
            if level.len() != fleet.pools.len() {
                return Err(Error::shape("governor.levels", level.len(), fleet.pools.len()));
            }
            for (cap, pool) in level.iter().zip(&fleet.pools) {
                pool.check_cap(cap, "governor.levels")?;
                cap.check_context(pool.kv_blocks.saturating_mul(fleet.block_tok))?;
            }
        }
        Ok(())
    }

    /// The level after a look at which `waiting` tokens wait for each of the `replicas`.
    pub(crate) fn next(&self, level: usize, waiting_tok: u64, replicas: u64) -> usize {
        if waiting_tok > self.above_tok * replicas {
            (level + 1).min(self.levels.len() - 1)
        } else if waiting_tok < self.below_tok * replicas {
            level.saturating_sub(1)
        } else {
            level
        }
    }
}
