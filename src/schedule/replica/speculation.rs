//! Speculative decoding: a step verifies what was drafted, and as many tokens come out as held.
//!
//! ```text
//! drafts:    ── k passes of the draft model, for all that decode ──
//! verified:  [last token] [draft 1] [draft 2] … [draft k]        1 + k tokens of each in one step
//! out:        draft 1 ✓    draft 2 ✓   ✗: the right one          1 + accepted, never beyond the end
//! ```
//!
//! Every step is an event of its own: who advances by how much is drawn anew. A draw belongs to the
//! request and to the number of tokens it has out, so that an answer is drafted alike under every
//! policy and load. The step has blocks for all drafts; those of rejected ones are given back at its
//! end. A request that joins with a pulled KV cache has no drafts in its first step.
//!
//! Sources: Leviathan et al., ICML 2023 (the rule, and the mean number of tokens); vLLM v1,
//! `v1/core/sched/scheduler.py` (drafts count in the budget, and ask for blocks).

use super::price::Prompts;
use super::{Around, Doing, Replica};
use crate::schedule::clock::{NEVER, Ps};
use crate::schedule::request::{NONE, Requests, State};
use crate::schedule::speculation::SpeculationSpec;
use crate::schedule::steps::{StepTable, index};

/// What drafting costs in one step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Drafts {
    ps: Ps,
    linear_pj: u128,
    head_pj: u128,
    attn_pj: u128,
}

/// Whose tokens are drafted: how many requests, the sum of their contexts, the longest of these.
#[derive(Debug, Clone, Copy)]
struct Drafting {
    n: u64,
    context: u64,
    longest: u64,
}

impl SpeculationSpec {
    /// Time to draft: so many plain decode steps, each with one more token of context [ps].
    fn draft_ps(&self, of: Drafting, table: &StepTable) -> Ps {
        if of.n == 0 || self.draft_share == 0 {
            return 0;
        }
        let mut whole = 0;
        for drafted in 0..self.drafts() {
            let context = of.context + drafted * of.n;
            let longest = || of.longest + drafted;
            let attn = table.attention(std::iter::empty(), 0, of.n, context, longest);
            whole += u128::from(table.step_ps(of.n, of.n, attn));
        }
        u64::try_from(self.share(whole)).expect("StepTable::check bounds the factors")
    }

    fn cost(&self, of: Drafting, table: &StepTable) -> Drafts {
        if of.n == 0 || self.draft_share == 0 {
            return Drafts::default();
        }
        let (k, n) = (u128::from(self.drafts()), u128::from(of.n));
        let contexts = k * u128::from(of.context) + n * (k * (k - 1) / 2);
        let attn_pj = k * u128::from(table.decode_attn_floor_pj[index(of.n)])
            + u128::from(table.decode_attn_ctx_pj[index(of.n)]) * contexts;
        Drafts {
            ps: self.draft_ps(of, table),
            linear_pj: self.share(k * u128::from(table.linear_pj[index(of.n)])),
            head_pj: self.share(k * u128::from(table.head_pj[index(of.n)])),
            attn_pj: self.share(attn_pj),
        }
    }
}

impl Replica {
    /// Plans the next step at `now` and returns when it ends, [`NEVER`] when there is nothing to do.
    #[inline(never)]
    pub(super) fn start_verifying(&mut self, now: Ps, around: &mut Around<'_>) -> Ps {
        match self.plan_vllm::<true>(now, around) {
            Some(_) => self.begin_verifying(now, around),
            None => NEVER,
        }
    }

    /// Tokens in the coming step of those that decode already.
    pub(super) fn decode_tok(&self) -> u64 {
        self.decoding.n * self.tok_a_seq
    }

    /// Blocks that these need for it.
    pub(super) fn blocks_with_drafts(&self) -> u64 {
        self.decode_blocks() + self.decode_blocks_after(self.tok_a_seq - 1)
    }

    /// Prices the planned step, drafts included, and sets it going.
    fn begin_verifying(&mut self, now: Ps, around: &mut Around<'_>) -> Ps {
        let fleet = around.fleet;
        let spec = &fleet.pools[self.pool];
        let rule = spec.speculation.as_ref().expect("Invariant: several tokens a sequence");
        let (table, cap) = (around.table, around.cap);
        let requests = &*around.requests;
        let emits = around.prompt_end_emits(self.pool);
        let mut prompts = Prompts::default();
        let (mut prefill, mut prefill_cap) = (0, 0);
        for &(r, q) in &self.chunks {
            let kv = self.computed(r, requests);
            let (ps, pj) = table.chunk_attn(q, kv);
            prefill += ps;
            prefill_cap += cap.map_or(0, |cap| cap.chunk_attn(q, kv).0);
            prompts.tok += q;
            prompts.attn_pj += u128::from(pj);
            prompts.emitted += u64::from(emits && kv + q == requests.num_tok(r));
        }
        let mut of = self.drafting(requests);
        let (n, rows, context) = self.verified();
        let mut longest = 0;
        if table.mixed.is_some() {
            // Only a measured table asks for the longest context, which takes a walk.
            (of.longest, longest) = self.longest_contexts(requests);
        }
        let chunks = self.chunks.iter().map(|&(r, q)| (q, self.computed(r, requests)));
        prompts.attn = table.attention(chunks, prefill, n, context, || longest);
        let (tokens, emitted) = (prompts.tok + rows, prompts.emitted + rows);
        let drafts = rule.cost(of, table);
        let free_ps = table.verify_ps(tokens, emitted, prompts.attn) + drafts.ps;
        if let Some(cap) = cap {
            let attn = cap.attention(std::iter::empty(), prefill_cap, n, context, || 0);
            let least = cap.verify_ps(tokens, emitted, attn) + rule.draft_ps(of, cap);
            prompts.capped_ps = least.saturating_sub(free_ps);
        }
        let end = now + free_ps + prompts.capped_ps;
        self.prompts = prompts;
        *self.drafts = drafts;
        self.doing = Doing::Step { start: now, end };
        end
    }

