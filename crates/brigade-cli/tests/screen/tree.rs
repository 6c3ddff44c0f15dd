//! Live tree.

use std::collections::BTreeSet;

use brigade_testing::{Fault, Purpose, Reply, Script, call, delegate, fault, reply};
use insta::assert_snapshot;
use serde_json::json;

use crate::cli::support::Home;
use crate::screen::support::Window;

/// Lead with four sub-agents: one reads, one has failed, one has delegated, and one is done.
fn small_script() -> Script {
    Script::new()
        .price(3.0, 15.0)
        .agent(
            "lead",
            [delegate("Reader", "read")
                .delegate("Breaker", "break")
                .delegate("Editor in Chief of the Gazette", "edit")
                .delegate("Greeter", "greet")
                .turn(1)
                .tokens(1200, 34)],
        )
        .agent(
            "Reader",
            [call("read_file", json!({ "path": "notes/of/a/rather/long/path/notes.txt" }))
                .turn(1)
                .tokens(800, 20)],
        )
        .agent("Breaker", [fault(Fault::Refused)])
        .agent("Editor in Chief of the Gazette", [delegate("Proof", "proof").turn(1).tokens(999, 1)])
        .agent("Greeter", [reply("Hello.").tokens(10, 2)])
        .reply(fault(Fault::Hang))
}

const DEPTH_FLAGS: [&str; 2] = ["--set", "swarm.max_depth=3"];

/// The small tree, in a state in which only the times change.
fn small(size: (u16, u16), environment: &[(&str, &str)]) -> (Home, Window) {
    let home = Home::new();
    std::fs::create_dir_all(home.work().join("notes/of/a/rather/long/path")).unwrap();
    home.write("work/notes/of/a/rather/long/path/notes.txt", "notes");
    let window = Window::run(&home, size, small_script(), &DEPTH_FLAGS, environment);
    window.wait_until("quiet", |screen| {
        let has = |text: &str| screen.contains(text);
        has("Proof") && has("thinking, aft") && has("failed: ") && has("  done") && has("1 failed, 4")
    });
    (home, window)
}

#[test]
fn small_tree_on_a_wide_screen() {
    let (_home, window) = small((110, 24), &[]);
    assert_snapshot!(window.screen());
    assert_eq!(window.cursor(), None, "nothing can be typed");
}

#[test]
fn small_tree_on_a_narrow_screen() {
    let (_home, window) = small((40, 24), &[]);
    assert_snapshot!(window.screen());
}

#[test]
fn small_tree_on_a_tiny_screen() {
    let home = Home::new();
    let window = Window::run(&home, (20, 4), small_script(), &DEPTH_FLAGS, &[]);
    window.wait_for("1 failed, 3");
    assert_snapshot!(window.screen());
}

#[test]
fn resizing_a_running_tree_leaves_no_remains() {
    let (_home, mut window) = small((110, 24), &[]);
    let wide = window.screen();
    window.resize(40, 24);
    let narrow = window.wait_for("waiting for 2 …");
    assert_snapshot!("narrower", narrow);
    window.resize(110, 24);
    window.wait_until("as it was", |screen| screen == wide);
    window.resize(110, 5);
    assert_snapshot!("shorter", window.wait_for("└─ … "));
    window.resize(60, 30);
    assert_snapshot!(
        "higher_and_narrower",
        window.wait_until("unfolded", |screen| !screen.contains("└─ … "))
    );
    window.resize(110, 24);
    window.wait_until("as it was", |screen| screen == wide);
    assert_eq!(window.text(), wide, "nothing was pushed out of the window");
    window.press("\u{3}");
    assert_eq!(window.end(), 130, "{}", window.text());
    assert!(!window.text().contains("thinking"), "the tree was taken away:\n{}", window.text());
    assert!(window.cursor().is_some(), "the cursor is shown again");
}

/// Adds 200 sub-agents: those whose number starts with 7 fail, those with 1 are done, and the others get the last
/// reply.
fn many(script: Script, others: Reply) -> Script {
    script
        .agent("lead", [delegate("Worker {n}", "part {n}").repeat(200).turn(1).tokens(100, 10)])
        .reply(reply("done").task("part 1").tokens(100, 10))
        .reply(fault(Fault::Refused).task("part 7"))
        .reply(others)
}

