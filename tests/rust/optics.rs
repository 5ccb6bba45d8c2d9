//! The optical-cycle emulator through its public Rust surface.

use std::sync::atomic::AtomicBool;

use firstlight_core::Error;
use firstlight_core::optics::encode::Encoding;
use firstlight_core::optics::kernel::{Isa, Out, PANEL, Packed8, Packed16, PackedF32, Rows};
use firstlight_core::optics::spec::{Spec, Variance};
use firstlight_core::optics::{Counts, Layer, Run, energy, matmul};
use firstlight_core::rng::{Purpose, Stream, counter};

/// Normal numbers of a name.
fn normals(name: u64, count: usize) -> Vec<f32> {
    let mut out = vec![0.0; count];
    Stream::new(name, Purpose::Detector, [9, 9, 9]).fill_normal(&mut out);
    out
}

fn physical() -> Spec {
    Spec {
        inputs: 256,
        outputs: 96,
        activation_bits: Some(8),
        weight_bits: Some(4),
        adc_bits: Some(8),
        adc_enob: Some(7.0),
        electrons_per_mac: Some(300.0),
        receiver_noise_electrons: 1650.0,
        rin_rms: 0.005,
        crosstalk: [0.01, 0.02],
        mask_contrast_ratio: Some(100.0),
        weight_error_sigma: 0.01,
        source_gain_sigma: 0.005,
        column_gain_sigma: 0.005,
        rail_ratio_sigma: 0.002,
        detector_offset_sigma: 0.002,
        ..Spec::default()
    }
}

struct Case {
    x: Vec<f32>,
    w: Vec<f32>,
    n: usize,
    k: usize,
}

impl Case {
    fn new(tokens: usize, n: usize, k: usize) -> Self {
        Self { x: normals(1, tokens * k), w: normals(2, n * k), n, k }
    }

    fn run(&self, spec: &Spec, isa: Isa, threads: usize, first: u64) -> (Vec<f32>, Counts) {
        let layer = Layer::compile(&self.w, self.n, self.k, spec.clone(), isa);
        let layer = layer.expect("a valid engine");
        run(&layer, &self.x, threads, first)
    }
}

fn run(layer: &Layer, x: &[f32], threads: usize, first_token: u64) -> (Vec<f32>, Counts) {
    let cancel = AtomicBool::new(false);
    let run = Run { seed: 5, layer: 3, first_token, threads, cancel: &cancel };
    let mut y = vec![f32::NAN; x.len() / layer.k * layer.n];
    let counts = matmul(layer, x, &mut y, &run).expect("a valid product");
    (y, counts)
}

fn bits(y: &[f32]) -> Vec<u32> {
    y.iter().map(|v| v.to_bits()).collect()
}

fn scalar() -> Isa {
    Isa::parse("scalar").expect("every machine has the definition")
}

/// Every setting whose numbers must not depend on the machine.
fn settings() -> Vec<(&'static str, Spec)> {
    let base = physical();
    let wide = Spec { weight_error_sigma: 0.001, ..base.clone() };
    vec![
        ("narrow, dithered", base.clone()),
        ("narrow, clean", Spec { weight_error_sigma: 0.0, source_gain_sigma: 0.0, ..base.clone() }),
        ("8-bit mask", Spec { weight_bits: Some(8), ..base.clone() }),
        ("exact variance", Spec { variance: Variance::Exact, ..base.clone() }),
        ("wide", wide.clone()),
        ("12-bit inputs", Spec { activation_bits: Some(12), ..base.clone() }),
        ("real", Spec { weight_bits: None, ..base.clone() }),
        ("slices", Spec { weight_bits: Some(8), mask_bits: Some(4), ..base.clone() }),
        ("bit-serial", Spec { input_slice_bits: Some(2), ..base.clone() }),
        ("previous symbol", Spec { inter_symbol_frac: 0.05, ..base.clone() }),
        ("independent lasers", Spec { is_rin_common: false, ..base.clone() }),
        ("saturation", Spec { saturation: Some(9.0), ..base.clone() }),
        ("few photons", Spec { electrons_per_mac: Some(0.02), ..base.clone() }),
        ("two passes", Spec { encoding: Encoding::TwoPassBalanced, ..base.clone() }),
        ("digital", Spec { encoding: Encoding::TwoPassDigital, ..base.clone() }),
        ("offset input", Spec { encoding: Encoding::OffsetInputBalanced, ..base.clone() }),
        ("offset both", Spec { encoding: Encoding::OffsetBoth, ..base.clone() }),
        ("offset raw", Spec { encoding: Encoding::OffsetBothRaw, ..base.clone() }),
        ("non-negative", Spec { encoding: Encoding::Nonnegative, ..base }),
    ]
}

