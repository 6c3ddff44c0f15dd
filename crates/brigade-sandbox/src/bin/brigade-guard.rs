//! The guard as a program of its own, for tests and for embedders that do not want to be their own guard.

#[expect(clippy::disallowed_methods, reason = "this is the main function of the guard program")]
fn main() {
    std::process::exit(brigade_sandbox::guard_main());
}