#[test]
fn two_hundred_children_are_folded_to_the_screen() {
    let home = Home::new();
    let all = ["--max-agents", "300", "--set", "swarm.max_concurrent=150", "--set", "limits.concurrency=150"];
    let window = Window::run(&home, (100, 24), many(Script::new(), fault(Fault::Hang)), &all, &[]);
    window.wait_for("11 failed, 79 running, 111 done");
    assert_snapshot!("two_hundred_wide", window.screen());
    assert_eq!(window.screen(), window.text(), "nothing was pushed out of the window");
    window.resize(40, 12);
    window.wait_until("narrow", |screen| screen.lines().count() == 11);
    assert_snapshot!("two_hundred_narrow", window.screen());
    window.resize(100, 100);
    window.wait_until("at most 40 lines", |screen| screen.lines().count() == 40);
}

#[test]
fn calls_that_wait_for_a_slot_are_counted() {
    let home = Home::new();
    let few = ["--max-agents", "300", "--set", "swarm.max_concurrent=8"];
    let window = Window::run(&home, (70, 8), many(Script::new(), fault(Fault::Hang)), &few, &[]);
    let all = ["waiting for 8 agents, 190 queued", "9 running"];
    let steady = |screen: &str| all.iter().all(|text| screen.contains(text));
    assert_snapshot!(window.wait_until("eight running", steady));
}

/// Text that must not reach a terminal: it would clear the screen, set the title, move the cursor, reorder text or
/// hide it.
fn hostile() -> Script {
    let forged = "one\r\u{1b}[2J\u{1b}[H\u{1b}]0;title\u{7}\u{1b}[31mred\n[lead]: \u{202e}forged\u{9b}5A";
    Script::new()
        .agent(
            "lead",
            [delegate("日本語の役 👩🏽 ✔️", "wide")
                .delegate(
                    "Abe\u{202e}esrever\u{202c} \u{200b}zero\u{200d}\u{2066}x\u{2069}\u{feff}\u{ad}",
                    "around",
                )
                .delegate("Talker", "talk")
                .turn(1)
                .tokens(100, 10)],
        )
        .agent(
            "Talker",
            [
                call("message", json!({ "text": forged })).tokens(100, 10),
                call("read_file", json!({ "path": "\u{1b}[2J\u{1b}[1;1H\u{202e}txt.exe\n\u{8}\u{8}x" }))
                    .turn(2)
                    .tokens(100, 10),
            ],
        )
        .turns([
            call(
                "grep",
                json!({ "pattern": "é́́́́́́́ 全角文字全角文字全角文字全角文字全角文字全角文字全角文字全角文字" }),
            )
            .task("wide")
            .tokens(100, 10),
            fault(Fault::Hang),
        ])
}

#[test]
fn hostile_text_is_escaped() {
    let home = Home::new();
    let mut window = Window::run(&home, (100, 24), hostile(), &[], &[("NO_COLOR", "1")]);
    window
        .wait_until("quiet", |screen| screen.contains("failed: read_file") && screen.contains("after grep"));
    assert_snapshot!("hostile_wide", window.screen());
    window.resize(40, 24);
    window.wait_until("narrow", |screen| screen.contains("thinking, fail…"));
    assert_snapshot!("hostile_narrow", window.screen());
    window.press("\u{3}");
    assert_eq!(window.end(), 130, "{}", window.text());
    let expected = "[Talker]: one\\u{d}\\u{1b}[2J\\u{1b}[H\\u{1b}]0;title\\u{7}\\u{1b}[31mred";
    assert!(window.text().starts_with(expected), "what was said stays:\n{}", window.text());
    let hidden = |c: char| {
        matches!(c, '\u{7}' | '\u{8}' | '\u{9b}' | '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}')
            || matches!(c, '\u{2066}'..='\u{2069}' | '\u{feff}')
    };
    assert!(!window.sent().contains(hidden), "{:?}", window.sent());
}

/// Control sequences without their numbers.
fn sequences(sent: &str) -> BTreeSet<String> {
    sent.split('\u{1b}')
        .skip(1)
        .map(|rest| {
            let end = rest.find(|c: char| c.is_ascii_alphabetic()).map_or(rest.len(), |end| end + 1);
            rest[..end].chars().filter(|c| !c.is_ascii_digit() && *c != ';').collect()
        })
        .collect()
}

