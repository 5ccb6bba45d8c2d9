//! Light: one optical cycle, the numbers it gives and what it counts.
//!
//! A vector becomes light in `inputs` sources, a mask of `inputs × outputs` pixels weighs it, a
//! lens sums it on `outputs` detectors, once a cycle. The physics, equation by equation:
//!
//! | effect | file |
//! |---|---|
//! | input and output converters: range, bits, rounding | `convert.rs` |
//! | signs on light: which sums are read | `encode.rs` |
//! | mask: levels, response, dark level, pixel errors, stuck pixels, source gain | `mask.rs` |
//! | tiles | `tile.rs` |
//! | the lens: sums over inputs | `kernel/` |
//! | total light without a second product | `light.rs` |
//! | column gain, rails, crosstalk, saturation, previous symbol, reading | `cycle.rs` |
//! | shot, receiver, laser and converter noise | `noise.rs` |
//! | bias and gain calibration, operating point from a sample | `calibrate.rs` |
//! | a matrix on masks | `layer.rs`, `plan.rs` (bytes, words or f64), `scales.rs`, `write.rs`, `columns.rs` |
//! | tokens past masks | `run.rs`, `lane.rs`, `lane_integer.rs`, `lane_real.rs` |
//! | counters | `energy.rs` |

mod calibrate;
mod columns;
pub mod convert;
mod cycle;
pub mod encode;
pub mod energy;
pub mod kernel;
mod lane;
mod lane_integer;
mod lane_real;
mod lanes;
pub mod layer;
mod light;
pub mod mask;
pub mod noise;
pub mod plan;
mod real;
pub mod run;
mod scales;
pub mod spec;
pub mod tile;
mod write;

pub use energy::Counts;
pub use kernel::Isa;
pub use layer::Layer;
pub use run::{Run, matmul};
pub use spec::Spec;
