//! What every replica did when, for those who want to look at it.

use super::clock::Ps;

/// One step with prompt work, or one run of decode steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// The replica.
    pub replica: u32,
    /// Start [ps].
    pub start_ps: Ps,
    /// End [ps].
    pub end_ps: Ps,
    /// Steps in it.
    pub steps: u64,
    /// Prompt tokens computed.
    pub prompt_tok: u64,
    /// Sequences that decode.
    pub decode_seqs: u64,
    /// Energy above idle [pJ].
    pub pj: u128,
}
