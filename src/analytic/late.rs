//! The share of requests that miss the service level, by load.

use super::carried::{Level, Role};
use super::{Steps, Traffic, interpolated};

/// Spread of a batch over the square root of its size: 1 for Poisson arrivals.
const SCATTER: f64 = 1.0;

/// Most of a mixed step's time that prompts can take.
const MOST_PREFILL: f64 = 0.98;

/// One server's pool while it is asked for a load.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pool<'a> {
    pub(super) role: Role,
    /// Replicas of one server.
    pub(super) replicas: f64,
    /// Servers that share a queue.
    pub(super) count: f64,
    /// Most tokens in a step [tok].
    pub(super) chunk_tok: f64,
    pub(super) steps: &'a Steps,
    pub(super) traffic: &'a Traffic,
}

impl Pool<'_> {
    /// Returns the share of requests that miss the level at a load [request/s].
    ///
    /// Counting stops as soon as it is more than `enough`, and some share above that is returned.
    pub(super) fn missed(&self, rate: f64, level: &Level, enough: f64) -> f64 {
        let bins = self.traffic.rate_ratio.len();
        match self.role {
            Role::Prefill => self.first_late(rate, level.ttft_s, enough),
            Role::Decode => self.decode_late(rate, level, &vec![1.0; bins], enough),
            Role::Mixed => self.mixed_late(rate, level, enough),
        }
    }

    /// Returns the weight of each bin: its share of the arrivals.
    fn weights(&self) -> impl Iterator<Item = f64> {
        let whole: f64 = self.traffic.rate_ratio.iter().sum();
        self.traffic.rate_ratio.iter().map(move |ratio| ratio / whole)
    }

    /// Returns the share of requests whose first token is late on a prefill pool.
    fn first_late(&self, rate: f64, ttft_s: f64, enough: f64) -> f64 {
        let (steps, traffic) = (self.steps, self.traffic);
        let replicas = self.replicas * self.count;
        let most = steps.most_tok();
        let top = steps.prefill_speed[steps.prefill_speed.len() - 1];
        let cv = traffic.work_cv(|tokens, pairs| {
            (tokens / most).max(1.0) * interpolated(tokens, &steps.tokens, &steps.linear_s)
                + pairs * steps.pair_s
        });
        let idle_rate = replicas * top / traffic.mean_uncached_tok;
        let linear_s = |tokens: f64| interpolated(tokens, &steps.tokens, &steps.linear_s);
        let kinds: Vec<(f64, f64, f64, f64)> = traffic
            .prompts()
            .map(|(tokens, pairs, share)| (tokens, linear_s(tokens), pairs * steps.pair_s, share))
            .collect();
        let mut backlog = Backlog::default();
        let mut missed = 0.0;
        for (ratio, weight) in traffic.prefill_ratio.iter().zip(self.weights()) {
            let asked = rate * ratio * traffic.mean_uncached_tok / replicas;
            let size = steps.prefill_size_tok(asked);
            let pass_s = steps.prefill_time_s(size);
            let used = asked / top;
            let behind_s = backlog.after(used, traffic.bin_s);
            let busy = (asked * pass_s / size.max(traffic.mean_uncached_tok)).min(1.0);
            let queue = Queue::new(used, idle_rate, cv, replicas);
            let shared_s = linear_s(size);
            for &(tokens, by_itself_s, attention_s, share) in &kinds {
                let (most_of, once_s) =
                    if tokens > size { (tokens, by_itself_s) } else { (size, shared_s) };
                let own_s = (most_of / most).max(1.0) * once_s + attention_s;
                let slack_s = ttft_s - own_s - behind_s;
                // A request arrives at a random place of the pass that is under way.
                let inside =
                    if slack_s < 0.0 { 1.0 } else { busy * (1.0 - slack_s / pass_s).max(0.0) };
                let late = 1.0 - (1.0 - inside) * (1.0 - queue.longer_than(slack_s));
                missed += share * weight * late;
            }
            if missed > enough {
                break;
            }
        }
        missed
    }

    /// Returns the share of requests that decode too slowly or wait too long.
    ///
    /// `slowed` is the factor by which prefill stretches the steps of each bin.
    fn decode_late(&self, rate: f64, level: &Level, slowed: &[f64], enough: f64) -> f64 {
        let (steps, traffic) = (self.steps, self.traffic);
        let last = steps.decode_s.len() - 1;
        let mut backlog = Backlog::default();
        let mut missed = 0.0;
        for ((ratio, weight), slow) in traffic.decode_ratio.iter().zip(self.weights()).zip(slowed) {
            let wanted = rate * ratio * traffic.mean_output_tok / self.replicas * slow;
            let seqs = steps.decode_seqs(wanted);
            let behind_s = backlog.after(wanted / steps.decode_speed[last], traffic.bin_s);
            let limit_s = level.tpot_s / slow;
            // The largest batch within the limit; arrivals and lengths scatter the batch around
            // its mean.
            let too_slow = if limit_s >= steps.decode_s[last] {
                0.0
            } else {
                let fits = if limit_s < steps.decode_s[0] {
                    0.0
                } else {
                    interpolated(limit_s, &steps.decode_rising_s, &steps.seqs)
                };
                above(fits - seqs, SCATTER * fits.max(1.0).sqrt())
            };
            let waits = if behind_s > level.decode_wait_s { 1.0 } else { 0.0 };
            missed += weight * f64::max(too_slow, waits);
            if missed > enough {
                break;
            }
        }
        missed
    }

    fn mixed_late(&self, rate: f64, level: &Level, enough: f64) -> f64 {
        let (steps, traffic) = (self.steps, self.traffic);
        let asked = rate / self.replicas;
        let last = steps.decode_speed.len() - 1;
        let slowed: Vec<f64> = traffic
            .prefill_ratio
            .iter()
            .map(|ratio| {
                let taken = asked * ratio * traffic.mean_uncached_tok * steps.extra_s_per_tok;
                1.0 / (1.0 - taken.min(MOST_PREFILL))
            })
            .collect();
        let slow = self.decode_late(rate, level, &slowed, enough);
        if slow > enough {
            return slow;
        }
        // (decode part of a step, room it leaves for prompts, use by decode alone), by bin.
        let full: Vec<(f64, f64, f64)> = traffic
            .decode_ratio
            .iter()
            .zip(&slowed)
            .map(|(ratio, stretch)| {
                let wanted = asked * ratio * traffic.mean_output_tok * stretch;
                let seqs = steps.decode_seqs(wanted);
                let room = (self.chunk_tok - seqs).max(1.0);
                let decode_s = steps.decode_time_s(seqs);
                (decode_s, room, wanted / steps.decode_speed[last])
            })
            .collect();
        let per_tok_s = |(decode_s, room, _): &(f64, f64, f64)| {
            (decode_s + steps.extra_s_per_tok * room) / room
        };
        let typical_s = median(full.iter().map(per_tok_s).collect());
        // A router goes by unfinished requests, most of which decode: no queue is shared.
        let idle_rate = 1.0 / typical_s / traffic.mean_uncached_tok;
        let linear_s =
            steps.extra_s_per_tok - steps.pair_s * traffic.mean_pairs / traffic.mean_uncached_tok;
        let cv = traffic.work_cv(|tokens, pairs| linear_s * tokens + pairs * steps.pair_s);
        let mut backlog = Backlog::default();
        let mut late = 0.0;
        for (i, weight) in self.weights().enumerate() {
            let (decode_s, room, decode_use) = full[i];
            let prompt_tok = asked * traffic.prefill_ratio[i] * traffic.mean_uncached_tok;
            let used = prompt_tok * per_tok_s(&full[i]);
            let behind_s = backlog.after(used.max(decode_use), traffic.bin_s);
            let queue = Queue::new(used, idle_rate, cv, 1.0);
            for (tokens, pairs, share) in traffic.prompts() {
                let own_s =
                    (tokens / room).ceil() * decode_s + linear_s * tokens + pairs * steps.pair_s;
                let slack_s = level.ttft_s - own_s - behind_s - decode_s * slowed[i] / 2.0;
                late += share * weight * queue.longer_than(slack_s);
            }
            if late > enough {
                break;
            }
        }
        1.0 - (1.0 - slow) * (1.0 - late)
    }
}

