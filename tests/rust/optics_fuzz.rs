//! Any engine, any small operands: an answer or a refusal, never a panic.
//!
//! `PROPTEST_CASES=1000000 cargo test --release --no-default-features optics_fuzz` is the long run.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use firstlight_core::optics::convert::{AdcLevels, Order, Rounding};
use firstlight_core::optics::encode::Encoding;
use firstlight_core::optics::kernel::Isa;
use firstlight_core::optics::spec::{
    AdcRange, InputScale, PixelNoise, RangePer, Spec, Variance, WeightScale,
};
use firstlight_core::optics::tile::TileSplit;
use firstlight_core::optics::{Layer, Run, energy, matmul};
use firstlight_core::rng::{Purpose, Stream, counter};
use proptest::prelude::{Just, ProptestConfig, Strategy, any, prop_oneof};
use proptest::{option, prop_assert, prop_assert_eq, proptest};

fn encoding() -> impl Strategy<Value = Encoding> {
    proptest::sample::select(vec![
        Encoding::FourQuadrantBalanced,
        Encoding::TwoPassBalanced,
        Encoding::TwoPassDigital,
        Encoding::OffsetInputBalanced,
        Encoding::OffsetBoth,
        Encoding::OffsetBothRaw,
        Encoding::Nonnegative,
        Encoding::NonnegativeDigital,
    ])
}

/// A fraction that is often zero, often small, sometimes impossible.
fn frac() -> impl Strategy<Value = f64> {
    prop_oneof![60 => Just(0.0), 60 => 0.0..0.02_f64, 10 => 0.0..0.35_f64, 1 => any::<f64>()]
}

fn positive() -> impl Strategy<Value = f64> {
    prop_oneof![60 => 0.3..20.0_f64, 10 => 1e-6..1e6_f64, 1 => any::<f64>()]
}

fn converters() -> impl Strategy<Value = Spec> {
    let bits = option::of(prop_oneof![30 => 1..16_u32, 1 => 0..20_u32]);
    (
        (1..70_usize, 1..40_usize, encoding(), bits.clone(), option::of(1..14_u32)),
        (option::of(2..17_u32), bits.clone(), bits, option::of(0.5..9.0_f64)),
        (any::<[bool; 4]>(), positive(), proptest::sample::select(vec![0, 1, 2])),
    )
        .prop_map(
            |(
                (inputs, outputs, encoding, activation, slice),
                (weight, mask, adc, enob),
                (flags, range, split),
            )| Spec {
                inputs,
                outputs,
                encoding,
                activation_bits: activation,
                input_slice_bits: slice.filter(|_| flags[0]),
                weight_bits: weight,
                mask_bits: mask,
                adc_bits: adc,
                adc_enob: enob.filter(|_| flags[1]),
                adc_range: if flags[2] { AdcRange::Fixed(range) } else { AdcRange::Sigma(range) },
                adc_range_per: if flags[3] { RangePer::Tile } else { RangePer::Column },
                adc_levels: if flags[0] { AdcLevels::Full } else { AdcLevels::Symmetric },
                order: if flags[1] { Order::ClipThenRound } else { Order::RoundThenClip },
                rounding: if flags[2] { Rounding::NearestEven } else { Rounding::HalfToZero },
                input_scale: if flags[3] { InputScale::AbsMax } else { InputScale::Fixed(range) },
                weight_scale: match (flags[0], flags[2]) {
                    (true, true) => WeightScale::Column,
                    (true, false) => WeightScale::Tile,
                    (false, true) => WeightScale::Matrix,
                    (false, false) => WeightScale::Fixed(range),
                },
                tile_split: [TileSplit::Full, TileSplit::Even, TileSplit::Rounded][split],
                ..Spec::default()
            },
        )
}

fn engine() -> impl Strategy<Value = Spec> {
    (
        converters(),
        (option::of(positive()), positive(), frac(), any::<[bool; 3]>()),
        [frac(), frac(), frac(), frac(), frac(), frac(), frac(), frac(), frac(), frac()],
        (option::of(positive()), prop_oneof![Just(1.0), positive()], frac()),
    )
        .prop_map(|(spec, (light, receiver, rin, flags), f, (extra, gamma, noise))| Spec {
            electrons_per_mac: light,
            receiver_noise_electrons: receiver,
            rin_rms: rin,
            is_rin_common: flags[0],
            is_shot_noise_on: flags[1],
            variance: if flags[2] { Variance::Grouped } else { Variance::Exact },
            weight_error_sigma: f[0],
            source_gain_sigma: f[1],
            column_gain_sigma: f[2],
            rail_ratio_sigma: f[3],
            detector_offset_sigma: f[4],
            crosstalk: [f[5], f[6]],
            stuck_pixel_frac: f[7],
            dead_source_frac: f[8],
            inter_symbol_frac: f[9],
            saturation: extra.filter(|_| flags[0]),
            mask_contrast_ratio: extra.filter(|_| flags[1]),
            mask_gamma: gamma,
            pixel_noise: if noise > 0.01 { PixelNoise::Additive(noise) } else { PixelNoise::Off },
            ..spec
        })
}

fn operands(seed: u64, count: usize, kind: u8) -> Vec<f32> {
    let stream = Stream::new(seed, Purpose::Detector, [1, 2, 3]);
    (0..counter(count))
        .map(|i| match kind {
            1 => stream.normal(i) * 1e-40,
            2 => stream.normal(i) * 1e18,
            3 if i % 7 == 3 => 1000.0,
            4 => 0.0,
            5 => -stream.normal(i).abs(),
            // Any bits at all, NaN and infinity among them.
            6 => f32::from_bits(stream.bits(i)),
            _ => stream.normal(i),
        })
        .collect()
}

/// Cases that ran to the end; the rest were refused.
static ANSWERED: AtomicU64 = AtomicU64::new(0);

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_engine_answers_or_refuses(
        spec in engine(),
        tokens in 0..4_usize,
        n in 1..70_usize,
        k in 1..150_usize,
        seed in any::<u64>(),
        kinds in (0..10_u8, 0..7_u8),
        has_sample in any::<bool>(),
        first_token in any::<u32>(),
    ) {
        let x = operands(seed, tokens * k, kinds.0);
        let w = operands(seed ^ 1, n * k, kinds.1);
        let isa = Isa::detect().unwrap();
        let Ok(layer) = Layer::compile(&w, n, k, spec, isa) else { return Ok(()) };
        let layer = if has_sample {
            match layer.calibrated(&w, &operands(seed ^ 2, 9 * k, kinds.0)) {
                Ok(layer) => layer,
                Err(_) => return Ok(()),
            }
        } else {
            layer
        };
        let cancel = AtomicBool::new(false);
        let first_token = u64::from(first_token);
        let run = Run { seed, layer: 0, first_token, threads: 1, cancel: &cancel };
        let mut y = vec![0.0; tokens * n];
        let Ok(counts) = matmul(&layer, &x, &mut y, &run) else { return Ok(()) };
        let answered = ANSWERED.fetch_add(1, Ordering::Relaxed) + 1;
        if answered.is_multiple_of(50_000) {
            println!("{answered} engines answered");
        }
        let counted = [counts.cycles, counts.reloads, counts.dac_writes, counts.adc_reads];
        prop_assert_eq!(counted, energy::expected(&layer, tokens as u64));
        prop_assert!(counts.adc_clips <= counts.adc_reads);
    }
}