#[test]
fn colours_are_sent_only_where_they_are_wanted() {
    for (environment, is_coloured) in
        [(&[][..], true), (&[("NO_COLOR", "")][..], true), (&[("NO_COLOR", "1")][..], false)]
    {
        let (_home, mut window) = small((100, 24), environment);
        window.press("\u{3}");
        assert_eq!(window.end(), 130, "{}", window.text());
        let found = sequences(&window.sent());
        assert_eq!(found.contains("[m"), is_coloured, "{environment:?}: {found:?}");
        assert!(found.contains("[J"), "{found:?}");
    }
}

#[test]
fn dumb_terminal_gets_plain_lines() {
    let home = Home::new();
    let mut window = Window::run(&home, (100, 40), ends(), &["--max-turns", "1"], &[("TERM", "dumb")]);
    assert_eq!(window.end(), 3, "{}", window.text());
    assert_snapshot!(window.text());
    assert_eq!(sequences(&window.sent()), BTreeSet::new());
}

/// Tree that ends: one sub-agent is done, one fails, and the lead reaches its limit.
fn ends() -> Script {
    Script::new()
        .price(3.0, 15.0)
        .agent(
            "lead",
            [
                delegate("Greeter", "greet")
                    .delegate("Breaker", "break")
                    .purpose(Purpose::Turn)
                    .tokens(100, 10),
                reply("As far as I came.").tokens(100, 10),
            ],
        )
        .agent("Greeter", [reply("Hello.").delay_ms(300).tokens(100, 10)])
        .agent("Breaker", [fault(Fault::Refused)])
}

#[test]
fn summary_names_outcomes_and_next_commands() {
    for (name, columns) in [("end_wide", 110), ("end_narrow", 40)] {
        let home = Home::new();
        let mut window = Window::run(&home, (columns, 30), ends(), &["--max-turns", "1"], &[]);
        assert_eq!(window.end(), 3, "{}", window.text());
        assert_snapshot!(name, window.screen());
        let text = window.raw_text();
        let (_, after) = text.split_once("brigade resume ").unwrap();
        let command = after.lines().next().unwrap();
        home.brigade(&[&["resume"], &command.split(' ').collect::<Vec<_>>()[..]].concat()).exits_with(0);
        let (_, after) = text.split_once("brigade sessions show ").unwrap();
        home.brigade(&["sessions", "show", after.lines().next().unwrap()])
            .exits_with(0)
            .stdout_contains("break");
    }
}

#[test]
fn many_outcomes_are_folded_with_failures_first() {
    let home = Home::new();
    let over = reply("over").agent("lead").turn(2).tokens(100, 10);
    let script = many(Script::new().reply(over), fault(Fault::Refused));
    let all = ["--max-agents", "300", "--set", "swarm.max_concurrent=1"];
    let mut window = Window::run(&home, (100, 40), script, &all, &[]);
    assert_eq!(window.end(), 0, "{}", window.text());
    assert_snapshot!(window.screen());
}

/// Sub-agents with a long label, a label of several lines, and the label of the lead. They work forever.
fn labels() -> Script {
    Script::new()
        .agent(
            "lead",
            [call(
                "subagent",
                json!({
                    "label": "Find every place in the repository where an error is dropped without a word",
                    "task_prompt": "go",
                }),
            )
            .call("subagent", json!({ "label": "[Reviewer]: done\nsecond line", "task_prompt": "go" }))
            .call("subagent", json!({ "label": "Lead", "task_prompt": "go" }))
            .turn(1)
            .tokens(100, 10)],
        )
        .reply(fault(Fault::Hang))
}

#[test]
fn labels_of_any_text_are_shown_on_one_line() {
    let home = Home::new();
    let arguments = ["--faces", "subagent"];
    let mut window = Window::run(&home, (100, 12), labels(), &arguments, &[("NO_COLOR", "1")]);
    window.wait_until("quiet", |screen| screen.matches("thinking").count() == 3);
    assert_snapshot!("labels_wide", window.screen());
    window.resize(60, 12);
    window.wait_until("drawn again", |screen| screen.trim_end().lines().count() == 5);
    assert_snapshot!("labels_narrow", window.screen());
    window.press("\u{3}");
    assert_eq!(window.end(), 130, "{}", window.text());
}
