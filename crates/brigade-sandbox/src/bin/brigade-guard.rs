//! The guard as a separate program, for tests and for embedders that do not act as their own guard.

#[expect(clippy::disallowed_methods, reason = "this is the main function of the guard program")]
fn main() {
    std::process::exit(brigade_sandbox::guard_main());
}
