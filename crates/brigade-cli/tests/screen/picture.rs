//! Picture of the live tree in the guide.

use brigade_testing::{Fault, Script, call, delegate, fault, reply};
use serde_json::json;

use crate::cli::support::Home;
use crate::screen::drawing::{assert_drawn, still};
use crate::screen::support::Window;

const SIZE: (u16, u16) = (100, 24);
const TASK: &str = "Fix the tests and write a changelog.";
/// Sub-agents may delegate once more. Otherwise the defaults apply.
const DEPTH: &str = "swarm.max_depth=2";

/// One agent is done, one requests approval to run the tests, and one has delegated to another.
fn script() -> Script {
    Script::new()
        .price(3.0, 15.0)
        .agent(
            "lead",
            [
                call("list_dir", json!({})).delay_ms(350).tokens(1840, 96),
                delegate("Scout", "find what is known")
                    .delegate("Fixer", "repair it")
                    .delegate("Writer", "write the changelog")
                    .turn(2)
                    .delay_ms(350)
                    .tokens(2210, 184),
            ],
        )
        .agent(
            "Scout",
            [
                call("grep", json!({ "pattern": "TODO" })).delay_ms(350).tokens(1190, 41),
                reply("Nothing.").delay_ms(350).tokens(1420, 87),
            ],
        )
        .agent(
            "Fixer",
            [
                call("read_file", json!({ "path": "price.sh" })).delay_ms(350).tokens(1230, 38),
                call("message", json!({ "text": "Found it: price.sh compares with -gt instead of -ge." }))
                    .delay_ms(350)
                    .tokens(1580, 64),
                call("edit_file", json!({ "path": "price.sh", "old": "-gt", "new": "-ge" }))
                    .delay_ms(350)
                    .tokens(1710, 102),
                call("shell", json!({ "command": "./test.sh", "needs": { "hosts": ["example.com"] } }))
                    .turn(4)
                    .delay_ms(350)
                    .tokens(1890, 29),
            ],
        )
        .agent(
            "Writer",
            [
                call("write_file", json!({ "path": "CHANGELOG.md", "content": "Fixed\n" }))
                    .delay_ms(350)
                    .tokens(1205, 133),
                delegate("Proofreader", "read the changelog").turn(2).delay_ms(350).tokens(1420, 55),
            ],
        )
        .agent(
            "Proofreader",
            [call("read_file", json!({ "path": "CHANGELOG.md" })).turn(1).delay_ms(350).tokens(980, 24)],
        )
        .reply(fault(Fault::Hang))
}

#[test]
fn live_tree_picture_matches_a_run() {
    let home = Home::new();
    home.write("home/config.toml", &format!("model = '{}'\n", home.script(script())));
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
