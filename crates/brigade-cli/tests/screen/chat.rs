//! `brigade chat` at a terminal.

use brigade_testing::{Fault, Script, call, delegate, fault, reply};
use serde_json::json;

use crate::cli::support::{Home, text};
use crate::screen::support::Window;

pub(crate) fn echo() -> Script {
    Script::new().reply("turn {turn}: {heard}")
}

/// Reply that never arrives.
pub(crate) fn hanging_reply() -> Script {
    Script::new().turns([fault(Fault::Hang), reply("turn {turn}: {heard}")])
}

/// Command that runs until a file exists.
fn waiting_command() -> Script {
    Script::new().turns([
        call("shell", json!({ "command": "while [ ! -e go ]; do sleep 0.05; done" })),
        reply("heard: {heard}"),
    ])
}

const UP: &str = "\u{1b}[A";
const LEFT: &str = "\u{1b}[D";
pub(crate) const CTRL_C: &str = "\u{3}";
const CTRL_D: &str = "\u{4}";
const ALT_ENTER: &str = "\u{1b}\r";

pub(crate) fn chat(
    home: &Home,
    size: (u16, u16),
    script: impl std::fmt::Display,
    arguments: &[&str],
) -> Window {
    let model = home.script(script);
    let window =
        Window::start(home, size, &[&["chat", "--model", &model], arguments].concat(), &[("NO_COLOR", "1")]);
    window.wait_for("/help");
    window.wait_for("\n>");
    window
}

/// Waits until the input line is empty and nothing is below it.
#[track_caller]
pub(crate) fn wait_for_idle(window: &Window) -> String {
    window.wait_until("idle", |screen| screen.ends_with("\n\n>") || screen == ">")
}

#[track_caller]
pub(crate) fn expect_exit(mut window: Window, code: i32) -> String {
    assert_eq!(window.end(), code, "{}", window.text());
    let sent = window.sent();
    assert!(
        sent.rfind("\u{1b}[?2004l") > sent.rfind("\u{1b}[?2004h"),
        "the terminal is given back: {sent:?}"
    );
    assert!(window.cursor().is_some());
    window.text()
}

