//! Approval prompts at a terminal, answered there or from another process.

use std::time::Duration;

use brigade_testing::{Script, call, delegate, reply};
use serde_json::json;

use crate::cli::support::Home;
use crate::screen::support::Window;

/// The deepest of four agents requests approval while two others work.
fn deep(busy_ms: u64) -> Script {
    Script::new()
        .agent("lead", [delegate("First", "a").delegate("Busy", "b"), reply("all: {results}")])
        .agent("First", [delegate("Second", "c").delegate("Busy", "d"), reply("first {results}")])
        .agent("Second", [delegate("Third", "e"), reply("second {results}")])
        .agent(
            "Third",
            [
                call("write_file", json!({ "path": "third.txt", "content": "written\nin two lines" })),
                reply("third {results}"),
            ],
        )
        .agent(
            "Busy",
            [
                call("read_file", json!({ "path": "a.txt" })).delay_ms(busy_ms),
                reply("busy").delay_ms(busy_ms),
            ],
        )
}

/// Limits high enough that a running agent never waits for what is lent to one that waits for approval.
const DEPTH_FLAGS: [&str; 8] = [
    "--set",
    "swarm.max_depth=4",
    "--set",
    "swarm.max_concurrent=20",
    "--set",
    "budget.tokens=unlimited",
    "--set",
    "budget.agents=unlimited",
];

/// Agent that wants to run a command.
fn shell(command: &str) -> Script {
    shell_after(0, command)
}

/// Agent that wants to run a command after a pause.
fn shell_after(delay_ms: u64, command: &str) -> Script {
    let call = call("shell", json!({ "command": command })).delay_ms(delay_ms);
    Script::new().turns([call, reply("done: {results}")])
}

/// Types after a prompt has been visible for a moment. Earlier input was meant for something else.
fn answer(window: &Window, keys: &str) {
    std::thread::sleep(Duration::from_millis(600));
    window.press(keys);
}

fn only_session(home: &Home) -> Option<String> {
    let listed = home.brigade(&["--output-format", "json", "sessions", "list"]).json();
    Some(listed[0]["session_id"].as_str()?.to_owned())
}

#[test]
fn approval_is_shown_in_full_and_answered_with_one_key() {
    for (size, name) in [((100, 24), "wide"), ((40, 24), "narrow")] {
        let home = Home::new();
        home.write("work/a.txt", "a");
        let mut window = Window::run(&home, size, deep(200), &DEPTH_FLAGS, &[("NO_COLOR", "1")]);
        let asks = |screen: &str| screen.contains("y allow once") && screen.contains(", 2 do");
        let screen = window.wait_until("asking alone", asks);
        insta::assert_snapshot!(format!("question_{name}"), screen);
        assert!(window.cursor().is_some(), "something can be typed");
        // A key that is not offered does not answer, and neither does Enter.
        answer(&window, "\r");
        answer(&window, "x");
        window.wait_for("'x' is not an answer");
        assert!(!home.work().join("third.txt").exists());
        answer(&window, "y");
        assert_eq!(window.end(), 0, "{}", window.text());
        assert_eq!(std::fs::read_to_string(home.work().join("third.txt")).unwrap(), "written\nin two lines");
        assert!(window.text().contains("all: "), "{}", window.text());
    }
}

