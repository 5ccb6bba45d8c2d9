//! Randomness by name: (seed, purpose, where) gives the same number in any order, on any machine.
//!
//! A [`Stream`] is a key; [`Stream::bits`] hashes a counter under it. Nothing is consumed, so
//! threads, batch splits and added noise sources cannot shift one another. Every operation is an
//! integer operation or an IEEE `+ − × √`, hence equal bit for bit on every instruction set.

/// What a number is drawn for. Each purpose is its own family of streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Purpose {
    /// Shot, receiver, ENOB and per-source laser noise of one detector reading.
    Detector = 1,
    /// Laser intensity noise common to one optical cycle.
    CommonRin = 2,
    /// Photon counting where the light is too weak for a Gaussian.
    Poisson = 3,
    /// Transmission error of a mask pixel (static).
    PixelError = 4,
    /// Gain of a light source (static).
    SourceGain = 5,
    /// Gain of a detector column (static).
    ColumnGain = 6,
    /// Ratio of the two rails of a column (static).
    RailRatio = 7,
    /// Offset of a detector (static).
    DetectorOffset = 8,
    /// Pixels that do not move (static).
    StuckPixel = 9,
    /// Sources that stay dark (static).
    DeadSource = 10,
    /// Detectors that stay dark (static).
    DeadDetector = 11,
}

/// A keyed family of random numbers, indexed by a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stream {
    first: u32,
    second: u32,
}

/// Returns a position as a counter; positions beyond 2³² start over.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "counters are 32 bits")]
pub fn counter(position: usize) -> u32 {
    position as u32
}

