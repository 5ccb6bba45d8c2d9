//! How fast light is: a layer's vectors past its masks, without Python.
//!
//! `cargo bench --no-default-features --bench optical_cycle`
//!
//! Every line is the best of several runs, for each instruction set of the machine.

#![expect(clippy::print_stdout, reason = "a benchmark prints")]

use std::sync::atomic::AtomicBool;

use firstlight_core::optics::{Isa, Layer, Run, Spec, matmul};
use firstlight_core::rng::{Purpose, Stream};

const TOKENS: usize = 256;
const SIDE: usize = 2048;

fn main() {
    let (x, w) = (normals(1, TOKENS * SIDE), normals(2, SIDE * SIDE));
    println!("{:28}{:>9}{:>12}{:>14}", "setting", "isa", "best", "GMAC/s");
    for (name, spec) in settings() {
        for isa in Isa::available().into_iter().filter(|isa| isa.name() != "scalar") {
            let layer = Layer::compile(&w, SIDE, SIDE, spec.clone(), isa).expect("a valid engine");
            report(name, &layer, &x);
        }
    }
}

fn settings() -> [(&'static str, Spec); 4] {
    let quiet = Spec {
        activation_bits: Some(8),
        weight_bits: Some(4),
        adc_bits: Some(8),
        ..Spec::default()
    };
    let physics = Spec {
        adc_enob: Some(7.0),
        electrons_per_mac: Some(400.0),
        receiver_noise_electrons: 1650.0,
        rin_rms: 0.0047,
        crosstalk: [0.01; 2],
        mask_contrast_ratio: Some(100.0),
        ..quiet.clone()
    };
    let specimen = Spec { weight_error_sigma: 0.01, source_gain_sigma: 0.005, ..physics.clone() };
    let wide = Spec { weight_error_sigma: 0.001, ..physics.clone() };
    [
        ("no noise, 8 x 4", quiet),
        ("full physics, 8 x 4", physics),
        ("pixel errors, narrow mask", specimen),
        ("pixel errors, wide mask", wide),
    ]
}

#[expect(clippy::disallowed_methods, reason = "a benchmark reads the wall clock")]
fn report(name: &str, layer: &Layer, x: &[f32]) {
    let cancel = AtomicBool::new(false);
    let run = Run { seed: 1, layer: 0, first_token: 0, threads: 1, cancel: &cancel };
    let mut y = vec![0.0; TOKENS * SIDE];
    let mut best = f64::INFINITY;
    for _ in 0..8 {
        let started = std::time::Instant::now();
        let counts = matmul(layer, x, &mut y, &run).expect("a valid product");
        best = best.min(started.elapsed().as_secs_f64());
        assert_eq!(counts.adc_reads, (TOKENS * SIDE * layer.k_tiles()) as u64);
    }
    let rate = (TOKENS * SIDE * SIDE) as f64 / best / 1e9;
    println!("{name:28}{:>9}{:>9.1} ms{rate:>14.1}", layer.isa.name(), best * 1e3);
}

fn normals(name: u64, count: usize) -> Vec<f32> {
    let mut out = vec![0.0; count];
    Stream::new(name, Purpose::Detector, [0; 3]).fill_normal(&mut out);
    out
}
