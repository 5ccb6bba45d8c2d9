//! Light without its own product: what an average input sends, and what stands out of it.
//!
//! The light of column n is L = Σ a·b, with a = |v| what an input sends and b what its pixel passes.
//! A vector's inputs fall in two parts. The *group* is taken at one level ℓ, the mean of its a, so
//! that its light is ℓ times what the column's pixels pass together, which is known before any
//! light comes. The inputs that stand out are summed one by one, with what they send beyond ℓ:
//!
//! ```text
//! L ≈ ℓ·Σ b + Σ over what stands out of (a − ℓ)·b
//! ```
//!
//! What is neglected, Σ over the group of (a − ℓ)·b, has mean zero over the columns by the choice
//! of ℓ. Its rms follows from how the pixels of an input differ between columns: independently, or
//! together along [`RANK`] directions. Inputs join those that stand out until the rms, over the
//! columns of the layer and relative to their light, is below [`LIMIT`].

use crate::optics::kernel::{Few, Isa, PANEL, Work};
use crate::optics::lanes::{LANES, below, dot, folded, in_lanes};
use crate::optics::real::Real;
use crate::rng::counter;

/// Largest predicted error of the grouped light, rms over columns.
///
/// The mean magnitude of a normal error is 0.8 of its rms, here 1.6 %. The rest up to 2 % is for
/// pixels that depend on each other in more than [`RANK`] ways.
const LIMIT: f32 = 0.02;

/// Directions in which the pixels of different inputs are taken to depend on each other.
const RANK: usize = 4;

/// Fewest inputs of a tile that are grouped. Of fewer so many stand out that to sum all of them one by
/// one takes no longer with AVX-512, and is exact.
pub(crate) const LEAST_INPUTS: usize = 768;

/// Most columns that the statistics are taken from.
const SAMPLE: usize = 1024;

/// Trials of a larger part that stands out, before all inputs are summed one by one.
const ATTEMPTS: usize = 8;

/// Relative variance of the columns' light up to which it counts as even.
const EVEN: f64 = 0.03;

/// Share of the inputs that may stand out before all are summed one by one.
const MOST: f64 = 0.5;

/// What the columns of a layer have in common, input by input of one K-tile; the last lanes are
/// padded with zeros.
#[derive(Debug)]
pub(crate) struct Grouping {
    inputs: usize,
    /// Mean over columns of b/Σb.
    mean: Vec<[f32; LANES]>,
    /// Σ of `mean`.
    mean_sum: f32,
    /// Mean square over columns of b/Σb, less its mean.
    whole: Vec<[f32; LANES]>,
    /// The part of `whole` that lies in no direction.
    alone: Vec<[f32; LANES]>,
    /// Directions, as long as their rms over columns.
    directions: [Vec<[f32; LANES]>; RANK],
    /// Unit of the excess, so that a few products fit 16 bits.
    step: i16,
}

/// Columns to take statistics from, `(columns, inputs)`, while a layer is compiled.
#[derive(Debug)]
pub(crate) struct Sample {
    inputs: usize,
    every: usize,
    rows: Vec<f32>,
}

impl Sample {
    /// Expects `columns` columns of `inputs` pixels.
    pub(crate) fn new(columns: usize, inputs: usize) -> Self {
        Self { inputs, every: columns.div_ceil(SAMPLE).max(1), rows: Vec::new() }
    }

    /// Takes column `index`, if it is one of the sample, normalised to one.
    pub(crate) fn add(&mut self, index: usize, open: &[f64]) {
        let sum: f64 = open.iter().sum();
        if index.is_multiple_of(self.every) && sum > 0.0 {
            self.rows.extend(open.iter().map(|b| f32::of(b / sum)));
        }
    }

