//! Picture of the live tree in the guide.

use crate::cli::support::Home;
use crate::screen::drawing::{assert_drawn, still};
use crate::screen::support::Window;

const SIZE: (u16, u16) = (100, 24);
const TASK: &str = "Fix the tests and write a changelog.";
/// Sub-agents may delegate once more. Otherwise the defaults apply.
const DEPTH: &str = "swarm.max_depth=2";

/// One agent is done, one requests approval to run the tests, and one has delegated to another.
const SCRIPT: &str = r#"
[price]
input = 3.0
output = 15.0
[[reply]]
agent = "lead"
turn = 1
delay_ms = 350
usage = { input = 1840, output = 96 }
[[reply.call]]
tool = "list_dir"
[[reply]]
agent = "lead"
turn = 2
delay_ms = 350
usage = { input = 2210, output = 184 }
[[reply.call]]
tool = "delegate"
arguments = { role = "Scout", task = "find what is known" }
[[reply.call]]
tool = "delegate"
arguments = { role = "Fixer", task = "repair it" }
[[reply.call]]
tool = "delegate"
arguments = { role = "Writer", task = "write the changelog" }
[[reply]]
agent = "Scout"
turn = 1
delay_ms = 350
usage = { input = 1190, output = 41 }
[[reply.call]]
tool = "grep"
arguments = { pattern = "TODO" }
[[reply]]
agent = "Scout"
text = "Nothing."
delay_ms = 350
usage = { input = 1420, output = 87 }
[[reply]]
agent = "Fixer"
turn = 1
delay_ms = 350
usage = { input = 1230, output = 38 }
[[reply.call]]
tool = "read_file"
arguments = { path = "price.sh" }
[[reply]]
agent = "Fixer"
turn = 2
delay_ms = 350
usage = { input = 1580, output = 64 }
[[reply.call]]
tool = "message"
arguments = { text = "Found it: price.sh compares with -gt instead of -ge." }
[[reply]]
agent = "Fixer"
turn = 3
delay_ms = 350
usage = { input = 1710, output = 102 }
[[reply.call]]
tool = "edit_file"
arguments = { path = "price.sh", old = "-gt", new = "-ge" }
[[reply]]
agent = "Fixer"
turn = 4
delay_ms = 350
usage = { input = 1890, output = 29 }
[[reply.call]]
tool = "shell"
arguments = { command = "./test.sh" }
[[reply]]
agent = "Writer"
turn = 1
delay_ms = 350
usage = { input = 1205, output = 133 }
[[reply.call]]
tool = "write_file"
arguments = { path = "CHANGELOG.md", content = "Fixed\n" }
[[reply]]
agent = "Writer"
turn = 2
delay_ms = 350
usage = { input = 1420, output = 55 }
[[reply.call]]
tool = "delegate"
arguments = { role = "Proofreader", task = "read the changelog" }
[[reply]]
agent = "Proofreader"
turn = 1
delay_ms = 350
usage = { input = 980, output = 24 }
[[reply.call]]
tool = "read_file"
arguments = { path = "CHANGELOG.md" }
[[reply]]
fault = "hang"
"#;

#[test]
fn live_tree_picture_matches_a_run() {
    let home = Home::new();
    home.write("home/config.toml", &format!("model = '{}'\n", home.script(SCRIPT)));
    home.write("work/price.sh", "[ $1 -gt 10 ]\n");
    let window = Window::start(&home, SIZE, &["run", "--mode", "edit", "--set", DEPTH, TASK], &[]);
    window.wait_until("quiet but for time", |screen| {
        let has = |text: &str| screen.contains(text);
        has("y allow once")
            && has("needs approval: shell")
            && has("thinking, after read_file CHANGELOG.md")
            && has("  done")
    });
    let command = format!("brigade run --mode edit --set {DEPTH} \"{TASK}\"");
    assert_drawn("live-tree.svg", &still("The live tree of a run", &command, &window.cells()));
}
