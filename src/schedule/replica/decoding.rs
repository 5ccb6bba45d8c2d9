//! The requests of a replica that yield one token a step, as a whole.
//!
//! None of them is visited while it decodes: their number, the sum of their contexts and how many
//! stand at each position within a block say what every coming step needs.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::schedule::request::{Requests, State};
use crate::schedule::steps::index;

/// The decoding set, and the step counter its members are relative to.
#[derive(Debug, Clone)]
pub(super) struct Decoding {
    pub(super) step: u64,
    /// `step` modulo the block size.
    phase: usize,
    pub(super) n: u64,
    /// Sum of the contexts the coming step attends to.
    pub(super) context: u64,
    /// Blocks are powers of two in practice, and a shift is quicker than a division.
    shift: Option<u32>,
    /// Members by the step, modulo the block size, at which each needs its next block.
    due: Vec<u32>,
    /// When each ends: (step, request). Entries from before a preemption are stale.
    finish: BinaryHeap<Reverse<(u64, u32)>>,
}

impl Decoding {
    pub(super) fn new(block_tok: u64) -> Self {
        Self {
            step: 0,
            phase: 0,
            n: 0,
            context: 0,
            shift: block_tok.is_power_of_two().then(|| block_tok.trailing_zeros()),
            due: vec![0; index(block_tok)],
            finish: BinaryHeap::new(),
        }
    }

    pub(super) fn block_tok(&self) -> u64 {
        self.due.len() as u64
    }

    /// Whole blocks in `tokens`, and what is left.
    fn split(&self, tokens: u64) -> (u64, u64) {
        let block = self.block_tok();
        match self.shift {
            Some(shift) => (tokens >> shift, tokens & (block - 1)),
            None => (tokens / block, tokens % block),
        }
    }

    /// Blocks that `tokens` tokens fill or begin.
    pub(super) fn blocks(&self, tokens: u64) -> u64 {
        self.split(tokens + self.block_tok() - 1).0
    }

    /// Whether the next of `computed` tokens begins a block.
    pub(super) fn begins_block(&self, computed: u64) -> bool {
        self.split(computed).1 == 0
    }

    /// Tokens of `r` with KV present.
    pub(super) fn computed(&self, r: u32, requests: &Requests) -> u64 {
        let stored = requests[r].computed;
        if requests[r].state == State::Decoding {
            (stored + self.step.cast_signed()).unsigned_abs()
        } else {
            stored.unsigned_abs()
        }
    }

    /// From here on `r`, with `computed` tokens in place, yields a token in every step.
    pub(super) fn enter(&mut self, r: u32, computed: u64, requests: &mut Requests) {
        requests[r].state = State::Decoding;
        requests[r].computed = computed.cast_signed() - self.step.cast_signed();
        self.finish.push(Reverse((requests[r].finish_step(), r)));
        self.n += 1;
        self.context += computed + 1;
        let due = self.due_at(requests[r].computed);
        self.due[due] += 1;
    }

    /// Takes `r` out and returns its tokens with KV present.
    pub(super) fn leave(&mut self, r: u32, requests: &Requests) -> u64 {
        let computed = self.computed(r, requests);
        self.n -= 1;
        self.context -= computed + 1;
        let due = self.due_at(requests[r].computed);
        self.due[due] -= 1;
        computed
    }

    /// Lets `r` have `more` tokens in place beside what the step itself adds.
    pub(super) fn skip(&mut self, r: u32, more: u64, requests: &mut Requests) {
        let due = self.due_at(requests[r].computed);
        self.due[due] -= 1;
        requests[r].computed += more.cast_signed();
        let due = self.due_at(requests[r].computed);
        self.due[due] += 1;
        self.context += more;
        self.finish.push(Reverse((requests[r].finish_step(), r)));
    }

    /// Lets `steps` steps pass.
    pub(super) fn pass(&mut self, steps: u64) {
        self.step += steps;
        self.context += self.n * steps;
        self.phase = index(self.split(self.phase as u64 + steps).1);
    }

    /// The next member that is complete, if any.
    pub(super) fn pop_finished(&mut self, requests: &Requests) -> Option<u32> {
        while let Some(&Reverse((step, r))) = self.finish.peek() {
            if step > self.step {
                return None;
            }
            self.finish.pop();
            if is_current(step, r, requests) {
                return Some(r);
            }
        }
        None
    }

    pub(super) fn steps_to_first_finish(&mut self, requests: &Requests) -> u64 {
        while let Some(&Reverse((step, r))) = self.finish.peek() {
            if is_current(step, r, requests) && step > self.step {
                return step - self.step;
            }
            self.finish.pop();
        }
        1
    }

    /// Blocks the coming step needs.
    pub(super) fn blocks_now(&self) -> u64 {
        u64::from(self.due[self.phase])
    }

    /// Blocks taken by the `steps` steps after the coming one.
    pub(super) fn blocks_after_first(&self, steps: u64) -> u64 {
        let (whole, rest) = self.split(steps);
        let rest = index(rest);
        let from = self.wrapped(self.phase + 1);
        let until = (from + rest).min(self.due.len());
        let wrapped = from + rest - until;
        let sum = |part: &[u32]| part.iter().map(|&due| u64::from(due)).sum::<u64>();
        whole * self.n + sum(&self.due[from..until]) + sum(&self.due[..wrapped])
    }

    /// Steps after the coming one that `free` blocks allow, at most `most`.
    pub(super) fn steps_in_blocks(&self, free: u64, most: u64) -> u64 {
        let block = self.block_tok();
        if free >= self.n * self.blocks(most) {
            return most;
        }
        let mut steps = free / self.n * block;
        let mut left = free % self.n;
        let mut phase = self.wrapped(self.phase + 1);
        while steps < most {
            let due = u64::from(self.due[phase]);
            if due > left {
                break;
            }
            left -= due;
            steps += 1;
            phase = self.wrapped(phase + 1);
        }
        steps.min(most)
    }

    fn wrapped(&self, phase: usize) -> usize {
        if phase == self.due.len() { 0 } else { phase }
    }

    /// The step counter, modulo the block size, at which a member needs a block.
    fn due_at(&self, relative: i64) -> usize {
        let block = self.block_tok();
        match self.shift {
            // Two's complement: the low bits of a negative number are its Euclidean remainder.
            Some(_) => index(relative.wrapping_neg().cast_unsigned() & (block - 1)),
            None => index((-relative).rem_euclid(block.cast_signed()).unsigned_abs()),
        }
    }
}

/// Whether an entry is not from before a preemption.
fn is_current(step: u64, r: u32, requests: &Requests) -> bool {
    requests[r].state == State::Decoding && requests[r].finish_step() == step
}