    /// Returns the statistics; `is_fine` masks leave the excess less room.
    pub(crate) fn grouping(mut self, isa: Isa, is_fine: bool) -> Grouping {
        let inputs = self.inputs;
        let columns = (self.rows.len() / inputs).max(1);
        let share = 1.0 / columns as f32;
        let mut mean = vec![0.0; inputs];
        for row in self.rows.chunks_exact(inputs) {
            for (m, b) in mean.iter_mut().zip(row) {
                *m += b * share;
            }
        }
        let mut whole = vec![0.0; inputs];
        for row in self.rows.chunks_exact_mut(inputs) {
            for ((b, m), square) in row.iter_mut().zip(&mean).zip(&mut whole) {
                *b -= m;
                *square += *b * *b * share;
            }
        }
        let directions = self.directions(isa, share);
        let mut alone = whole.clone();
        for direction in &directions {
            for (rest, d) in alone.iter_mut().zip(direction) {
                *rest = (*rest - d * d).max(0.0);
            }
        }
        Grouping {
            inputs,
            mean_sum: mean.iter().sum(),
            mean: in_lanes(&mean),
            whole: in_lanes(&whole),
            alone: in_lanes(&alone),
            directions: directions.map(|d| in_lanes(&d)),
            step: if is_fine { 2 } else { 1 },
        }
    }

    /// Finds the directions of largest variance, by subspace iteration.
    fn directions(&self, isa: Isa, share: f32) -> [Vec<f32>; RANK] {
        let inputs = self.inputs;
        let columns = self.rows.len() / inputs;
        // Columns themselves are a start inside the space.
        let mut found: [Vec<f32>; RANK] = std::array::from_fn(|r| {
            let row = (columns * r / RANK) * inputs;
            self.rows.get(row..row + inputs).map_or_else(|| vec![0.0; inputs], <[f32]>::to_vec)
        });
        for _ in 0..4 {
            orthonormal(&mut found);
            found = isa.run(Iteration { rows: &self.rows, inputs, found: &found });
        }
        // After the last iteration each is its own image: variance times unit vector.
        for direction in &mut found {
            let length = dot(direction, direction).sqrt().sqrt();
            let scale = if length > 0.0 { f64::from(share).sqrt() / length } else { 0.0 };
            for d in direction.iter_mut() {
                *d *= f32::of(scale);
            }
        }
        found
    }
}

/// Makes vectors orthogonal and of length one; those that depend on earlier ones vanish.
fn orthonormal(vectors: &mut [Vec<f32>; RANK]) {
    for r in 0..RANK {
        let (before, rest) = vectors.split_at_mut(r);
        let vector = &mut rest[0];
        let original = dot(vector, vector);
        for other in before {
            let along = f32::of(dot(vector, other));
            for (v, o) in vector.iter_mut().zip(other.iter()) {
                *v -= along * o;
            }
        }
        let left = dot(vector, vector);
        let scale = if left > 1e-9 * original { f32::of(left.sqrt().recip()) } else { 0.0 };
        for v in vector.iter_mut() {
            *v *= scale;
        }
    }
}

/// One product with the covariance of the columns (not divided by their number).
struct Iteration<'a> {
    rows: &'a [f32],
    inputs: usize,
    found: &'a [Vec<f32>; RANK],
}

impl Work for Iteration<'_> {
    type Output = [Vec<f32>; RANK];

    #[inline(always)]
    fn call(self) -> Self::Output {
        let mut next: [Vec<f32>; RANK] = std::array::from_fn(|_| vec![0.0; self.inputs]);
        for row in self.rows.chunks_exact(self.inputs) {
            for (vector, image) in self.found.iter().zip(&mut next) {
                let along = f32::of(dot(row, vector));
                for (place, b) in image.iter_mut().zip(row) {
                    *place += along * b;
                }
            }
        }
        next
    }
}

/// How the light of one vector is summed.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Split {
    /// Level of the group.
    pub(crate) level: f32,
    /// What one unit of excess stands for.
    pub(crate) step: i16,
    /// Inputs that stand out, in the list of the block.
    pub(crate) first: usize,
    pub(crate) last: usize,
    /// Whether every input is summed by itself.
    pub(crate) is_whole: bool,
}

