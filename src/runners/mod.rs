//! The parts of a transformer layer that `NumPy` computes slowly.
//!
//! Matrix products stay with `NumPy`'s BLAS; what lies between them would take a dozen passes over
//! memory in `NumPy` and takes one here. Every function works row by row, and a row never looks at
//! another, so that a result does not depend on the number of threads.
//!
//! | module | computes |
//! |---|---|
//! | [`dequant`] | packed GGUF blocks → `f32` weights |
//! | [`norm`] | RMS norm of rows |
//! | [`rope`] | rotary position embedding, both pairings |
//! | [`softmax`] | causal (and windowed) softmax of attention scores |
//! | [`gate`] | `SwiGLU`: `silu(gate) · up` |
//! | [`likelihood`] | log-sum-exp of a row of logits, divergence between two |
//! | [`walsh`] | the power-of-two part of a Hadamard rotation |
//! | [`readout`] | one detector reading: gain, noise, range, converter |

pub mod dequant;
mod exp;
pub mod gate;
mod isa;
pub mod likelihood;
pub mod norm;
pub mod readout;
pub mod rope;
pub mod softmax;
pub mod walsh;