#[test]
fn approval_at_depth_three_is_answered_from_another_terminal() {
    let home = Home::new();
    home.write("work/a.txt", "a");
    // The siblings have not finished when the answer arrives.
    let mut window = Window::run(&home, (100, 24), deep(4000), &DEPTH_FLAGS, &[]);
    window.wait_for("y allow once");
    let root = only_session(&home).unwrap();
    let open = home.brigade(&["answer", &root]);
    assert!(
        open.stdout.contains("lead › First › Second › Third wants to write third.txt"),
        "{}",
        open.stdout
    );
    let other = {
        let mut other = Window::start(&home, (90, 20), &["answer", &root], &[]);
        other.wait_for("y allow once");
        answer(&other, "r");
        other.press("that is mine\r");
        assert_eq!(other.end(), 0, "{}", other.text());
        other.text()
    };
    let at_work = |screen: &str| {
        screen.lines().filter(|line| line.contains("Busy") && line.contains("thinking")).count()
    };
    let screen = window.wait_until("answered", |screen| !screen.contains("y allow once"));
    assert_eq!(at_work(&screen), 2, "{screen}");
    assert!(other.contains("third.txt (new file, +2 -0)") && other.contains("+in two lines"), "{other}");
    assert!(other.contains("Third may not write third.txt: that is mine"), "{other}");
    assert_eq!(window.end(), 0, "{}", window.text());
    assert!(window.text().contains("The user denied this"), "{}", window.text());
    assert!(!home.work().join("third.txt").exists());
    let late = home.brigade(&["answer", &root, "yes"]);
    assert_eq!(late.code, 1, "{}", late.stderr);
    assert!(late.stderr.contains("may have been answered already"), "{}", late.stderr);
}

#[test]
fn end_of_a_padded_command_is_on_the_screen() {
    let home = Home::new();
    let command = format!("echo safe{};touch \u{202e}harm\u{200b}\u{1b}[3J", " ".repeat(5000));
    let mut window = Window::run(&home, (60, 20), shell(&command), &[], &[("NO_COLOR", "1")]);
    let screen = window.wait_for("y allow once");
    insta::assert_snapshot!("question_hostile", screen);
    // No rule can match only this call, so it cannot always be allowed.
    answer(&window, "a");
    window.wait_for("No rule can match only this call");
    answer(&window, "r");
    window.press("not like this\r");
    assert_eq!(window.end(), 0, "{}", window.text());
    let text = window.text().replace('\n', " ");
    assert!(text.contains("call: not like this"), "{text}");
    let sent = window.sent();
    assert!(
        !sent.contains('\u{202e}') && !sent.contains('\u{200b}') && !sent.contains("\u{1b}[3J"),
        "{sent:?}"
    );
}

#[test]
fn ctrl_c_at_an_approval_stops_the_run_and_restores_the_terminal() {
    let home = Home::new();
    let mut window = Window::run(&home, (80, 20), shell("touch x"), &[], &[]);
    window.wait_for("y allow once");
    // The first Ctrl-C discards the reason.
    answer(&window, "r");
    window.press("yes but");
    window.wait_for("> yes but");
    window.press("\u{3}");
    window.wait_until("cleared", |screen| !screen.contains("yes but"));
    window.press("\u{3}");
    assert_eq!(window.end(), 130, "{}", window.text());
    assert!(window.is_cooked(), "the terminal is as it was");
    assert!(!home.work().join("x").exists());
}

/// Twenty agents that request approval at once.
fn twenty_approvals() -> Script {
    Script::new()
        .agent("lead", [delegate("W{n}", "{n}").repeat(20), reply("over: {results}")])
        .turns([call("shell", json!({ "command": "touch {task}" })), reply("{results}")])
}

#[test]
fn twenty_approvals_are_queued() {
    let home = Home::new();
    let at_once = ["--set", "swarm.max_concurrent=20", "--set", "budget.tokens=unlimited"];
    let mut window = Window::run(&home, (100, 24), twenty_approvals(), &at_once, &[("NO_COLOR", "1")]);
    window.wait_for("19 more waiting");
    answer(&window, "y");
    window.wait_for("18 more waiting");
    answer(&window, "r");
    window.press("no more of these\r");
    window.wait_for("17 more waiting");
    answer(&window, "\t");
    answer(&window, "Y");
    window.wait_for("Repeat your answer to allow all");
    answer(&window, "Y");
    assert_eq!(window.end(), 0, "{}", window.text());
    assert_eq!(std::fs::read_dir(home.work()).unwrap().count(), 19);
}