/// The finaliser of `SplitMix64` (Steele, Lea and Flood, OOPSLA 2014).
pub(crate) fn mixed(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

impl Stream {
    /// Returns the stream of `purpose` at `place`, for example (layer, token, tile).
    pub fn new(seed: u64, purpose: Purpose, place: [u64; 3]) -> Self {
        const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
        let mut key = mixed(seed.wrapping_add(GOLDEN));
        for word in [purpose as u64, place[0], place[1], place[2]] {
            key = mixed((key ^ mixed(word.wrapping_add(GOLDEN))).wrapping_add(GOLDEN));
        }
        Self { first: (key >> 32) as u32, second: (key & 0xFFFF_FFFF) as u32 }
    }

    /// Returns 32 uniform bits.
    ///
    /// # Source
    /// The two-multiplication hash found by Wellons' search (bias 0.11), here under two key words.
    #[inline(always)]
    pub fn bits(self, index: u32) -> u32 {
        let mut word = index.wrapping_mul(0x9E37_79B9).wrapping_add(self.first);
        word ^= word >> 16;
        word = word.wrapping_mul(0x21F0_AAAD);
        word ^= word >> 15;
        word ^= self.second;
        word = word.wrapping_mul(0xD35A_2D97);
        word ^ (word >> 15)
    }

    /// Returns a uniform number in (0, 1], on a grid of 2⁻²⁴.
    #[inline(always)]
    pub fn uniform(self, index: u32) -> f32 {
        ((self.bits(index) >> 8) as f32 + 0.5) * (1.0 / 16_777_216.0)
    }

    /// Returns two independent standard normals (Box and Muller, 1958).
    #[inline(always)]
    pub fn normal_pair(self, index: u32) -> [f32; 2] {
        let double = index.wrapping_mul(2);
        let radius = (-2.0 * ln(self.uniform(double))).sqrt();
        let turn = self.bits(double.wrapping_add(1));
        let [cosine, sine] = on_circle(turn);
        [radius * cosine, radius * sine]
    }

    /// Returns the standard normal number `index`.
    ///
    /// Indices are paired at distance 16, so that a block of 32 is two vectors of sixteen.
    pub fn normal(self, index: u32) -> f32 {
        let pair = self.normal_pair((index >> 5) * 16 + (index & 15));
        pair[usize::from(index & 16 != 0)]
    }

    /// Fills `out` with the normals `0..out.len()`; whole blocks of 32 go side by side.
    #[inline(always)]
    pub fn fill_normal(self, out: &mut [f32]) {
        let mut blocks = out.chunks_exact_mut(32);
        let mut base = 0_u32;
        for block in &mut blocks {
            let (cosines, sines) = block.split_at_mut(16);
            for lane in 0..16 {
                let [cosine, sine] = self.normal_pair(base + counter(lane));
                cosines[lane] = cosine;
                sines[lane] = sine;
            }
            base += 16;
        }
        for (lane, value) in blocks.into_remainder().iter_mut().enumerate() {
            *value = self.normal(base * 2 + counter(lane));
        }
    }

    /// Counts photons: a Poisson number of mean `mean`, by the product of uniforms (Knuth).
    ///
    /// `from` is the first counter it may use; `mean` stays below a few hundred.
    pub fn poisson(self, mean: f64, from: u32) -> u32 {
        let floor = exp_neg(mean);
        let mut product = f64::from(self.uniform(from));
        let mut count = 0;
        while product > floor {
            count += 1;
            product *= f64::from(self.uniform(from.wrapping_add(count)));
        }
        count
    }
}

/// Returns ln(x) for positive normal `x`, to 5e-7 of max(1, |ln x|).
///
/// # Source
/// r − r²/2 + r³·P(r) with the minimax polynomial of degree 4 over [√½ − 1, √2 − 1].
#[inline(always)]
fn ln(x: f32) -> f32 {
    let bits = x.to_bits();
    // The mantissa is taken to [√½, √2) so that the polynomial is centred on 1.
    let shifted = bits.wrapping_sub(0x3F35_04F3);
    let exponent = (shifted.cast_signed() >> 23) as f32;
    let mantissa = f32::from_bits((shifted & 0x007F_FFFF).wrapping_add(0x3F35_04F3));
    let r = mantissa - 1.0;
    let square = r * r;
    let mut poly = 0.117_080_34;
    poly = poly * r - 0.184_969_14;
    poly = poly * r + 0.204_938_11;
    poly = poly * r - 0.249_368_67;
    poly = poly * r + 0.333_174_32;
    r + (poly * r * square - 0.5 * square) + exponent * std::f32::consts::LN_2
}

/// Returns the point at `turn`/2³² of the unit circle, up to a fixed rotation.
///
/// The top two bits are the quadrant; the rest an angle in ±π/4, where short minimax polynomials
/// are good to 1e-6.
#[inline(always)]
fn on_circle(turn: u32) -> [f32; 2] {
    let angle = (turn << 2).cast_signed() as f32 * (std::f32::consts::FRAC_PI_2 / 4_294_967_300.0);
    let square = angle * angle;
    let sine = angle + angle * square * (-0.166_628_34 + square * 8.152_99e-3);
    let cosine = 1.0 + square * (-0.499_998_95 + square * (4.165_629e-2 + square * -1.359_78e-3));
    let odd = turn & 0x4000_0000 != 0;
    let (x, y) = if odd { (sine, cosine) } else { (cosine, sine) };
    // Quadrants: (c, s), (−s, c), (−c, −s), (s, −c).
    let flip_y = turn & 0x8000_0000;
    let flip_x = flip_y ^ ((turn << 1) & 0x8000_0000);
    [f32::from_bits(x.to_bits() ^ flip_x), f32::from_bits(y.to_bits() ^ flip_y)]
}

/// Returns e^(−x) for 0 ≤ x ≤ 700 with the same operations everywhere.
fn exp_neg(x: f64) -> f64 {
    let step = -x / 1024.0;
    let mut sum = 1.0;
    for term in (1..=12).rev() {
        sum = 1.0 + sum * step / f64::from(term);
    }
    for _ in 0..10 {
        sum *= sum;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normals(count: usize, place: [u64; 3]) -> Vec<f32> {
        let mut out = vec![0.0; count];
        Stream::new(7, Purpose::Detector, place).fill_normal(&mut out);
        out
    }

    fn moments(values: impl Iterator<Item = f64>) -> [f64; 4] {
        let mut sums = [0.0; 5];
        for v in values {
            for (power, sum) in sums.iter_mut().enumerate() {
                *sum += v.powi(counter(power).cast_signed());
            }
        }
        [1, 2, 3, 4].map(|power| sums[power] / sums[0])
    }

    #[test]
    fn normals_have_the_moments_of_a_gaussian() {
        let all = (0..500).flat_map(|t| normals(2048, [0, t, 3])).map(f64::from);
        let [mean, second, third, fourth] = moments(all);
        // One million draws: three standard errors of each moment.
        assert!(mean.abs() < 3e-3, "{mean}");
        assert!((second - 1.0).abs() < 4.3e-3, "{second}");
        assert!(third.abs() < 1.2e-2, "{third}");
        assert!((fourth - 3.0).abs() < 3e-2, "{fourth}");
    }

    #[test]
    fn neighbours_in_every_coordinate_are_uncorrelated() {
        let dot = |a: &[f32], b: &[f32]| -> f64 {
            a.iter().zip(b).map(|(x, y)| f64::from(x * y)).sum::<f64>() / a.len() as f64
        };
        let n = 1 << 18;
        let base = normals(n, [0, 5, 3]);
        for other in [[1, 5, 3], [0, 6, 3], [0, 5, 4]] {
            assert!(dot(&base, &normals(n, other)).abs() < 4.0 / (n as f64).sqrt());
        }
        for lag in [1, 2, 8, 16, 1024] {
            assert!(dot(&base[lag..], &base[..n - lag]).abs() < 4.2 / (n as f64).sqrt(), "{lag}");
        }
        let squares: Vec<f32> = base.iter().map(|v| v * v - 1.0).collect();
        for lag in [1, 8, 16] {
            assert!(dot(&squares[lag..], &squares[..n - lag]).abs() < 9.0 / (n as f64).sqrt());
        }
    }

    #[test]
    fn a_fill_equals_the_numbers_one_by_one() {
        for len in [0, 1, 7, 8, 15, 16, 17, 31, 33, 70] {
            let stream = Stream::new(7, Purpose::Detector, [0, 1, 2]);
            for (index, value) in normals(len, [0, 1, 2]).iter().enumerate() {
                assert_eq!(value.to_bits(), stream.normal(counter(index)).to_bits());
            }
        }
    }

    #[test]
    fn logarithm_is_that_of_the_library() {
        for k in 1..200_000_u32 {
            let x = k as f32 / 200_000.0;
            let exact = f64::from(x).ln();
            assert!((f64::from(ln(x)) - exact).abs() < 6e-7 * exact.abs().max(1.0), "{x}");
        }
        assert!((f64::from(ln(2.0_f32.powi(-25))) + 25.0 * 2.0_f64.ln()).abs() < 1e-5);
    }

    #[test]
    fn poisson_has_its_mean_and_variance() {
        for mean in [0.3, 4.0, 49.0] {
            let draws = (0..40_000)
                .map(|t| f64::from(Stream::new(1, Purpose::Poisson, [0, t, 0]).poisson(mean, 0)));
            let [first, second, ..] = moments(draws);
            let error = (mean / 40_000.0).sqrt();
            assert!((first - mean).abs() < 4.0 * error, "{first} {mean}");
            let variance = second - first * first;
            assert!((variance / mean - 1.0).abs() < 0.04, "{variance} {mean}");
        }
    }

    #[test]
    fn purposes_do_not_share_numbers() {
        let a = Stream::new(1, Purpose::Detector, [0, 0, 0]);
        let b = Stream::new(1, Purpose::CommonRin, [0, 0, 0]);
        assert_ne!(a, b);
        assert_ne!(a.bits(0), b.bits(0));
    }
}
