//! Keys and commands of `brigade chat`, as users of other agents expect them.

use std::time::Duration;

use brigade_testing::{Fault, Purpose, Script, call, fault, reply};
use insta::assert_snapshot;
use serde_json::json;

use crate::cli::support::{Home, text};
use crate::screen::chat::{CTRL_C, chat, echo, hanging_reply, quit, wait_for_idle};
use crate::screen::support::Window;

const ESC: &str = "\u{1b}";
const SHIFT_TAB: &str = "\u{1b}[Z";
const CTRL_R: &str = "\u{12}";
const SIZES: [(&str, u16); 2] = [("narrow", 60), ("wide", 100)];

/// Round that writes a file and repeats the result of the tool.
fn write_file() -> Script {
    Script::new()
        .turns([call("write_file", json!({ "path": "made.txt", "content": "made" })), reply("{result:0}")])
}

/// Screen from the first message on. The line above it names a file that differs between runs.
fn conversation(screen: &str) -> &str {
    screen.split_once("\n> ").map_or(screen, |(_, conversation)| conversation)
}

fn pasted(text: &str) -> String {
    format!("\u{1b}[200~{text}\u{1b}[201~")
}

fn sessions(home: &Home) -> serde_json::Value {
    home.brigade(&["sessions", "list", "--output-format", "json"]).json()
}

/// Transcript of the last session.
fn last_session_text(home: &Home) -> String {
    let session = sessions(home)[0]["session_id"].as_str().unwrap().to_owned();
    home.brigade(&["sessions", "show", &session]).exits_with(0).stdout.clone()
}

#[test]
fn esc_interrupts_and_keeps_the_draft() {
    let home = Home::new();
    let window = chat(&home, (80, 20), hanging_reply(), &[]);
    window.press("go\r");
    window.wait_for("thinking");
    window.press("half");
    window.wait_for("> half");
    window.press(ESC);
    window.wait_for("stopped by the user");
    window.wait_until("what is typed stays", |screen| screen.ends_with("\n> half"));
    window.press(" a line\r");
    window.wait_for("half a line\n\nturn");
    wait_for_idle(&window);
    window.press(ESC);
    std::thread::sleep(Duration::from_millis(200));
    let screen = wait_for_idle(&window);
    assert_eq!(screen.matches("stopped").count(), 1, "nothing runs that could be stopped: {screen}");
    quit(window);
}

#[test]
fn shift_tab_changes_the_mode() {
    let home = Home::new();
    let window = chat(&home, (80, 20), write_file(), &[]);
    for mode in ["edit", "plan", "ask", "edit", "plan"] {
        window.press(SHIFT_TAB);
        window.wait_for(&format!("\nMode {mode}.\n>"));
    }
    window.press("go\r");
    window.wait_for("plan mode is read-only");
    assert_eq!(text(home.work().join("made.txt")), "", "nothing is written in mode plan");
    window.press("\u{3}\u{3}");
    let mut window = window;
    window.end();
    // The mode that asks for no approval is not reached by accident, and the next key leaves it.
    let auto = chat(&home, (80, 20), write_file(), &["--mode", "auto"]);
    auto.press(SHIFT_TAB);
    auto.wait_for("\nMode plan.\n>");
    quit_with_notice(auto);
}

/// Exits while a notice is above the input line.
fn quit_with_notice(window: Window) {
    window.press(&format!("x{CTRL_C}"));
    quit(window);
}

#[test]
fn history_is_searched() {
    for (name, columns) in SIZES {
        let home = Home::new();
        let window = chat(&home, (columns, 20), echo(), &[]);
        for (turn, message) in [(1, "fix the tests"), (2, "read it"), (3, "run the tests again")] {
            window.press(&format!("{message}\r"));
            window.wait_for(&format!("turn {turn}: {message}"));
            wait_for_idle(&window);
        }
        window.press(&format!("draft{CTRL_R}tests"));
        window.wait_until("found", |screen| screen.ends_with("\n> run the tests again"));
        window.press(CTRL_R);
        let screen = window.wait_until("found", |screen| screen.ends_with("\n> fix the tests"));
        assert_snapshot!(format!("search_{name}"), conversation(&screen));
        window.press("x");
        window.wait_for("nothing found");
        window.press(CTRL_C);
        window.wait_until("the draft is back", |screen| screen.ends_with("\n> draft"));
        window.press(&format!("{CTRL_R}fix\r"));
        window.wait_for("turn 4: fix the tests");
        quit_when_idle(window);
    }
}

