//! What LLM inference gains when prefill runs on light and decode on silicon.
//!
//! The compiled half of firstlight. It knows nothing of Python except in [`python`], which exists
//! only with the feature of that name; `cargo test --no-default-features` proves it.
//!
//! ```text
//! step times, traffic ──► schedule ──► tokens in time, joules by part
//! ```
//!
//! | module | answers |
//! |---|---|
//! | [`analytic`] | what does one pool of servers carry, by closed form? |
//! | [`runners`] | what do the parts of a real model's layer compute between its matrix products? |
//! | [`optics`] | what does the light path do to the numbers, and what did it count? |
//! | [`rng`] | which random number belongs here? |
//! | [`schedule`] | when does each token come out, and what did it cost in joules? |
//! | [`error`] | who is at fault, what was given, what is allowed? |

pub mod analytic;
pub mod error;
pub mod optics;
pub mod rng;
pub mod runners;
pub mod schedule;

#[cfg(feature = "python")]
mod python;

pub use error::Error;