/// Work that was not done in time, carried from bin to bin.
#[derive(Debug, Default)]
struct Backlog {
    behind_s: f64,
}

impl Backlog {
    /// Returns how far behind the server is after a bin that asks for `used` of its time [s].
    fn after(&mut self, used: f64, bin_s: f64) -> f64 {
        self.behind_s = (self.behind_s + (used - 1.0) * bin_s).max(0.0);
        self.behind_s
    }
}

/// A queue of several servers: Allen and Cunneen's wait with Sakasegawa's chance to wait.
#[derive(Debug, Clone, Copy)]
struct Queue {
    waits: f64,
    decay_per_s: f64,
}

impl Queue {
    /// `rate` is requests a second when nothing idles, `cv` the spread of a request's work.
    fn new(used: f64, rate: f64, cv: f64, servers: f64) -> Self {
        let busy = used.clamp(1e-9, 0.995);
        Self {
            waits: busy.powf((2.0 * (servers + 1.0)).sqrt() - 1.0),
            decay_per_s: 2.0 * (1.0 - busy) * rate / (1.0 + cv * cv),
        }
    }

    /// Returns the chance to wait longer, exponential beyond the chance to wait at all.
    fn longer_than(self, slack_s: f64) -> f64 {
        if slack_s < 0.0 { 1.0 } else { self.waits * (-slack_s * self.decay_per_s).exp() }
    }
}

/// Returns the chance that a normal deviate of that spread exceeds a margin (logistic form).
fn above(margin: f64, spread: f64) -> f64 {
    1.0 / (1.0 + (1.702 * margin / spread).clamp(-50.0, 50.0).exp())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 {
        values[middle]
    } else {
        f64::midpoint(values[middle - 1], values[middle])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backlog_grows_under_overload_and_never_falls_below_nothing() {
        let mut backlog = Backlog::default();
        assert!(backlog.after(0.5, 30.0).abs() < 1e-12);
        assert!((backlog.after(1.5, 30.0) - 15.0).abs() < 1e-12);
        assert!((backlog.after(0.75, 30.0) - 7.5).abs() < 1e-12);
    }

    #[test]
    fn a_queue_waits_more_when_busier_and_less_with_more_servers() {
        let wait = |used, servers| Queue::new(used, 10.0, 1.0, servers).longer_than(0.1);
        assert!(wait(0.9, 1.0) > wait(0.5, 1.0));
        assert!(wait(0.9, 1.0) > wait(0.9, 4.0));
        assert!((Queue::new(0.9, 10.0, 1.0, 1.0).longer_than(-1.0) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn median_of_even_and_odd() {
        assert!((median(vec![3.0, 1.0, 2.0]) - 2.0).abs() < 1e-12);
        assert!((median(vec![4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < 1e-12);
    }
}
