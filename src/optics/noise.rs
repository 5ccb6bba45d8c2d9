//! Noise of a detector reading: shot, receiver, laser intensity, converter.
//!
//! All variances are in units of light² (one unit: a full-scale source through a fully open pixel),
//! with N₀ the electrons of one unit:
//!
//! | source | variance | correlated over |
//! |---|---|---|
//! | shot | L / N₀, with L the **total** light of both detectors | nothing |
//! | receiver | (σₑ / N₀)² | nothing |
//! | laser, common | r²·D² | the cycle |
//! | laser, one a source | r²·Σ(v·T)² | nothing (a column's own draw) |
//! | converter (ENOB) | (4^(bits − ENOB) − 1)/12 steps² | nothing |
//!
//! What is independent in a reading is one draw of the summed variance, which is the same law.

use crate::rng::{Purpose, Stream, counter};

/// Where in a run a reading is: the key of its noise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Seed of the run.
    pub seed: u64,
    /// Number of the layer.
    pub layer: u64,
    /// Number of the token, counted over the whole stream.
    pub token: u64,
    /// Number of the tile and reading inside the layer.
    pub reading: u64,
}

impl Place {
    /// Returns the numbers of one purpose at this place.
    #[inline(always)]
    pub fn stream(self, purpose: Purpose) -> Stream {
        Stream::new(self.seed, purpose, [self.layer, self.token, self.reading])
    }
}

/// Random errors that hold for a whole layer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Noise {
    /// N₀: electrons of one unit of light; infinite when light is unlimited.
    pub electrons: f64,
    /// Shot variance of one unit of light, 1/N₀; 0 switches shot noise off.
    pub shot: f64,
    /// Whether any reading draws a number of its own.
    pub is_on: bool,
    /// Common intensity noise of a cycle (rms).
    pub common_rin: f64,
    /// Light below which photons are counted one by one, in units of light.
    pub poisson_below: f64,
}

impl Noise {
    /// Returns what the laser's common noise multiplies one cycle by.
    #[inline(always)]
    pub fn laser_gain(&self, place: Place) -> f64 {
        if self.common_rin > 0.0 {
            1.0 + self.common_rin * f64::from(place.stream(Purpose::CommonRin).normal(0))
        } else {
            1.0
        }
    }

    /// Counts the photons of a weakly lit reading; returns the deviation from its mean light.
    ///
    /// `plus` and `minus` are the light of its two detectors.
    pub fn counted(&self, place: Place, column: usize, plus: f64, minus: f64) -> f64 {
        let stream = place.stream(Purpose::Poisson);
        // Each detector has half of a block of 4,096 counters: far more than it can use.
        let from = counter(column).wrapping_mul(4096);
        let count = |light: f64, from: u32| {
            let mean = light.max(0.0) * self.electrons;
            f64::from(stream.poisson(mean, from)) - mean
        };
        (count(plus, from) - count(minus, from.wrapping_add(2048))) / self.electrons
    }
}

/// Electrons one reading must collect for a signal-to-noise ratio, receiver noise included.
///
/// With κ = Σ|x||w| / rms(y): SNR = (N/κ)² / (N + σ²), solved for N.
pub fn electrons_for_snr(snr: f64, kappa: f64, receiver_electrons: f64) -> f64 {
    let shot = kappa * kappa * snr;
    let thermal = receiver_electrons * receiver_electrons;
    f64::midpoint(shot, (shot * shot + 4.0 * shot * thermal).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn photons_for_a_ratio_reach_it() {
        let (snr, kappa, receiver) = (1000.0, 20.4, 1650.0);
        let n = electrons_for_snr(snr, kappa, receiver);
        let reached = (n / kappa).powi(2) / (n + receiver * receiver);
        assert!((reached / snr - 1.0).abs() < 1e-12);
        // Shot only: SNR = N/κ².
        assert!((electrons_for_snr(snr, kappa, 0.0) - snr * kappa * kappa).abs() < 1e-6);
    }

    #[test]
    fn counted_photons_have_the_variance_of_both_detectors() {
        let noise =
            Noise { electrons: 10.0, shot: 0.1, is_on: true, common_rin: 0.0, poisson_below: 5.0 };
        let draws: Vec<f64> = (0..20_000)
            .map(|token| {
                let place = Place { seed: 3, layer: 0, token, reading: 0 };
                noise.counted(place, 5, 1.5, 0.5)
            })
            .collect();
        let mean = draws.iter().sum::<f64>() / 20_000.0;
        let variance = draws.iter().map(|d| d * d).sum::<f64>() / 20_000.0;
        assert!(mean.abs() < 4.0 * (0.2_f64 / 20_000.0).sqrt(), "{mean}");
        assert!((variance / 0.2 - 1.0).abs() < 0.04, "{variance}");
    }
}
