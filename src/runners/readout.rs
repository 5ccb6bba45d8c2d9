//! One detector reading: noise, range and converter between a sum of light and a number.
//!
//! This is the converter model of the *published* accuracy studies, in which noise is a share of
//! the converter's full scale. It knows no photons: the optical emulator does. Both are offered
//! because a statement "σ = 0.3 %" can only be checked in the terms in which it was made.

use rayon::prelude::*;

use crate::error::Error;
use crate::runners::isa::dispatched;

/// Where the full scale of a detector's converter lies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Range<'a> {
    /// Chosen before the run: one value for each output.
    Fixed(&'a [f32]),
    /// The largest sum of the same token and tile, times a margin.
    PerToken {
        /// Factor above the largest sum.
        margin: f32,
    },
}

/// What happens to a sum on its way out of the light.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Receiver<'a> {
    /// Full scale of the converter.
    pub range: Range<'a>,
    /// Converter levels a side, 127 for 8 bits; `None` is a converter without steps or limits.
    pub levels: Option<f32>,
    /// Standard deviation of the noise as a share of full scale.
    pub sigma_frac: f32,
    /// Names the noise of this layer and tile; the token is added to it.
    pub key: u64,
    /// Position of the first token, so that a batch may be cut anywhere.
    pub first_token: u64,
}

/// What a readout did, summed over its readings.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Readings {
    /// Readings at or beyond full scale.
    pub clipped: u64,
    /// Σ of squared sums.
    pub signal: f64,
    /// Σ of squared differences between reading and sum.
    pub error: f64,
}

/// Elements whose noise is made at a time; the first half are cosines, the second sines.
const BLOCK: usize = 64;