/// Resizes the window while no output is pending. Any terminal would garble output for the old size that arrives
/// after the change.
fn resize(window: &Window, columns: u16, rows: u16) {
    use rustix::process::Signal;
    window.signal(Signal::STOP);
    let mut sent = String::new();
    while sent != window.sent() {
        sent = window.sent();
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    window.resize(columns, rows);
    window.signal(Signal::CONT);
}

/// Exits when no agent is running any more.
#[track_caller]
pub(crate) fn quit(window: Window) -> String {
    wait_for_idle(&window);
    window.press(CTRL_D);
    expect_exit(window, 0)
}

#[test]
fn chat_can_be_continued_later() {
    let home = Home::new();
    let window = chat(
        &home,
        (80, 20),
        Script::new().turns([reply("# Title\n\n- **one**\n- two"), reply("turn {turn}: {heard}")]),
        &[],
    );
    window.press("hello\r");
    window.wait_for("- two");
    wait_for_idle(&window);
    window.press("and more\r");
    window.wait_for("turn 2: and more");
    let text = quit(window);
    assert!(
        text.contains("> hello\n\nTitle\n\n- one\n- two\n\n> and more\n\nturn 2: and more\n\n"),
        "{text}"
    );
    assert!(text.ends_with("Resume: brigade chat -r ##########################"), "{text}");

    let again = Window::start(&home, (80, 20), &["chat", "-c"], &[("NO_COLOR", "1")]);
    let screen = again.wait_for("/help");
    assert!(screen.starts_with("> hello\n\nTitle\n"), "what was said is shown: {screen}");
    again.press("third\r");
    again.wait_for("turn 3: third");
    wait_for_idle(&again);
    again.press("/quit\r");
    expect_exit(again, 0);
}

#[test]
fn message_typed_while_running_is_read_at_the_next_turn() {
    let home = Home::new();
    let window = chat(&home, (80, 20), waiting_command(), &["--mode", "auto"]);
    window.press("go\r");
    window.wait_for("shell while [");
    window.press("hurry up\r");
    window.wait_for("(delivered at the next turn)");
    home.write("work/go", "");
    let screen = window.wait_for("heard: hurry up");
    assert!(screen.contains("· shell while"), "{screen}");
    let screen = wait_for_idle(&window);
    assert!(!screen.contains(" tok "), "no tree is shown while nobody works: {screen}");
    quit(window);
}

#[test]
fn message_typed_during_the_last_reply_is_answered() {
    let home = Home::new();
    let window = chat(
        &home,
        (80, 20),
        Script::new().turns([reply("first").delay_ms(1500), reply("turn {turn}: {heard}")]),
        &[],
    );
    window.press("go\r");
    window.press("late\r");
    window.wait_for("turn 2: late");
    quit(window);
}

#[test]
fn ctrl_c_stops_the_round_and_the_chat_continues() {
    let home = Home::new();
    let window = chat(&home, (80, 20), hanging_reply(), &[]);
    window.press("go\r");
    window.wait_for("thinking");
    window.press("half a line");
    window.wait_for("> half a line");
    window.press(CTRL_C);
    let screen = window.wait_until("the line is empty", |screen| !screen.contains("half"));
    assert!(screen.contains("thinking"), "only the line was cleared: {screen}");
    window.press(CTRL_C);
    window.wait_for("stopped by the user");
    window.press("and now\r");
    window.wait_for("and now\n\nturn");
    wait_for_idle(&window);
    window.press(CTRL_C);
    window.wait_for("Press Ctrl-C again to quit.");
    window.press(CTRL_C);
    expect_exit(window, 0);
}

#[test]
fn ctrl_c_twice_leaves_a_running_round() {
    let home = Home::new();
    let window = chat(&home, (80, 20), hanging_reply(), &[]);
    window.press("go\r");
    window.wait_for("thinking");
    window.press(CTRL_C);
    window.press(CTRL_C);
    let text = expect_exit(window, 130);
    assert!(text.contains("Resume: brigade chat -r "), "{text}");
}

#[test]
fn sigterm_restores_the_terminal() {
    let home = Home::new();
    let window = chat(&home, (80, 20), hanging_reply(), &[]);
    window.press("go\r");
    window.wait_for("thinking");
    window.signal(rustix::process::Signal::TERM);
    let text = expect_exit(window, 130);
    assert!(!text.contains("thinking"), "{text}");
    let idle = chat(&home, (80, 20), hanging_reply(), &[]);
    idle.signal(rustix::process::Signal::TERM);
    expect_exit(idle, 0);
}

#[test]
fn messages_can_have_several_lines() {
    let home = Home::new();
    let window = chat(&home, (80, 20), echo(), &[]);
    window.press(&format!("one{ALT_ENTER}two\nthree\\\rfour"));
    window.wait_for("> one\n  two\n  three\n  four");
    window.press(&format!("{UP}{UP}{UP}!\r"));
    window.wait_for("turn 1: one!\ntwo\nthree\nfour".split('\n').next().unwrap());
    wait_for_idle(&window);
    window.press("\u{1b}[200~pasted\r\nlines\u{7}\n\u{1b}[201~");
    window.wait_for("> pasted\n  lines");
    window.press("\r");
    window.wait_for("turn 2: pasted");
    quit(window);
}

#[test]
fn input_history_is_recalled() {
    let home = Home::new();
    let window = chat(&home, (80, 20), echo(), &[]);
    window.press("first\r");
    window.wait_for("turn 1: first");
    wait_for_idle(&window);
    window.press(" secret\r");
    window.wait_for("turn 2:  secret");
    wait_for_idle(&window);
    window.press(&format!("draft{UP}"));
    window.wait_for("\n> first");
    window.press("\u{1b}[B");
    window.wait_for("\n> draft");
    window.press(CTRL_C);
    quit(window);
    let again = chat(&home, (80, 20), echo(), &[]);
    again.press(&format!("{UP}{LEFT}{LEFT}\u{1}x\r"));
    again.wait_for("turn 1: xfirst");
    quit(again);
    assert_eq!(text(home.home().join("chat-history")), "\"first\"\n\"xfirst\"\n");
}

#[test]
fn narrow_window_shows_long_and_wide_input() {
    let home = Home::new();
    let window = chat(&home, (40, 16), echo(), &[]);
    window.press("日本語の入力は幅が二倍なので折り返しが必要です");
    let screen = window.wait_for("必要です");
    assert!(screen.ends_with("> 日本語の入力は幅が二倍なので折り返し\n  が必要です"), "{screen}");
    assert_eq!(window.cursor().map(|(column, _)| column), Some(12));
    window.press("\u{1b}[H");
    window.press("\r");
    window.wait_for("turn 1: 日本語");
    wait_for_idle(&window);
    window.press("0123456789012345678901234567890123456789");
    window.wait_for("> 012345678901234567890123456789012345\n  6789");
    resize(&window, 60, 16);
    window.wait_for("\n> 0123456789012345678901234567890123456789");
    resize(&window, 30, 16);
    let screen = window.wait_for("\n> 01234567890123456789012345\n  67890123456789");
    assert_eq!(screen.matches("> 0123").count(), 1, "{screen}");
    window.press(CTRL_C);
    quit(window);
}

#[test]
fn tree_and_the_line_survive_a_resize() {
    let home = Home::new();
    let script = Script::new()
        .agent("lead", [delegate("Reader", "read").delegate("Writer", "write").turn(1)])
        .reply(fault(Fault::Hang));
    let window = chat(&home, (100, 20), script, &[]);
    window.press("go\r");
    window.wait_for("Writer");
    window.press("typed");
    window.wait_for("> typed");
    for ((columns, rows), has_tokens, has_turns) in
        [((40, 20), false, false), ((120, 30), true, true), ((60, 8), true, false), ((100, 12), true, true)]
    {
        resize(&window, columns, rows);
        let screen = window.wait_until("drawn", |screen| {
            let numbers = (screen.contains(" tok "), screen.contains(" turns "));
            numbers == (has_tokens, has_turns) && screen.ends_with("\n> typed") && screen.contains("Writer")
        });
        assert_eq!(screen.matches("> typed").count(), 1, "{screen}");
        assert_eq!(screen.matches("├─ Reader").count(), 1, "{screen}");
    }
    window.press(&format!("{CTRL_C}{CTRL_C}"));
    window.wait_for("stopped by the user");
    quit(window);
}

#[test]
fn model_cannot_control_the_terminal() {
    let home = Home::new();
    let hostile = "before \u{1b}[2J\u{1b}]0;title\u{7} after &#27;[3J `\u{9b}2J`\n\n```\n\u{1b}c\n```\n\nend";
    let script = Script::new().reply(reply(hostile).chunks(7));
    let window = chat(&home, (80, 20), script, &[]);
    window.press("go\r");
    let screen = window.wait_for("\nend");
    assert!(
        screen.contains("before \\u{1b}[2J\\u{1b}]0;title\\u{7} after \\u{1b}[3J `\\u{9b}2J`"),
        "{screen}"
    );
    assert!(screen.contains("    \\u{1b}c"), "{screen}");
    let sent = window.sent();
    for sequence in ["\u{1b}[2J", "\u{1b}]0;", "\u{1b}[3J", "\u{9b}", "\u{1b}c", "\u{7}"] {
        assert!(!sent.contains(sequence), "{sequence:?}");
    }
    quit(window);
}

#[test]
fn text_is_streamed_and_a_cut_reply_is_retried() {
    let home = Home::new();
    let script = Script::new()
        .reply(
            reply("A first part.\n\nA second part that is")
                .fault(Fault::Cut)
                .attempt(1)
                .chunks(12)
                .chunk_delay_ms(300),
        )
        .reply("whole");
    let window = chat(&home, (80, 20), script, &[]);
    window.press("go\r");
    window.wait_until("partly written", |screen| {
        screen.contains("A second") && !screen.contains("part that is")
    });
    let screen = window.wait_for("\nwhole");
    let expected = "A first part.\n\nA second part that is\n\n(the reply was cut off; retrying)\n\nwhole";
    assert!(screen.contains(expected), "{screen}");
    quit(window);
}

/// Sub-agent that runs in the background while the lead waits for another.
fn background() -> Script {
    Script::new()
        .agent(
            "lead",
            [
                call("delegate", json!({ "role": "Scout", "task": "look", "background": true })),
                delegate("Security Auditor", "wait"),
                reply("over: {heard}"),
            ],
        )
        .agent("Scout", [reply("All is quiet.\nMore.")])
        .agent(
            "Security Auditor",
            [call("echo", json!({ "text": "x" })).delay_ms(3000), fault(Fault::Hang).turn(2)],
        )
}

#[test]
fn background_children_are_announced_and_children_can_be_messaged() {
    let home = Home::new();
    let window = chat(&home, (80, 24), background(), &["--set", "delegation.extras=[\"background\"]"]);
    window.press("go\r");
    window.wait_for("Scout is done: All is quiet.");
    window.wait_for("Security Auditor ");
    window.press("/tell security auditor hurry\r");
    window.wait_for("reads the message at its next turn");
    window.press("/tell Nobody x\r");
    window.wait_for("no agent is named 'Nobody'");
    window.wait_for("after echo");
    window.press("/tree\r");
    window.wait_for("total");
    window.press("/stop Security Auditor\r");
    window.wait_for("Stopping ");
    window.wait_for("over: ");
    quit(window);
    let list = home.brigade(&["sessions", "list", "--output-format", "json"]).json();
    let child = format!("{}.2-0", list[0]["session_id"].as_str().unwrap());
    home.brigade(&["sessions", "show", &child])
        .exits_with(0)
        .stdout_contains("hurry")
        .stdout_contains("cancelled");
}

#[test]
fn detached_child_is_announced_while_the_chat_is_idle() {
    let home = Home::new();
    let script = Script::new()
        .agent(
            "lead",
            [
                call("delegate", json!({ "role": "Scout", "task": "look", "background": "detach" })),
                reply("over"),
            ],
        )
        .agent(
            "Scout",
            [call("shell", json!({ "command": "while [ ! -e go ]; do sleep 0.05; done" })).turn(1)],
        )
        .reply("All is quiet.");
    let extras = ["--mode", "auto", "--set", "delegation.extras=[\"background\"]"];
    let window = chat(&home, (80, 24), script, &extras);
    window.press("go\r");
    window.wait_for("Scout continues in the background as ");
    window.press("half");
    window.wait_until("idle", |screen| screen.ends_with("\n> half"));
    home.write("work/go", "");
    let screen = window.wait_for("Scout is done: All is quiet.");
    assert!(screen.ends_with("> half"), "what is typed stays: {screen}");
    window.press(&format!("{CTRL_C}{CTRL_D}"));
    expect_exit(window, 0);
}

#[test]
fn mistakes_are_explained_and_the_chat_continues() {
    let home = Home::new();
    let model = home.script(echo());
    let window = Window::start(&home, (100, 24), &["chat"], &[("NO_COLOR", "1")]);
    window.wait_for("/help");
    window.press("hello\r");
    window.wait_for("no model is set");
    window.press("/tre\r");
    window.wait_for("Did you mean /tree?");
    window.press(&format!("/mod\tl {model}\r"));
    window.wait_for("Model: script:");
    window.press(&format!("{UP}{UP}{UP}\r"));
    window.wait_for("turn 1: hello");
    wait_for_idle(&window);
    window.press("/resume\r");
    window.wait_for("Resume one with: /resume ID");
    window.press("\u{c}");
    window.wait_until("wiped", |screen| screen == ">");
    window.press("//help\r");
    window.wait_for("turn 2: /help");
    quit(window);
}

#[test]
fn resume_command_switches_the_session() {
    let home = Home::new();
    let first = chat(&home, (80, 20), echo(), &[]);
    first.press("one\r");
    first.wait_for("turn 1: one");
    wait_for_idle(&first);
    first.press(CTRL_D);
    let mut first = first;
    assert_eq!(first.end(), 0);
    let text = first.raw_text();
    let id = text.rsplit("brigade chat -r ").next().unwrap().trim();
    let window = chat(&home, (80, 20), echo(), &[]);
    window.press(&format!("/resume {id}\r"));
    window.wait_for("> one\n\nturn 1: one");
    window.press("two\r");
    window.wait_for("turn 2: two");
    quit(window);
}