#[test]
fn every_instruction_set_equals_the_definition_bit_for_bit() {
    let all = Isa::available();
    let names: Vec<_> = all.iter().map(|isa| isa.name()).collect();
    println!("instruction sets that ran: {}", names.join(", "));
    if let Ok(required) = std::env::var("FIRSTLIGHT_REQUIRE_ISA") {
        assert!(names.contains(&required.as_str()), "{required} is required, {names:?} ran");
    }
    for (name, spec) in settings() {
        for (tokens, n, k) in [(1, 1, 1), (3, 33, 257), (13, 97, 515), (66, 130, 70)] {
            let case = Case::new(tokens, n, k);
            let (wanted, wanted_counts) = case.run(&spec, scalar(), 1, 0);
            for &isa in &all {
                let (y, counts) = case.run(&spec, isa, 1, 0);
                assert_eq!(bits(&y), bits(&wanted), "{name} {} {tokens}×{n}×{k}", isa.name());
                assert_eq!(counts, wanted_counts, "{name} {}", isa.name());
            }
        }
    }
}

#[test]
fn sums_are_exact_at_ragged_lengths_and_odd_offsets() {
    let lengths: Vec<usize> = (0..=70).chain([127, 128, 129, 511, 1023, 1024, 1025]).collect();
    for isa in Isa::available() {
        for &inputs in &lengths {
            for rows in [1, 2, 5, 9, 14] {
                check_sums(isa, inputs, rows, inputs % 5);
            }
        }
    }
}

fn check_sums(isa: Isa, inputs: usize, rows: usize, offset: usize) {
    let outputs = 37;
    let draw = Stream::new(1, Purpose::PixelError, [inputs as u64, rows as u64, 0]);
    let stride = inputs.div_ceil(4) * 4 + offset;
    let ldo = 2 * PANEL + offset;
    for (x_max, w_max) in [(255_u32, 7_i32), (255, 15), (255, 31), (255, 64), (127, 127)] {
        let x: Vec<u8> = (0..rows * stride + offset)
            .map(|i| (draw.bits(counter(i)) % (x_max + 1)).to_le_bytes()[0])
            .collect();
        let w: Vec<i8> = (0..outputs * inputs)
            .map(|i| {
                let span = 2 * w_max.cast_unsigned() + 1;
                let value = (draw.bits(1 << 20 | counter(i)) % span).cast_signed() - w_max;
                i8::try_from(value).expect("at most 127")
            })
            .collect();
        let mask = Packed8::new(&w, inputs, x_max.cast_signed());
        let words: Vec<i16> = x.iter().map(|v| i16::from(*v) * 16).collect();
        let wide: Vec<i16> = w.iter().map(|v| i16::from(*v) * 16).collect();
        let mask16 = Packed16::new(&wide, inputs);
        let reals: Vec<f32> = x.iter().map(|v| f32::from(*v) / 7.0).collect();
        let real_w: Vec<f32> = w.iter().map(|v| f32::from(*v) / 3.0).collect();
        let mask_real = PackedF32::new(&real_w, inputs);
        let mut sums = vec![-1; rows * ldo];
        let mut sums16 = vec![-1; rows * ldo];
        let mut sums_real = vec![-1.0; rows * ldo];
        for panel in 0..2 {
            let from = panel * PANEL;
            let data = &x[offset..];
            isa.sum8(
                Rows { data, stride, rows },
                &mask,
                panel,
                Out { data: &mut sums[from..], ldo },
            );
            let data = &words[offset..];
            isa.sum16(
                Rows { data, stride, rows },
                &mask16,
                panel,
                Out { data: &mut sums16[from..], ldo },
            );
            let data = &reals[offset..];
            isa.sum_f64(
                Rows { data, stride, rows },
                &mask_real,
                panel,
                Out { data: &mut sums_real[from..], ldo },
            );
        }
        for row in 0..rows {
            for n in 0..outputs {
                let (mut exact, mut real) = (0_i64, 0.0_f64);
                for k in 0..inputs {
                    let at = offset + row * stride + k;
                    exact += i64::from(x[at]) * i64::from(w[n * inputs + k]);
                    real += f64::from(reals[at]) * f64::from(real_w[n * inputs + k]);
                }
                assert_eq!(i64::from(sums[row * ldo + n]), exact, "{} {inputs}", isa.name());
                assert_eq!(i64::from(sums16[row * ldo + n]), exact * 256, "{}", isa.name());
                assert_eq!(sums_real[row * ldo + n].to_bits(), real.to_bits(), "{}", isa.name());
            }
        }
    }
}

