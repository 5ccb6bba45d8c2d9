//! Tokens in time: a discrete-event simulation of serving, exact to the picosecond.
//!
//! ```text
//! arrival ─► router ─► Mixed replica ───────────────────────────────► tokens
//!                 └──► Prefill replica ─► link ─► Decode replica ───► tokens
//! ```
//!
//! | file | decides |
//! |---|---|
//! | [`engine`] | what happens next |
//! | [`replica`] | who is in the next step, who is preempted |
//! | [`router`] | which replica takes a request |
//! | [`cache`] | whose prefix is where |
//! | [`steps`] | what a step costs |
//! | [`fleet`] | what can be simulated |
//! | [`request`] | where a request is in its life |
//! | [`metrics`] | what is counted |
//! | [`clock`] | whose event is next |
//!
//! Time and energy are integers. A run of decode steps is one event in closed form and equals its
//! steps bit for bit; `tests/reference/schedule.py` is the same simulation step by step.

mod cache;
mod clock;
mod engine;
mod fleet;
mod idmap;
mod metrics;
mod replica;
mod request;
mod router;
mod steps;

pub use clock::{NEVER, Ps};
pub use engine::{Engine, Stop, Watch};
pub use fleet::{
    CacheSpec, Disaggregation, FirstToken, FleetSpec, LinkSpec, PoolSpec, Role, Routing, TierSpec,
};
pub use metrics::{Counters, Gaps};
pub use request::{Live, Requests, State};
pub use steps::StepTable;