#[test]
fn resumed_run_asks_again_after_a_kill() {
    let home = Home::new();
    let mut window = Window::run(&home, (100, 20), shell("touch x"), &[], &[]);
    window.wait_for("y allow once");
    window.signal(rustix::process::Signal::KILL);
    window.end();
    let root = only_session(&home).unwrap();
    let mut window = Window::start(&home, (100, 20), &["resume", &root], &[]);
    window.wait_for("y allow once");
    answer(&window, "a");
    assert_eq!(window.end(), 0, "{}", window.text());
    assert_eq!(window.text().matches("wants to run `touch x`").count(), 1, "{}", window.text());
    assert!(home.work().join("x").exists());
}

#[test]
fn dumb_terminal_reads_answers_line_by_line() {
    let home = Home::new();
    let mut window = Window::run(&home, (80, 20), shell("touch x"), &[], &[("TERM", "dumb")]);
    window.wait_for("y allow once");
    answer(&window, "what?\n");
    window.wait_for("'what?' is not an answer");
    answer(&window, "y\n");
    assert_eq!(window.end(), 0, "{}", window.text());
    assert!(home.work().join("x").exists());
}

#[test]
fn run_without_a_terminal_can_wait_for_brigade_answer() {
    let home = Home::new();
    let model = home.script(shell("touch x"));
    let wait = ["run", "--model", &model, "--set", "permissions.questions=wait", "--mode", "ask", "the task"];
    let run = std::thread::scope(|scope| {
        let run = scope.spawn(|| home.brigade(&wait));
        let root = loop {
            if let Some(root) = only_session(&home) {
                break root;
            }
            assert!(!run.is_finished(), "it waits");
        };
        while home.brigade(&["answer", &root, "yes"]).code != 0 {
            assert!(!run.is_finished(), "it waits");
        }
        run.join().unwrap()
    });
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(
        run.stderr.contains("lead requests approval: shell {\"command\":\"touch x\"} (brigade answer "),
        "{}",
        run.stderr
    );
    assert!(home.work().join("x").exists());
}

#[test]
fn approval_in_a_chat_waits_until_the_message_is_sent() {
    let home = Home::new();
    let script = Script::new()
        .turns([call("shell", json!({ "command": "touch x" })).delay_ms(600), reply("after that: {heard}")]);
    let model = home.script(script);
    let mut window = Window::start(&home, (80, 24), &["chat", "--model", &model], &[("NO_COLOR", "1")]);
    window.wait_for("/help");
    window.press("go on\r");
    window.wait_for("thinking");
    window.press("y");
    let screen = window.wait_for("An agent requests approval. Press Esc to answer.");
    assert!(screen.contains("lead wants to run `touch x`"), "{screen}");
    // The text that was being typed is still a message, not an answer.
    window.press(" it is\r");
    window.wait_for("delivered at the next turn");
    assert!(!home.work().join("x").exists());
    window.press("\u{1b}");
    window.wait_for("y allow once");
    answer(&window, "y");
    window.wait_until("over", |screen| screen.contains("after that: y it is") && !screen.contains(" tok "));
    assert!(home.work().join("x").exists());
    window.press("\u{4}");
    assert_eq!(window.end(), 0, "{}", window.text());
}

#[test]
fn input_typed_before_an_approval_is_discarded() {
    for (term, enter) in [("xterm-256color", "\r"), ("dumb", "\n")] {
        let home = Home::new();
        let mut window = Window::run(&home, (80, 20), shell_after(700, "touch x"), &[], &[("TERM", term)]);
        std::thread::sleep(Duration::from_millis(300));
        window.press("y\n");
        window.wait_for("y allow once");
        window.press(enter);
        window.press(&format!("y{enter}"));
        std::thread::sleep(Duration::from_millis(600));
        assert!(!home.work().join("x").exists(), "{}", window.text());
        window.press(&format!("n{enter}"));
        assert_eq!(window.end(), 0, "{}", window.text());
        assert!(window.text().contains("The user denied this"), "{}", window.text());
        assert!(!home.work().join("x").exists());
    }
}