fn quit_when_idle(window: Window) {
    wait_for_idle(&window);
    quit(window);
}

#[test]
fn files_are_completed_and_attached() {
    for (name, columns) in SIZES {
        let home = Home::new();
        home.write("work/notes.txt", "Tea needs hot water.\n");
        home.write("work/novel.md", "Chapter one\n");
        let window = chat(&home, (columns, 20), Script::new().reply("ok"), &[]);
        window.press("sum up @n\t");
        window.wait_for("\nnotes.txt novel.md\n> sum up @no");
        window.press("t\t");
        window.wait_for("\n> sum up @notes.txt");
        window.press(" and @nobody\r");
        window.wait_for("\nok");
        let screen = wait_for_idle(&window);
        assert_snapshot!(format!("attached_{name}"), conversation(&screen));
        quit(window);
        let transcript = last_session_text(&home);
        assert!(
            transcript.contains("File notes.txt:") && transcript.contains("Tea needs hot water."),
            "{transcript}"
        );
    }
}

#[test]
fn exclamation_mark_runs_a_user_command() {
    for (name, columns) in SIZES {
        let home = Home::new();
        let window = chat(&home, (columns, 24), Script::new().reply("ok"), &["--mode", "plan"]);
        window.press("!echo hi-$((40+2)); exit 3\r");
        window.wait_for("next message");
        window.press("!!echo for-$((40+3))\r");
        window.wait_for("for-43");
        window.press("!sleep 60\r");
        window.wait_for("Running sleep 60. Press Esc to stop it.");
        window.press(ESC);
        window.wait_for("(stopped)");
        let screen = wait_for_idle(&window);
        assert_snapshot!(format!("own_command_{name}"), conversation(&screen));
        window.press("what was that?\r");
        window.wait_for("\nok");
        window.wait_for("Press Enter to approve");
        window.press("x\u{3}");
        window.press("\u{4}");
        let mut window = window;
        assert_eq!(window.end(), 0);
        let transcript = last_session_text(&home);
        assert!(
            transcript.contains("I ran `echo hi-$((40+2)); exit 3`:") && transcript.contains("hi-42"),
            "{transcript}"
        );
        assert!(!transcript.contains("for-43"), "{transcript}");
    }
}

#[test]
fn compact_command_summarises_the_chat() {
    let home = Home::new();
    let script = Script::new()
        .reply(reply("They talked.").delay_ms(300).purpose(Purpose::Compaction))
        .reply("turn {turn}: {heard}");
    let window = chat(&home, (80, 24), script, &[]);
    window.press("/compact\r");
    window.wait_for("No messages yet.");
    window.press("one\r");
    window.wait_for("turn 1: one");
    wait_for_idle(&window);
    window.press("/compact\r");
    window.wait_for("it has no older messages to");
    window.press("two\r");
    window.wait_for("turn 2: two");
    wait_for_idle(&window);
    window.press("/compact\r");
    window.wait_for("compacting");
    window.wait_for("(the conversation so far was replaced with a summary)");
    wait_for_idle(&window);
    window.press("three\r");
    window.wait_for("turn 4: three");
    quit_when_idle(window);
}

#[test]
fn new_session_begins_after_clear() {
    let home = Home::new();
    let window = chat(&home, (80, 24), echo(), &[]);
    window.press("one\r");
    window.wait_for("turn 1: one");
    wait_for_idle(&window);
    window.press("/clear\r");
    let screen = window.wait_for("Resume the last one:\n/resume ");
    assert!(!screen.contains("turn 1: one"), "the window is empty: {screen}");
    window.press("two\r");
    window.wait_for("turn 1: two");
    quit_when_idle(window);
    assert_eq!(sessions(&home).as_array().unwrap().len(), 2);
}

