//! When the next step begins and who is in it, by the rule of the policy.

use super::{Around, Doing, Replica};
use crate::schedule::clock::{NEVER, Ps};
use crate::schedule::fleet::{Policy, PoolSpec};
use crate::schedule::request::Requests;

impl Replica {
    /// Plans the next step at `now` and returns when it ends, [`NEVER`] when there is nothing to do.
    pub(crate) fn start(&mut self, now: Ps, around: &mut Around<'_>) -> Ps {
        debug_assert!(self.is_idle(), "Invariant: a replica starts only when it does nothing");
        self.doing = Doing::Nothing;
        let spec = &around.fleet.pools[self.pool];
        if spec.window_ps > 0 && self.running.len == 0 && !self.waiting.is_empty() {
            let until = self.hold_until(spec, around.requests);
            if until > now {
                self.doing = Doing::Holding;
                return until;
            }
        }
        let planned = match self.policy {
            Policy::Sglang(rule) => self.plan_sglang(rule, now, around),
            _ if self.tok_a_seq > 1 => return self.start_verifying(now, around),
            _ => self.plan_vllm::<false>(now, around),
        };
        match planned {
            Some((preempted, tokens)) => self.begin(now, preempted, tokens, around),
            None => NEVER,
        }
    }

    /// How long to wait for a fuller pass: until the queue fills it, or its head has waited enough.
    #[inline(never)]
    fn hold_until(&self, spec: &PoolSpec, requests: &Requests) -> Ps {
        let mut tokens = 0;
        for &r in &self.waiting {
            let live = &requests[r];
            tokens += live.num_tok() - u64::from(live.cached_tok).min(live.num_tok() - 1);
            if tokens >= spec.fill_tok {
                return 0;
            }
        }
        requests[self.waiting[0]].arrival_ps + spec.window_ps
    }
}