#[test]
fn approval_times_out_after_stdin_is_closed() {
    let home = Home::new();
    let soon = ["--set", "limits.question_timeout=2s"];
    let mut window = Window::run(&home, (80, 20), shell("touch x"), &soon, &[("TERM", "dumb")]);
    window.wait_for("y allow once");
    window.press("\u{4}");
    assert_eq!(window.end(), 0, "{}", window.text());
    assert!(window.text().contains("call timed out"), "{}", window.text());
}

#[test]
fn agent_cannot_answer_for_the_user() {
    let home = Home::new().with_test_program();
    let brigade = env!("CARGO_BIN_EXE_brigade");
    let answer =
        format!("setsid {brigade} answer last yes all --store {}/sessions.db", home.home().display());
    let script = Script::new().turns([
        call("shell", json!({ "command": "touch x" }))
            .call("shell", json!({ "command": format!("sleep 0.5; {answer}") })),
        reply("{results}"),
    ]);
    let ask = ["--mode", "auto", "--set", "permissions.ask=[\"shell(touch)\"]"];
    let mut window = Window::run(&home, (100, 30), script, &ask, &[]);
    window.wait_for("y allow once");
    std::thread::sleep(Duration::from_millis(1500));
    assert!(!home.work().join("x").exists(), "{}", window.text());
    window.press("n");
    assert_eq!(window.end(), 0, "{}", window.text());
    assert!(window.text().contains("only the user can answer"), "{}", window.text());
    assert!(!home.work().join("x").exists());
}

/// Agent that reads a file and wants to change a line of it.
fn edit() -> Script {
    Script::new().turns([
        call("read_file", json!({ "path": "src/lib.rs" })),
        call(
            "edit_file",
            json!({
                "path": "src/lib.rs",
                "old": "    a - b\n",
                "new": "    // Both are added.\n    a + b\n",
            }),
        ),
        reply("done: {results}"),
    ])
}

const LIB: &str = "/// Adds two numbers.\npub fn add(a: i32, b: i32) -> i32 {\n    a - b\n}\n\n\
                   pub fn twice(a: i32) -> i32 {\n    add(a, a)\n}\n";

#[test]
fn edit_is_shown_as_a_diff_with_the_path_first() {
    for (size, name) in [((100, 24), "wide"), ((60, 24), "narrow")] {
        let home = Home::new();
        std::fs::create_dir(home.work().join("src")).unwrap();
        home.write("work/src/lib.rs", LIB);
        let mut window = Window::run(&home, size, edit(), &[], &[("NO_COLOR", "1")]);
        let screen = window.wait_for("r deny with a reason");
        insta::assert_snapshot!(format!("edit_{name}"), screen);
        answer(&window, "a");
        assert_eq!(window.end(), 0, "{}", window.text());
        let lib = std::fs::read_to_string(home.work().join("src/lib.rs")).unwrap();
        assert!(lib.contains("    // Both are added.\n    a + b\n}"), "{lib}");
    }
}

#[test]
fn diff_lines_are_coloured() {
    let home = Home::new();
    std::fs::create_dir(home.work().join("src")).unwrap();
    home.write("work/src/lib.rs", LIB);
    let mut window = Window::run(&home, (100, 24), edit(), &[], &[]);
    window.wait_for("y allow once");
    let sent = window.sent();
    assert!(sent.contains("\u{1b}[31m-    a - b\u{1b}[0m"), "{sent:?}");
    assert!(sent.contains("\u{1b}[32m+    a + b\u{1b}[0m"), "{sent:?}");
    answer(&window, "n");
    assert_eq!(window.end(), 0, "{}", window.text());
    assert_eq!(std::fs::read_to_string(home.work().join("src/lib.rs")).unwrap(), LIB);
}

#[test]
fn edit_that_would_fail_says_so() {
    let home = Home::new();
    std::fs::create_dir(home.work().join("src")).unwrap();
    home.write("work/src/lib.rs", "something else\n");
    let mut window = Window::run(&home, (100, 24), edit(), &[], &[("NO_COLOR", "1")]);
    let screen = window.wait_for("y allow once");
    assert!(screen.contains("This call would fail: `old` does not occur in `src/lib.rs`"), "{screen}");
    assert!(screen.contains("old:") && screen.contains("a - b"), "the call is shown all the same: {screen}");
    answer(&window, "n");
    assert_eq!(window.end(), 0, "{}", window.text());
}