#[test]
fn edits_of_the_last_round_are_undone() {
    let script = Script::new().turns([
        call("read_file", json!({ "path": "old.txt" }))
            .call("read_file", json!({ "path": "mine.txt" }))
            .call("write_file", json!({ "path": "new.txt", "content": "made" })),
        call("edit_file", json!({ "path": "old.txt", "old": "one", "new": "two" }))
            .call("write_file", json!({ "path": "mine.txt", "content": "the agent's" })),
        reply("ok"),
    ]);
    for (name, columns) in SIZES {
        let home = Home::new();
        home.write("work/old.txt", "one");
        home.write("work/mine.txt", "before");
        let window = chat(&home, (columns, 24), &script, &["--mode", "edit"]);
        window.press("go\r");
        window.wait_for("\nok");
        wait_for_idle(&window);
        assert_eq!(text(home.work().join("old.txt")), "two");
        home.write("work/mine.txt", "the user's");
        window.press("/undo\r");
        window.wait_for("restored old.txt");
        let screen = wait_for_idle(&window);
        // The calls of one turn end in any order.
        let answer = &screen[screen.find("> /undo").unwrap()..];
        assert_snapshot!(format!("undo_{name}"), answer);
        assert_eq!(text(home.work().join("old.txt")), "one");
        assert_eq!(text(home.work().join("mine.txt")), "the user's");
        assert!(!home.work().join("new.txt").exists());
        window.press("and now?\r");
        window.wait_for("> and now?");
        window.wait_until("answered", |screen| screen.matches("\nok").count() == 2);
        quit_when_idle(window);
        let transcript = last_session_text(&home);
        assert!(transcript.contains("I undid the latest edits to: new.txt, old.txt"), "{transcript}");
    }
}

fn plan_then_write() -> Script {
    Script::new().turns([
        reply("I will write made.txt."),
        call("write_file", json!({ "path": "made.txt", "content": "made" })),
        reply("heard: {heard}"),
    ])
}

#[test]
fn plan_is_approved_with_one_key_and_carried_out() {
    for (name, columns) in SIZES {
        let home = Home::new();
        let window = chat(&home, (columns, 24), plan_then_write(), &["--mode", "plan"]);
        window.press("make it\r");
        window.wait_for("Press Enter to approve");
        // Keys pressed while the plan appears were meant for something else.
        std::thread::sleep(Duration::from_millis(600));
        let screen = window.screen();
        assert_snapshot!(format!("plan_{name}"), conversation(&screen));
        window.press("\r");
        window.wait_for("heard: The plan is approved.");
        wait_for_idle(&window);
        assert_eq!(text(home.work().join("made.txt")), "made");
        window.press("/mode\r");
        window.wait_for("Mode: edit.");
        quit_when_idle(window);
    }
}

#[test]
fn plan_can_be_changed_instead() {
    let home = Home::new();
    let window = chat(&home, (80, 24), plan_then_write(), &["--mode", "plan"]);
    window.press("make it\r");
    window.wait_for("Press Enter to approve");
    std::thread::sleep(Duration::from_millis(600));
    window.press("another");
    window.wait_until("the offer makes room", |screen| !screen.contains("Enter to approve"));
    window.press("\r");
    window.wait_for("heard: another");
    assert_eq!(text(home.work().join("made.txt")), "", "it is still mode plan");
    window.wait_for("Press Enter to approve");
    window.press(ESC);
    window.wait_until("the offer is gone", |screen| !screen.contains("Enter to approve"));
    std::thread::sleep(Duration::from_millis(600));
    window.press("\r");
    quit_when_idle(window);
}

#[test]
fn long_paste_is_folded() {
    for (name, columns) in SIZES {
        let home = Home::new();
        let window = chat(&home, (columns, 24), Script::new().reply("ok"), &[]);
        let lines: String = (1..=40).map(|line| format!("pasted line {line}\r\n")).collect();
        window.press(&format!("look at {} please", pasted(&lines)));
        window.wait_for("\n> look at [pasted text, 40 lines] please");
        window.press("\r");
        window.wait_for("\nok");
        let screen = wait_for_idle(&window);
        assert_snapshot!(format!("paste_{name}"), conversation(&screen));
        quit(window);
        assert!(last_session_text(&home).contains("pasted line 40"));
    }
}

#[test]
fn text_of_the_lead_between_calls_is_shown() {
    let script = Script::new().turns([
        reply("I have read the task. First I look at the notes, which say what has to be done and by whom.")
            .call("echo", json!({ "text": "x" })),
        fault(Fault::Hang),
    ]);
    for (name, columns) in SIZES {
        let home = Home::new();
        let window = Window::run(&home, (columns, 12), &script, &[], &[]);
        window.wait_for("First I look at the notes");
        let screen = window.wait_for("after echo");
        assert_snapshot!(format!("thought_{name}"), screen);
        assert!(!screen.contains("I have read"), "only the last sentence: {screen}");
        let cells = window.cells();
        let row = cells
            .iter()
            .find(|row| row.iter().map(avt::Cell::char).collect::<String>().contains("First I"))
            .unwrap();
        assert!(row[0].pen().is_faint(), "it is dimmed");
        window.press(CTRL_C);
        let mut window = window;
        assert_eq!(window.end(), 130);
    }
}