/// Inputs that stand out, vector after vector, with what they send beyond the level, in units of
/// [`Split::step`].
#[derive(Debug, Default)]
pub(crate) struct Outstanding {
    inputs: Vec<u32>,
    excess: Vec<i8>,
    sent: Vec<[f32; LANES]>,
    beyond: Vec<[f32; LANES]>,
    weights: Vec<[f32; LANES]>,
}

/// One value an input; the last lanes are padded.
type Lanes = [[f32; LANES]];

impl Outstanding {
    /// Forgets all vectors.
    pub(crate) fn clear(&mut self) {
        self.inputs.clear();
        self.excess.clear();
    }

    /// Takes in what the inputs of a vector send.
    #[inline(always)]
    fn receive(&mut self, light: &[u8], chunks: usize) {
        for lanes in [&mut self.sent, &mut self.beyond, &mut self.weights] {
            lanes.resize(chunks, [0.0; LANES]);
        }
        self.weights.fill([0.0; LANES]);
        let n = chunks * LANES;
        let (light, sent) = (&light[..n], &mut self.sent.as_flattened_mut()[..n]);
        for i in 0..n {
            sent[i] = f32::from(light[i]);
        }
    }
}

impl Grouping {
    /// Splits one vector; `light` holds what its inputs send, 0 to 127.
    pub(crate) fn split(&self, isa: Isa, light: &[u8], out: &mut Outstanding) -> Split {
        isa.run_in_eights(Splitting { grouping: self, light, out })
    }
}

struct Splitting<'a> {
    grouping: &'a Grouping,
    light: &'a [u8],
    out: &'a mut Outstanding,
}

impl Work for Splitting<'_> {
    type Output = Split;

    #[inline(always)]
    fn call(self) -> Split {
        let all = self.grouping;
        let first = self.out.inputs.len();
        let none = Split { step: 1, first, last: first, ..Split::default() };
        self.out.receive(self.light, all.mean.len());
        let Outstanding { sent, beyond, weights, .. } = &mut *self.out;
        let [total, share] = all.group(sent, f32::INFINITY, weights);
        if total <= 0.0 {
            return none;
        }
        let limit = (f64::from(LIMIT) * total).powi(2);
        let mut level = f32::of(total / share);
        all.weigh(sent, level, beyond, weights);
        let [error, ..] = all.error(beyond, f32::INFINITY, weights);
        if error <= limit {
            return Split { level, ..none };
        }
        let mut budget = limit;
        for _ in 0..ATTEMPTS {
            let least = threshold(weights, budget);
            let [group, share] = all.group(sent, least, weights);
            level = if share > 0.0 { f32::of(group / share) } else { 0.0 };
            all.shift(sent, level, beyond);
            let [error, apart] = all.error(beyond, least, weights);
            // Where what stands out makes columns differ, some have little but the group's light.
            let is_even = apart < EVEN * total * total;
            let limit = if is_even { limit } else { limit.min((f64::from(LIMIT) * group).powi(2)) };
            if error <= limit {
                return self.list(level, least, first, limit);
            }
            budget *= (0.9 * limit / error).min(0.9);
            all.weigh(sent, level, beyond, weights);
        }
        self.list(0.0, 0.0, first, limit)
    }
}