#[test]
fn long_diff_is_cut_and_can_be_viewed_in_full() {
    for (size, name) in [((100, 24), "wide"), ((60, 24), "narrow")] {
        let home = Home::new();
        let content: String = (1..=200).map(|number| format!("line {number} \u{1b}[3J\n")).collect();
        let script = Script::new().turns([
            call("write_file", json!({ "path": "long.txt", "content": content })),
            reply("done: {results}"),
        ]);
        let mut window = Window::run(&home, size, script, &[], &[("NO_COLOR", "1")]);
        let screen = window.wait_for("v view the whole diff");
        insta::assert_snapshot!(format!("long_diff_{name}"), screen);
        assert!(window.text().contains("long.txt (new file, +200 -0)"), "{}", window.text());
        assert!(!window.text().contains("line 100 "), "{}", window.text());
        answer(&window, "v");
        window.wait_until("nothing is hidden", |screen| !screen.contains("v view"));
        assert!(window.text().contains(r"+line 200 \u{1b}[3J"), "{}", window.text());
        answer(&window, "n");
        assert_eq!(window.end(), 0, "{}", window.text());
        assert!(!window.sent().contains("\u{1b}[3J"));
        assert!(!home.work().join("long.txt").exists());
    }
}

#[test]
fn bell_and_title_announce_an_approval() {
    let home = Home::new();
    let mut window = Window::run(&home, (80, 20), shell("touch x"), &[], &[]);
    window.wait_for("y allow once");
    let title = "\u{1b}]2;? lead wants to run `touch x`\u{1b}\\";
    window.wait_until("called", |_| window.sent().contains('\u{7}') && window.sent().contains(title));
    let (put_aside, taken_back) = ("\u{1b}[22;2t", "\u{1b}[23;2t");
    assert!(window.sent().contains(put_aside) && !window.sent().contains(taken_back));
    answer(&window, "y");
    assert_eq!(window.end(), 0, "{}", window.text());
    let sent = window.sent();
    assert_eq!((sent.matches('\u{7}').count(), sent.matches(put_aside).count()), (1, 1), "{sent:?}");
    assert!(sent.find(taken_back) > sent.find(title), "{sent:?}");
}

#[test]
fn rule_of_an_answer_can_be_edited() {
    let home = Home::new();
    let script = Script::new().turns([
        call("shell", json!({ "command": "touch x" })),
        call("shell", json!({ "command": "touch y" })),
        reply("done"),
    ]);
    let mut window = Window::run(&home, (100, 20), script, &[], &[("NO_COLOR", "1")]);
    window.wait_for("a always allow shell(touch x)");
    answer(&window, "e");
    window.wait_for("> shell(touch x)");
    window.press("\u{15}shell(touch *)\r");
    assert_eq!(window.end(), 0, "{}", window.text());
    assert!(home.work().join("x").exists() && home.work().join("y").exists());
}

#[test]
fn chat_notifies_for_an_approval_and_at_the_end_of_a_round() {
    let home = Home::new();
    let events = home.work().join("events");
    let notify = format!("notify = 'echo $NOTIFY_EVENT $NOTIFY_STATUS >> {}'\n", events.display());
    home.write("home/config.toml", &notify);
    let model = home.script(shell("touch x"));
    let mut window = Window::start(&home, (80, 24), &["chat", "--model", &model], &[("NO_COLOR", "1")]);
    window.wait_for("/help");
    window.press("begin\r");
    window.wait_for("y allow once");
    assert!(window.sent().contains('\u{7}'));
    answer(&window, "y");
    window.wait_until("over", |screen| screen.contains("done: ") && !screen.contains(" tok "));
    answer(&window, "\u{4}");
    assert_eq!(window.end(), 0, "{}", window.text());
    assert_eq!(std::fs::read_to_string(&events).unwrap(), "question\nrun_ended done\n");
}
