//! External agents, both well-behaved and hostile. Guards and agents are this test binary.

mod crash;
#[expect(
    clippy::disallowed_methods,
    reason = "an agent is a program of its own: it reads its environment and exits"
)]
mod fixture;
mod hostile;
mod limits;
mod modes;
mod pool;
mod requests;
mod setup;
#[path = "../../brigade/tests/run/support.rs"]
#[expect(dead_code, reason = "not all of the stage is needed here")]
mod support;
mod updates;