    /// Ends the part of a step that verified drafts.
    #[inline(never)]
    pub(super) fn end_verifying(&mut self, lasted: Ps, now: Ps, around: &mut Around<'_>) {
        let (n, rows, context) = self.verified();
        let drafts = *self.drafts;
        let head_pj = around.table.verify_head_pj(self.prompts.emitted + rows);
        self.book_step(lasted - drafts.ps, (n, rows, context), head_pj, around);
        let counters = &mut *around.counters;
        counters.decode_ps += u128::from(drafts.ps);
        counters.draft_ps += u128::from(drafts.ps);
        counters.decode_linear_pj += drafts.linear_pj;
        counters.decode_head_pj += drafts.head_pj;
        counters.decode_attn_pj += drafts.attn_pj;
        counters.drafted_tok += rows - n;
        if n > 0 {
            let joined = self.joined.len() as u64;
            let more = self.take_accepted(around);
            around.gaps.add(lasted, n - joined);
            // Tokens of one step come together.
            around.gaps.add(0, more);
            self.count_pauses(now, around);
            self.decoding.pass(1);
            self.finish_due(now, around);
        }
    }

    /// Lets every request have the drafts that held, and gives back the blocks of the others;
    /// returns how many held.
    fn take_accepted(&mut self, around: &mut Around<'_>) -> u64 {
        let fleet = around.fleet;
        let rule = fleet.pools[self.pool].speculation.as_ref();
        let rule = rule.expect("Invariant: several tokens a sequence");
        let (mut held, mut spare) = (0, 0);
        let mut r = self.running.first;
        while r != NONE {
            if self.drafts_of(r, around.requests) > 0 {
                let generated = self.generated(r, around.requests);
                let left = u64::from(around.requests[r].osl_tok - generated);
                let more = rule.accepted_of(r, generated).min(left - 1);
                let computed = self.computed(r, around.requests);
                spare += self.blocks(computed + self.tok_a_seq) - self.blocks(computed + 1 + more);
                if more > 0 {
                    held += more;
                    self.decoding.skip(r, more, around.requests);
                }
            }
            r = around.requests[r].next;
        }
        self.free += spare;
        around.counters.blocks_freed += spare;
        around.counters.accepted_tok += held;
        around.counters.emitted_tok += held;
        held
    }

    /// Tokens drafted for `r` in the coming step, or the one under way.
    fn drafts_of(&self, r: u32, requests: &Requests) -> u64 {
        let drafts = requests[r].state == State::Decoding && !self.joined.contains(&r);
        if drafts { self.tok_a_seq - 1 } else { 0 }
    }

    /// Of those that decode: their number, their tokens in the step, and the context these attend
    /// to. The drafts of a request attend to its context together: it is read once.
    fn verified(&self) -> (u64, u64, u64) {
        let n = self.decoding.n;
        let drafted = (n - self.joined.len() as u64) * (self.tok_a_seq - 1);
        (n, n + drafted, self.decoding.context + drafted)
    }

    /// Those that decode, without those that have no drafts yet.
    fn drafting(&self, requests: &Requests) -> Drafting {
        let new = self.joined.iter().map(|&r| self.computed(r, requests) + 1);
        Drafting {
            n: self.decoding.n - self.joined.len() as u64,
            context: self.decoding.context - new.sum::<u64>(),
            longest: 0,
        }
    }

    /// The longest context from which tokens are drafted, and the longest that is verified.
    fn longest_contexts(&self, requests: &Requests) -> (u64, u64) {
        let (mut drafted, mut verified) = (0, 0);
        let mut r = self.running.first;
        while r != NONE {
            if requests[r].state == State::Decoding {
                let (context, drafts) =
                    (self.computed(r, requests) + 1, self.drafts_of(r, requests));
                verified = verified.max(context + drafts);
                if drafts > 0 {
                    drafted = drafted.max(context);
                }
            }
            r = requests[r].next;
        }
        (drafted, verified)
    }
}