impl Splitting<'_> {
    /// Lists the inputs whose weight is `least` or more; all of them when they are too many.
    #[inline(always)]
    fn list(self, level: f32, least: f32, first: usize, limit: f64) -> Split {
        let count = self.grouping.inputs;
        let Outstanding { inputs, excess, weights, .. } = &mut *self.out;
        let weights = &weights.as_flattened()[..count];
        let find = |least: f32, inputs: &mut Vec<u32>| {
            // Without a branch: the place moves on only past what is found.
            inputs.resize(first + count + 1, 0);
            let mut last = first;
            for (input, &weight) in weights.iter().enumerate() {
                inputs[last] = counter(input);
                last += usize::from(weight >= least);
            }
            inputs.truncate(last);
        };
        find(least, inputs);
        let is_whole = (inputs.len() - first) as f64 > MOST * count as f64;
        if is_whole {
            inputs.truncate(first);
            find(0.0, inputs);
        }
        let level = if is_whole { 0.0 } else { level };
        // Coarse steps only where the half unit they lose is little beside what the group may lose.
        let whole = self.grouping.whole.as_flattened();
        let listed: f64 = inputs[first..].iter().map(|i| f64::from(whole[*i as usize])).sum();
        let is_coarse = !is_whole && 0.5 * listed < 0.05 * limit;
        let step = if is_coarse { self.grouping.step } else { 1 };
        let shift = u32::from(step > 1);
        #[expect(clippy::cast_possible_truncation, reason = "at most 127")]
        let whole_level = (level + 0.5) as i16;
        let means = &self.grouping.mean.as_flattened()[..count];
        // What rounding the excess leaves is the group's, on average.
        let mut rounded = 0.0_f32;
        for &input in &inputs[first..] {
            let a = i16::from(self.light[input as usize]);
            // Halves go up at every other input.
            let up = i16::from(input % 2 == 0) & i16::from(shift > 0);
            let units = (a - whole_level + up) >> shift;
            rounded += (f32::from(units * step) - (f32::from(a) - level)) * means[input as usize];
            #[expect(clippy::cast_possible_truncation, reason = "within ±127")]
            excess.push(units as i8);
        }
        if inputs.len() % 2 == 1 {
            // Kernels take pairs.
            inputs.push(0);
            excess.push(0);
        }
        let level = level - rounded / self.grouping.mean_sum.max(f32::MIN_POSITIVE);
        Split { level, step, first, last: inputs.len(), is_whole }
    }
}

impl Grouping {
    /// Σ a·mean and Σ mean of the inputs whose weight is below `least`.
    #[inline(always)]
    fn group(&self, sent: &Lanes, least: f32, weights: &Lanes) -> [f64; 2] {
        let n = self.mean.len();
        let (mean, sent, weights) = (&self.mean[..n], &sent[..n], &weights[..n]);
        let mut sums = [[0.0_f32; LANES]; 2];
        for chunk in 0..n {
            for lane in 0..LANES {
                let mean = below(weights[chunk][lane], least, mean[chunk][lane]);
                sums[0][lane] += sent[chunk][lane] * mean;
                sums[1][lane] += mean;
            }
        }
        sums.map(folded)
    }

    /// Writes what each input sends beyond the level.
    #[inline(always)]
    fn shift(&self, sent: &Lanes, level: f32, beyond: &mut Lanes) {
        let n = self.mean.len() * LANES;
        let (sent, beyond) = (&sent.as_flattened()[..n], &mut beyond.as_flattened_mut()[..n]);
        for i in 0..n {
            beyond[i] = sent[i] - level;
        }
    }

    /// The same, and the squared error that each input would make in the group.
    #[inline(always)]
    fn weigh(&self, sent: &Lanes, level: f32, beyond: &mut Lanes, weights: &mut Lanes) {
        self.shift(sent, level, beyond);
        let n = self.mean.len() * LANES;
        let (whole, beyond) = (&self.whole.as_flattened()[..n], &beyond.as_flattened()[..n]);
        let weights = &mut weights.as_flattened_mut()[..n];
        for i in 0..n {
            weights[i] = beyond[i] * beyond[i] * whole[i];
        }
    }

