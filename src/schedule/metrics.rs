//! What is counted while tokens come out: time, energy, tokens, blocks, and gaps between tokens.

use super::clock::Ps;

/// Sub-buckets of an octave in [`Gaps`]: a bucket is at most 1/128 = 0.8 % wide.
const SUB_BITS: u32 = 7;
const BUCKETS: usize = ((64 - SUB_BITS as usize) + 1) << SUB_BITS;

/// Everything one pool did, in integers, so that parts sum to the whole exactly.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Steps, or optical passes.
    pub steps: u64,
    /// Time in steps booked to prefill, summed over replicas [ps].
    pub prefill_ps: u128,
    /// Time in steps booked to decode [ps].
    pub decode_ps: u128,
    /// Prompt tokens computed, recomputed ones included.
    pub prefill_tok: u64,
    /// Of these, tokens computed again after a preemption.
    pub recomputed_tok: u64,
    /// Tokens computed one a step.
    pub decode_tok: u64,
    /// Tokens that came out.
    pub emitted_tok: u64,
    /// Tokens drafted and verified.
    pub drafted_tok: u64,
    /// Of these, tokens that came out.
    pub accepted_tok: u64,
    /// Time spent drafting, a part of the time booked to decode [ps].
    pub draft_ps: u128,
    /// Requests thrown out of the running list.
    pub preemptions: u64,
    /// Requests that were routed anew because a replica was lost.
    pub rerouted: u64,
    /// Tokens whose KV was lost with it.
    pub lost_tok: u64,
    /// KV blocks taken.
    pub blocks_taken: u64,
    /// KV blocks given back.
    pub blocks_freed: u64,
    /// Context tokens pulled into the pool.
    pub pulled_tok: u64,
    /// Time the links into the pool were busy [ps].
    pub link_ps: u128,
    /// Time that steps took longer because of a power cap [ps].
    pub capped_ps: u128,
    /// Prompt tokens of first admissions that asked the prefix cache.
    pub queried_tok: u64,
    /// Of these, tokens found in HBM, in DRAM and in storage.
    pub hit_tok: [u64; 3],
    /// Tokens that preempted requests found when they resumed.
    pub resumed_hit_tok: u64,
    /// Tokens evicted from HBM.
    pub evicted_tok: u64,
    /// Tokens read back from DRAM and from storage.
    pub tier_read_tok: [u64; 2],
    /// Time their channels were busy with that [ps].
    pub tier_read_ps: [u128; 2],
    /// Tokens written to DRAM and to storage.
    pub tier_written_tok: [u64; 2],
    /// Energy of reading from and writing to DRAM and storage [pJ].
    pub tier_pj: [u128; 2],
    /// Context tokens that need not be pulled because the decode replica had them.
    pub pull_saved_tok: u64,
    /// Requests whose prompt a decode replica computed itself.
    pub local_prompts: u64,
    /// Energy above idle: linear layers booked to prefill [pJ].
    pub prefill_linear_pj: u128,
    /// Energy above idle: attention of prompts [pJ].
    pub prefill_attn_pj: u128,
    /// Energy above idle: output head for prompts [pJ].
    pub prefill_head_pj: u128,
    /// Energy above idle: linear layers booked to decode [pJ].
    pub decode_linear_pj: u128,
    /// Energy above idle: decode attention [pJ].
    pub decode_attn_pj: u128,
    /// Energy above idle: output head for decoded tokens [pJ].
    pub decode_head_pj: u128,
}

impl Counters {
    /// Energy above idle of everything computed [pJ].
    pub fn compute_pj(&self) -> u128 {
        self.prefill_linear_pj
            + self.prefill_attn_pj
            + self.prefill_head_pj
            + self.decode_linear_pj
            + self.decode_attn_pj
            + self.decode_head_pj
    }
}

/// A histogram of gaps between consecutive tokens of a request, pooled over requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gaps {
    /// Tokens by bucket; see [`Gaps::lower_ps`].
    pub counts: Vec<u64>,
    /// Sum of all gaps [ps].
    pub sum_ps: u128,
}

impl Default for Gaps {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS], sum_ps: 0 }
    }
}

impl Gaps {
    /// The bucket of a gap.
    pub fn bucket(gap_ps: Ps) -> usize {
        if gap_ps < 1 << SUB_BITS {
            return super::steps::index(gap_ps);
        }
        let octave = gap_ps.ilog2() - SUB_BITS;
        let sub = (gap_ps >> octave) & ((1 << SUB_BITS) - 1);
        super::steps::index((u64::from(octave + 1) << SUB_BITS) + sub)
    }

    /// The smallest gap in `bucket` [ps].
    pub fn lower_ps(bucket: usize) -> Ps {
        let (octave, sub) = (bucket >> SUB_BITS, (bucket & ((1 << SUB_BITS) - 1)) as u64);
        if octave == 0 { sub } else { ((1 << SUB_BITS) + sub) << (octave - 1) }
    }

    /// Counts `tokens` equal gaps.
    pub(crate) fn add(&mut self, gap_ps: Ps, tokens: u64) {
        self.counts[Self::bucket(gap_ps)] += tokens;
        self.sum_ps += u128::from(gap_ps) * u128::from(tokens);
    }

    /// Counts the gaps of `steps` steps whose length grows from `first_ps` by `growth_ps` a step,
    /// `tokens` in each.
    pub(crate) fn add_run(&mut self, first_ps: Ps, growth_ps: Ps, steps: u64, tokens: u64) {
        let mut step = 0;
        while step < steps {
            let gap = first_ps + growth_ps * step;
            let bucket = Self::bucket(gap);
            let inside = if growth_ps == 0 {
                steps - step
            } else {
                let above = Self::lower_ps(bucket + 1);
                (above - gap).div_ceil(growth_ps).min(steps - step)
            };
            self.counts[bucket] += inside * tokens;
            step += inside;
        }
        let (k, n) = (u128::from(steps), u128::from(tokens));
        let growth = u128::from(growth_ps) * (k * k.saturating_sub(1) / 2);
        self.sum_ps += n * (k * u128::from(first_ps) + growth);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_its_own_lower_edge_and_is_less_than_one_percent_wide() {
        for bucket in 0..BUCKETS - 1 {
            let lower = Gaps::lower_ps(bucket);
            assert_eq!(Gaps::bucket(lower), bucket);
            let width = Gaps::lower_ps(bucket + 1) - lower;
            assert!(lower < 128 || width * 128 <= lower, "bucket {bucket}");
        }
        assert_eq!(Gaps::bucket(Ps::MAX), BUCKETS - 1);
    }

    #[test]
    fn a_run_counts_what_its_steps_count_one_by_one() {
        for (first, growth, steps, tokens) in
            [(20_000_000_000, 33_000, 5000, 7), (1, 1, 300, 2), (900, 0, 4, 1), (127, 64, 40, 3)]
        {
            let (mut run, mut single) = (Gaps::default(), Gaps::default());
            run.add_run(first, growth, steps, tokens);
            for step in 0..steps {
                single.add(first + growth * step, tokens);
            }
            assert!(run == single, "{first} {growth} {steps} {tokens}");
        }
    }
}
