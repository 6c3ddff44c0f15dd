//! A short soak test. `scripts/soak` runs the same for an hour.

use std::process::Command;

/// Time during which trees are started.
const SECONDS: &str = "25";

#[test]
#[expect(clippy::disallowed_methods, reason = "the test starts the soak")]
fn short_soak_with_faults_ends_every_tree_without_growth() {
    let output = Command::new(env!("CARGO_BIN_EXE_soak")).env("SOAK_SECONDS", SECONDS).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    for fault in ["429", "500", "disconnect", "cut", "malformed", "slow"] {
        assert!(!text.contains(&format!("{fault} 0")), "there was no fault `{fault}`:\n{text}");
    }
}