    /// Predicts the squared error of the group's light, in units of b/Σb, and what the weights of
    /// the others add up to.
    #[inline(always)]
    fn error(&self, beyond: &Lanes, least: f32, weights: &Lanes) -> [f64; 2] {
        let n = self.mean.len();
        let [d0, d1, d2, d3] = [0, 1, 2, 3].map(|r| &self.directions[r][..n]);
        let (alone, beyond, weights) = (&self.alone[..n], &beyond[..n], &weights[..n]);
        let mut sums = [[0.0_f32; LANES]; RANK + 2];
        for chunk in 0..n {
            for lane in 0..LANES {
                let weight = weights[chunk][lane];
                let beyond = below(weight, least, beyond[chunk][lane]);
                sums[0][lane] += beyond * d0[chunk][lane];
                sums[1][lane] += beyond * d1[chunk][lane];
                sums[2][lane] += beyond * d2[chunk][lane];
                sums[3][lane] += beyond * d3[chunk][lane];
                sums[4][lane] += beyond * beyond * alone[chunk][lane];
                sums[5][lane] += weight - below(weight, least, weight);
            }
        }
        let [s0, s1, s2, s3, alone, apart] = sums.map(folded);
        [alone + (s0 * s0 + s1 * s1) + (s2 * s2 + s3 * s3), apart]
    }
}

/// Returns the largest of some thresholds below which weights sum to no more than `budget`.
#[inline(always)]
fn threshold(weights: &Lanes, budget: f64) -> f32 {
    // One weight alone may use the budget up, or all may share it evenly: between the two.
    let mut high = f32::of(budget);
    let mut low = high / (weights.len() * LANES) as f32;
    for _ in 0..5 {
        let middle = (low * high).sqrt();
        let mut sums = [0.0_f32; LANES];
        for chunk in weights {
            for lane in 0..LANES {
                sums[lane] += below(chunk[lane], middle, chunk[lane]);
            }
        }
        if folded(sums) <= budget { low = middle } else { high = middle }
    }
    low
}

/// Pixels whose light may be summed for a few inputs: `[panel][input][column]`.
#[derive(Debug)]
pub(crate) struct PackedLight {
    data: Vec<u8>,
    inputs: usize,
    /// Largest value.
    top: usize,
}

impl PackedLight {
    /// Packs `mask`, `(columns, inputs)` in 0 to 127.
    pub(crate) fn new(mask: &[i8], inputs: usize) -> Self {
        let columns = mask.len() / inputs.max(1);
        let mut data = vec![0; columns.div_ceil(PANEL) * inputs * PANEL];
        for (n, row) in mask.chunks_exact(inputs.max(1)).enumerate() {
            let panel = &mut data[n / PANEL * inputs * PANEL..][..inputs * PANEL];
            for (line, value) in panel.chunks_exact_mut(PANEL).zip(row) {
                line[n % PANEL] = value.unsigned_abs();
            }
        }
        let top = usize::from(data.iter().copied().max().unwrap_or(0)).max(1);
        Self { data, inputs, top }
    }

    /// Sums the excess light of one vector over the columns of a panel.
    pub(crate) fn sum(
        &self,
        isa: Isa,
        panel: usize,
        split: Split,
        all: &Outstanding,
        out: &mut [i32],
    ) {
        let size = self.inputs * PANEL;
        let few = split.first..split.last;
        let few = Few {
            panel: &self.data[panel * size..][..size],
            inputs: &all.inputs[few.clone()],
            factors: &all.excess[few],
            // So many pairs of products fit 16 bits together.
            depth: 32_767 / (2 * self.top * if split.step > 1 { 64 } else { 127 }),
        };
        isa.sum_few(few, &mut out[..PANEL]);
    }

    /// Asks for the pixels of a panel, which are read here and there.
    pub(crate) fn fetch(&self, isa: Isa, panel: usize) {
        let size = self.inputs * PANEL;
        isa.fetch(&self.data[panel * size..][..size]);
    }

    /// Memory of the mask [byte].
    pub(crate) fn bytes(&self) -> usize {
        self.data.len()
    }
}