#[test]
fn threads_and_batch_splits_do_not_change_a_bit() {
    let case = Case::new(150, 70, 300);
    for (name, spec) in settings() {
        let layer = Layer::compile(&case.w, case.n, case.k, spec.clone(), Isa::detect().unwrap());
        let layer = layer.unwrap();
        let (whole, counts) = run(&layer, &case.x, 1, 0);
        for threads in [2, 3] {
            let (y, other) = run(&layer, &case.x, threads, 0);
            assert_eq!(bits(&y), bits(&whole), "{name}, {threads} threads");
            assert_eq!((counts.adc_reads, counts.adc_clips), (other.adc_reads, other.adc_clips));
        }
        if spec.inter_symbol_frac > 0.0 {
            continue; // a batch begins in the dark
        }
        let mut parts = Vec::new();
        for (first, last) in [(0, 1), (1, 67), (67, 150)] {
            let x = &case.x[first * case.k..last * case.k];
            parts.extend(run(&layer, x, 1, first as u64).0);
        }
        assert_eq!(bits(&parts), bits(&whole), "{name}, three batches");
    }
}

#[test]
fn counters_equal_the_closed_form() {
    let case = Case::new(10, 130, 600);
    for (name, spec) in settings() {
        let layer = Layer::compile(&case.w, case.n, case.k, spec, scalar()).unwrap();
        let (_, counts) = run(&layer, &case.x, 2, 0);
        let counted = [counts.cycles, counts.reloads, counts.dac_writes, counts.adc_reads];
        assert_eq!(counted, energy::expected(&layer, 10), "{name}");
    }
}

#[test]
fn adding_a_noise_source_does_not_shift_the_others() {
    let case = Case::new(40, 96, 256);
    let quiet = Spec { adc_bits: None, adc_enob: None, rin_rms: 0.0, ..physical() };
    let silent = Spec { electrons_per_mac: None, receiver_noise_electrons: 0.0, ..quiet.clone() };
    let noisy = Spec { rin_rms: 0.02, ..quiet.clone() };
    let laser = Spec { rin_rms: 0.02, ..silent.clone() };
    let y = |spec: &Spec| case.run(spec, scalar(), 1, 0).0;
    let (none, detector, both, rin) = (y(&silent), y(&quiet), y(&noisy), y(&laser));
    for i in 0..none.len() {
        let detector_noise = f64::from(detector[i]) - f64::from(none[i]);
        let again = f64::from(both[i]) - f64::from(rin[i]);
        assert!((detector_noise - again).abs() < 2e-4, "{detector_noise} {again}");
    }
}

#[test]
fn a_raised_flag_stops_a_run() {
    let case = Case::new(100, 64, 64);
    let layer = Layer::compile(&case.w, 64, 64, physical(), scalar()).unwrap();
    let cancel = AtomicBool::new(true);
    let run = Run { seed: 0, layer: 0, first_token: 0, threads: 2, cancel: &cancel };
    let mut y = vec![0.0; 100 * 64];
    assert_eq!(matmul(&layer, &case.x, &mut y, &run), Err(Error::Cancelled));
}

#[test]
fn what_is_wrong_is_named() {
    let isa = scalar();
    let compile = |w: &[f32], n, k, spec: Spec| Layer::compile(w, n, k, spec, isa).unwrap_err();
    let base = Spec::default();
    let text = |error: Error| error.to_string();
    assert!(text(compile(&[], 0, 0, base.clone())).contains("at least one output"));
    assert!(text(compile(&[1.0], 1, 2, base.clone())).contains("(1, 2)"));
    assert!(text(compile(&[1.0, f32::NAN], 2, 1, base.clone())).contains("row 1"));
    assert!(text(compile(&[1.0], 1 << 40, 1 << 40, base.clone())).contains("at most"));
    for (spec, word) in [
        (Spec { inputs: 0, ..base.clone() }, "inputs"),
        (Spec { adc_bits: Some(40), ..base.clone() }, "adc_bits"),
        (Spec { weight_bits: Some(1), ..base.clone() }, "weight_bits"),
        (Spec { rin_rms: f64::NAN, ..base.clone() }, "rin_rms"),
        (Spec { receiver_noise_electrons: -1.0, ..base.clone() }, "receiver_noise_electrons"),
        (Spec { crosstalk: [0.9, 0.0], ..base.clone() }, "crosstalk"),
        (Spec { adc_bits: Some(4), adc_enob: Some(9.0), ..base.clone() }, "adc_enob"),
    ] {
        let message = text(compile(&[1.0], 1, 1, spec));
        assert!(message.contains(word), "{message}");
    }
}
