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
//! | [`session`] | which request waits for which |
//! | [`cache`] | whose prefix is where |
//! | [`speculation`] | how many tokens are drafted, and hold |
//! | [`steps`] | what a step costs |
//! | [`mixed`] | what measured attention costs in a mixed step |
//! | [`fleet`] | what can be simulated |
//! | [`request`] | where a request is in its life |
//! | [`metrics`] | what is counted |
//! | [`timeline`] | who did what when, if asked |
//! | [`governor`] | which pool gets more of the watts |
//! | [`fault`] | what breaks |
//! | [`recovery`] | where requests go then |
//! | [`clock`] | whose event is next |
//!
//! Time and energy are integers. A run of decode steps is one event in closed form and equals its
//! steps bit for bit; `tests/reference/schedule.py` is the same simulation step by step.

mod cache;
mod clock;
mod engine;
mod fault;
mod fleet;
mod governor;
mod idmap;
mod metrics;
mod mixed;
mod recovery;
mod replica;
mod request;
mod router;
mod session;
mod speculation;
mod steps;
mod timeline;

pub use clock::{NEVER, Ps};
pub use engine::{Engine, Stop, Watch};
pub use fault::{Fault, Trouble};
pub use fleet::{
    CacheSpec, Disaggregation, FirstToken, FleetSpec, LinkSpec, Policy, PoolSpec, Role, Routing,
    SglangSpec, TierSpec,
};
pub use governor::GovernorSpec;
pub use metrics::{Counters, Gaps};
pub use mixed::MixedAttention;
pub use request::{Live, Requests, State};
pub use speculation::SpeculationSpec;
pub use steps::StepTable;
pub use timeline::Segment;