/// Returns a well-mixed 64-bit number (the finaliser of `SplitMix64`).
const fn mixed(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// Returns a well-mixed 32-bit number (the finaliser of `MurmurHash3`).
#[inline]
const fn mixed_low(value: u32) -> u32 {
    let value = (value ^ (value >> 16)).wrapping_mul(0x85eb_ca6b);
    let value = (value ^ (value >> 13)).wrapping_mul(0xc2b2_ae35);
    value ^ (value >> 16)
}

/// Returns `ln x` of a normal number, to about 1e-6.
///
/// # Source
/// Polynomial of the Cephes library's `logf`.
#[inline(always)] // it must be vectorised inside its caller's loop
fn ln(x: f32) -> f32 {
    /// The bits of √½: below it the mantissa belongs to the next power of two.
    const ROOT_HALF: u32 = 0x3f35_04f3;
    let offset = x.to_bits().wrapping_sub(ROOT_HALF);
    let power = (offset.cast_signed() >> 23) as f32;
    let m = f32::from_bits((offset & 0x007f_ffff) + ROOT_HALF) - 1.0;
    let mut p = 7.037_683_6e-2;
    p = p * m - 1.151_461e-1;
    p = p * m + 1.167_699_87e-1;
    p = p * m - 1.242_014_1e-1;
    p = p * m + 1.424_932_3e-1;
    p = p * m - 1.666_805_7e-1;
    p = p * m + 2.000_071_4e-1;
    p = p * m - 2.499_999_4e-1;
    p = p * m + 3.333_333e-1;
    p * m * m * m - 0.5 * m * m + m + power * std::f32::consts::LN_2
}

dispatched! {
    /// Fills `out` with standard normal numbers that depend on `key` and their index only.
    ///
    /// # Source
    /// Box and Muller 1958; the half-angle forms keep the polynomials on ±π/2.
    fn gaussians(key: u64, out: &mut [f32]) {
        const UNIT: f32 = 1.0 / 16_777_216.0;
        const WORD: u64 = 0xffff_ffff;
        let low = u32::try_from(key & WORD).expect("masked to 32 bits");
        let high = u32::try_from(key >> 32).expect("shifted to 32 bits");
        let mut counter = 0_u32;
        for block in out.chunks_mut(BLOCK) {
            let mut pair = [0.0_f32; BLOCK];
            let (cosines, sines) = pair.split_at_mut(BLOCK / 2);
            for ((cosine, sine), index) in cosines.iter_mut().zip(sines).zip(counter..) {
                let radius_bits = mixed_low(low ^ index.wrapping_mul(0x9e37_79b9)) ^ high;
                let angle_bits = mixed_low(high.wrapping_add(index.wrapping_mul(0x85eb_ca6b)) ^ radius_bits.rotate_left(16));
                let uniform = ((mixed_low(radius_bits) >> 8).cast_signed() as f32 + 0.5) * UNIT;
                let radius = (-2.0 * ln(uniform)).sqrt();
                let half_angle = ((angle_bits >> 8).cast_signed() as f32 * UNIT - 0.5) * std::f32::consts::PI;
                let square = half_angle * half_angle;
                let s = half_angle * (1.0 + square * (-1.666_666_6e-1 + square * (8.333_331e-3
                    + square * (-1.984_08e-4 + square * (2.752_4e-6 - square * 2.39e-8)))));
                let c = 1.0 + square * (-0.5 + square * (4.166_666_6e-2 + square * (-1.388_888_9e-3
                    + square * (2.480_16e-5 + square * (-2.755_7e-7 + square * 2.087_6e-9)))));
                *cosine = radius * (1.0 - 2.0 * s * s);
                *sine = radius * (2.0 * s * c);
            }
            block.copy_from_slice(&pair[..block.len()]);
            counter = counter.wrapping_add(u32::try_from(BLOCK / 2).expect("small"));
        }
    }
}

dispatched! {
    /// Returns the largest magnitude of a row.
    fn peak(sums: &[f32]) -> f32 {
        let mut top = [0.0_f32; 16];
        for chunk in sums.chunks(16) {
            for (top, sum) in top.iter_mut().zip(chunk) {
                let size = sum.abs();
                *top = if size > *top { size } else { *top };
            }
        }
        top.iter().copied().fold(0.0, f32::max)
    }
}

dispatched! {
    /// Reads one row: `sums` become readings, in the same unit.
    fn read(sums: &mut [f32], full_scales: &[f32], noise: &[f32], sigma_frac: f32, levels: Option<f32>) -> Readings {
        let mut done = Readings::default();
        // An array at a time keeps the sums of squares in vector registers and their order fixed.
        for ((sums, full_scales), noise) in sums.chunks_mut(BLOCK).zip(full_scales.chunks(BLOCK)).zip(noise.chunks(BLOCK)) {
            let (mut signal, mut error, mut clipped) = ([0.0_f32; 8], [0.0_f32; 8], [0_u32; 8]);
            for ((sums, full_scales), noise) in sums.chunks_mut(8).zip(full_scales.chunks(8)).zip(noise.chunks(8)) {
                for (lane, ((sum, full_scale), noise)) in sums.iter_mut().zip(full_scales).zip(noise).enumerate() {
                    let mut value = *sum + sigma_frac * full_scale * noise;
                    if let Some(levels) = levels {
                        // Adding and taking away 1.5·2²³ rounds to the nearest even integer.
                        let code = (value * (levels / full_scale)).clamp(-levels, levels);
                        let code = (code + 12_582_912.0) - 12_582_912.0;
                        value = code * (full_scale / levels);
                        clipped[lane] += u32::from(code.abs() >= levels);
                    }
                    let miss = value - *sum;
                    signal[lane] += *sum * *sum;
                    error[lane] += miss * miss;
                    *sum = value;
                }
            }
            done.signal += f64::from(signal.iter().sum::<f32>());
            done.error += f64::from(error.iter().sum::<f32>());
            done.clipped += u64::from(clipped.iter().sum::<u32>());
        }
        done
    }
}

/// Reads `sums`, `(tokens, outputs)`, in place.
///
/// # Errors
/// [`Error::Shape`] when the rows do not fit; [`Error::Range`] when a full scale, a margin or the
/// number of levels is not positive, or the noise is negative.
pub fn readout(
    sums: &mut [f32],
    outputs: usize,
    receiver: &Receiver<'_>,
) -> Result<Readings, Error> {
    if outputs == 0 || !sums.len().is_multiple_of(outputs) {
        return Err(Error::shape("sums", sums.len(), format!("rows of {outputs}")));
    }
    match receiver.range {
        Range::Fixed(full_scales) if full_scales.len() != outputs => {
            return Err(Error::shape("full_scales", full_scales.len(), outputs));
        }
        Range::Fixed(full_scales) => {
            if let Some(bad) =
                full_scales.iter().find(|scale| !(**scale > 0.0 && scale.is_finite()))
            {
                return Err(Error::range("full scale", bad, "positive"));
            }
        }
        Range::PerToken { margin } if !(margin > 0.0 && margin.is_finite()) => {
            return Err(Error::range("margin", margin, "positive"));
        }
        Range::PerToken { .. } => {}
    }
    if receiver.levels.is_some_and(|levels| !(1.0..=4_194_303.0).contains(&levels)) {
        return Err(Error::range("levels", receiver.levels.unwrap_or(f32::NAN), "1 to 4194303"));
    }
    if !(receiver.sigma_frac >= 0.0 && receiver.sigma_frac.is_finite()) {
        return Err(Error::range("sigma_frac", receiver.sigma_frac, "0 or more"));
    }
    let rows: Vec<Readings> = sums
        .par_chunks_mut(outputs)
        .enumerate()
        .with_min_len(8)
        .map_init(
            || (vec![0.0_f32; outputs], vec![0.0_f32; outputs]),
            |(noise, own), (index, sums)| {
                let token = receiver.first_token.wrapping_add(index as u64);
                if receiver.sigma_frac > 0.0 {
                    gaussians(mixed(receiver.key ^ mixed(token)), noise);
                }
                let full_scales: &[f32] = match receiver.range {
                    Range::Fixed(full_scales) => full_scales,
                    Range::PerToken { margin } => {
                        own.fill((peak(sums) * margin).max(f32::MIN_POSITIVE));
                        own
                    }
                };
                read(sums, full_scales, noise, receiver.sigma_frac, receiver.levels)
            },
        )
        .collect();
    Ok(rows.iter().fold(Readings::default(), |sum, row| Readings {
        clipped: sum.clipped + row.clipped,
        signal: sum.signal + row.signal,
        error: sum.error + row.error,
    }))
}

#[cfg(test)]
mod tests {
    use super::{Range, Receiver, gaussians, ln, mixed, readout};

    const QUIET: Receiver<'_> = Receiver {
        range: Range::PerToken { margin: 1.0 },
        levels: None,
        sigma_frac: 0.0,
        key: 7,
        first_token: 0,
    };

    #[test]
    fn logarithms_agree_with_the_standard_library() {
        for step in 1_u16..2_000 {
            let x = f32::from(step) * 5e-4;
            assert!((ln(x) - x.ln()).abs() < 2e-6, "ln({x})");
        }
    }

    #[test]
    fn noise_is_standard_normal_and_rows_are_independent() {
        let n = 1 << 16;
        let (mut a, mut b) = (vec![0.0_f32; n], vec![0.0_f32; n]);
        gaussians(mixed(1), &mut a);
        gaussians(mixed(2), &mut b);
        let mean =
            |f: &dyn Fn(usize) -> f32| (0..n).map(|i| f64::from(f(i))).sum::<f64>() / n as f64;
        // Five standard errors of each moment.
        assert!(mean(&|i| a[i]).abs() < 5.0 / 256.0);
        assert!((mean(&|i| a[i].powi(2)) - 1.0).abs() < 5.0 * 1.42 / 256.0);
        assert!((mean(&|i| a[i].powi(4)) - 3.0).abs() < 5.0 * 9.8 / 256.0);
        assert!(mean(&|i| a[i] * b[i]).abs() < 5.0 / 256.0);
        assert!(mean(&|i| a[i] * a[(i + 32) % n]).abs() < 5.0 / 256.0);
        assert!(mean(&|i| a[i] * a[(i + 1) % n]).abs() < 5.0 / 256.0);
    }

    #[test]
    fn without_noise_and_steps_a_reading_is_the_sum() {
        let mut sums = vec![0.5, -3.25, 7.0, 0.0];
        let done = readout(&mut sums, 2, &QUIET).unwrap();
        assert_eq!(sums, [0.5, -3.25, 7.0, 0.0]);
        assert_eq!((done.clipped, done.error.to_bits()), (0, 0));
    }

    #[test]
    fn a_sum_beyond_full_scale_is_clipped_and_counted() {
        let mut sums = vec![0.4, 9.0];
        let full_scales = [1.0, 2.0];
        let receiver = Receiver { range: Range::Fixed(&full_scales), levels: Some(127.0), ..QUIET };
        let done = readout(&mut sums, 2, &receiver).unwrap();
        assert!((sums[0] - 51.0 / 127.0).abs() < 1e-6 && (sums[1] - 2.0).abs() < 1e-6);
        assert_eq!(done.clipped, 1);
    }

    #[test]
    fn a_batch_cut_in_two_reads_the_same_bits() {
        let whole: Vec<f32> = (0_u8..120).map(|i| f32::from(i) * 0.1 - 6.0).collect();
        let full_scales = [8.0; 12];
        let noisy = |first_token| Receiver {
            range: Range::Fixed(&full_scales),
            levels: Some(127.0),
            sigma_frac: 0.02,
            key: 3,
            first_token,
        };
        let mut once = whole.clone();
        readout(&mut once, 12, &noisy(5)).unwrap();
        let mut twice = whole;
        let (first, second) = twice.split_at_mut(48);
        readout(first, 12, &noisy(5)).unwrap();
        readout(second, 12, &noisy(9)).unwrap();
        assert_eq!(once, twice);
    }

    #[test]
    fn impossible_receivers_are_refused() {
        let zero = [0.0; 2];
        assert!(
            readout(&mut [0.0; 2], 2, &Receiver { range: Range::Fixed(&zero), ..QUIET }).is_err()
        );
        assert!(readout(&mut [0.0; 2], 2, &Receiver { levels: Some(0.0), ..QUIET }).is_err());
        assert!(readout(&mut [0.0; 2], 2, &Receiver { sigma_frac: -1.0, ..QUIET }).is_err());
        assert!(readout(&mut [0.0; 3], 2, &QUIET).is_err());
    }
}
