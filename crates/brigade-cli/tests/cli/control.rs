//! Cancelling, messaging and resuming sessions.

use std::time::Duration;

use brigade_testing::{Fault, Script, call, fault, reply};
use rustix::process::Signal;
use serde_json::json;

use crate::cli::console::Console;
use crate::cli::support::{BackgroundRun, CommandResult, Home, text};

/// Script of a child that sends a message and then hangs.
fn hanging() -> Script {
    Script::new().agent("lead", [reply("I begin.").delegate("Sleeper", "sleep").turn(1)]).agent(
        "Sleeper",
        [reply("half of it").call("echo", json!({ "text": "x" })), fault(Fault::Hang).turn(2)],
    )
}

fn start_hanging_run(home: &Home) -> BackgroundRun {
    let mut running = BackgroundRun::start(home, hanging(), &[]);
    while running.wait_for("called")["turn"] != 2 {}
    running
}

#[test]
fn interrupt_cancels_and_prints_the_partial_result() {
    for signal in [Signal::INT, Signal::TERM] {
        let home = Home::new();
        let mut console = Console::new(&home);
        let running = start_hanging_run(&home);
        let id = running.session.clone();
        running.signal(signal);
        let (code, lines, time) = running.end();
        assert_eq!(code, 130);
        assert!(time < Duration::from_secs(2), "{time:?}");
        let report = lines.last().unwrap();
        assert_eq!(report["status"], "cancelled");
        assert_eq!(report["agents"][1]["status"], "cancelled");
        assert_eq!(report["result"], "I begin.");
        console.add(home.brigade(&["cancel", &id]).exits_with(0));
        console.add(home.brigade(&["sessions", "show", &id]).exits_with(0));
        insta::assert_snapshot!("interrupted", console.text());
    }
}

#[test]
fn interrupt_while_the_model_answers_prints_the_partial_text() {
    let home = Home::new();
    let script = Script::new().reply(reply("one two three four").chunks(4).chunk_delay_ms(2000));
    let mut running = BackgroundRun::start(&home, script, &[]);
    let mut partial = running.wait_for("delta")["text"].as_str().unwrap().to_owned();
    let id = running.session.clone();
    running.signal(Signal::INT);
    let (code, lines, _) = running.end();
    assert_eq!(code, 130);
    // On a busy machine another part of the reply may arrive before the signal does.
    let later = lines.iter().filter(|line| line["type"] == "delta");
    partial.extend(later.map(|line| line["text"].as_str().unwrap()));
    assert_ne!(partial, "one two three four");
    let report = lines.last().unwrap();
    assert_eq!((report["status"].as_str(), report["result"].as_str()), (Some("cancelled"), Some(&*partial)));
    let shown = home.brigade(&["sessions", "show", &id]);
    assert_eq!(shown.exits_with(0).stdout.matches(&partial).count(), 1, "{}", shown.stdout);
}

#[test]
fn interrupted_pipeline_prints_how_to_continue() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let model = home.script(Script::new().reply(reply("one two three four").chunks(4).chunk_delay_ms(2000)));
    for format in ["text", "json"] {
        let arguments = ["run", "--model", &model, "--output-format", format, "the task"];
        let mut command = home.command(&arguments);
        let mut child = command.spawn().unwrap();
        // The reader gets the same signal, and is gone when the result is written.
        drop(child.stdout.take());
        std::thread::sleep(Duration::from_secs(1));
        let pid = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
        rustix::process::kill_process(pid, Signal::INT).unwrap();
        let done = CommandResult::of(child.wait_with_output().unwrap()).named(&command);
        console.add(done.exits_with(141));
    }
    insta::assert_snapshot!(console.text());
}

#[test]
fn second_interrupt_exits_at_once() {
    let home = Home::new();
    let running = start_hanging_run(&home);
    running.signal(Signal::INT);
    running.signal(Signal::TERM);
    let (code, _, time) = running.end();
    assert_eq!(code, 130);
    assert!(time < Duration::from_secs(2), "{time:?}");
}

#[test]
fn cancel_from_another_process_stops_the_run() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let running = start_hanging_run(&home);
    console.add(home.brigade(&["cancel", &running.session]).exits_with(0));
    let (code, _, time) = running.end();
    assert_eq!(code, 130);
    assert!(time < Duration::from_secs(2), "{time:?}");
    insta::assert_snapshot!(console.text());
}

#[test]
fn cancel_ends_an_inactive_session_at_once() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let running = start_hanging_run(&home);
    let id = running.session.clone();
    running.signal(Signal::KILL);
    assert_eq!(running.end().0, 1009);
    home.brigade(&["sessions", "list"]).exits_with(0).stdout_contains("interrupted");
    console.add(home.brigade(&["cancel", &id]).exits_with(0));
    home.brigade(&["sessions", "list"]).exits_with(0).stdout_contains("cancelled");
    insta::assert_snapshot!(console.text());
}

#[test]
fn tell_after_the_end_starts_the_next_round() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let report = home.report(Script::new().turns([reply("first"), reply("second: {heard}")]), &[]);
    let id = report["session_id"].as_str().unwrap();
    let told = home.brigade(&["tell", id, "and", "now?"]);
    assert!(told.exits_with(0).stdout.starts_with("second: "), "{}", told.stdout);
    console.add(&told);
    let again = home.brigade(&["resume", id]);
    assert_eq!(again.exits_with(0).stdout, told.stdout);
    home.brigade(&["tell", id, " "]).exits_with(2);
    insta::assert_snapshot!(console.text());
}

#[test]
fn failed_round_prints_no_result_of_an_earlier_round() {
    let home = Home::new();
    let script = Script::new().turns([reply("the first answer"), fault(Fault::Refused)]);
    let report = home.report(script, &[]);
    let id = report["session_id"].as_str().unwrap();
    let failed = home.brigade(&["tell", id, "and now?"]);
    assert_eq!(failed.exits_with(1).stdout, "");
    let failed = home.brigade(&["resume", id, "--output-format", "json"]).exits_with(1).json();
    assert_eq!((&failed["status"], &failed["result"]), (&"failed".into(), &"".into()), "{failed}");
}

#[test]
fn session_keeps_its_agent() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let report = home.report(Script::new().reply("done"), &[]);
    let id = report["session_id"].as_str().unwrap();
    for command in [&["resume", id, "-a", "other"][..], &["tell", id, "-a", "other", "more"]] {
        console.add(home.brigade(command).exits_with(2));
    }
    let shown = home.brigade(&["sessions", "show", id]).exits_with(0).stdout.clone();
    assert!(!shown.contains("more"), "nothing was told: {shown}");
    insta::assert_snapshot!(console.text());
}

#[test]
fn tell_reaches_a_running_session() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let script =
        Script::new().turns([call("echo", json!({ "text": "x" })).delay_ms(800), reply("heard: {heard}")]);
    let mut running = BackgroundRun::start(&home, script, &[]);
    running.wait_for("called");
    console.add(home.brigade(&["tell", &running.session, "hurry"]).exits_with(0));
    let (code, lines, _) = running.end();
    assert_eq!(code, 0);
    assert!(lines.last().unwrap()["result"].as_str().unwrap().contains("hurry"), "{lines:?}");
    insta::assert_snapshot!(console.text());
}

#[test]
fn run_continue_follows_a_session_of_another_process() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let script =
        Script::new().turns([call("echo", json!({ "text": "x" })).delay_ms(1500), reply("heard: {heard}")]);
    let mut running = BackgroundRun::start(&home, script, &[]);
    running.wait_for("called");
    let followed = home.brigade(&["run", "-c", "hurry"]);
    assert_eq!(followed.exits_with(0).stdout, "heard: hurry\n");
    console.add(&followed);
    let (code, lines, _) = running.end();
    assert_eq!(code, 0);
    assert_eq!(lines.last().unwrap()["result"], "heard: hurry");
    insta::assert_snapshot!(console.text());
}

#[test]
fn failure_in_another_process_is_reported_and_not_retried() {
    let home = Home::new();
    let script =
        Script::new().turns([call("echo", json!({ "text": "x" })).delay_ms(1500), fault(Fault::Refused)]);
    let mut running = BackgroundRun::start(&home, script, &[]);
    running.wait_for("called");
    let report = home.brigade(&["run", "-r", &running.session, "hurry", "--output-format", "json"]);
    assert_eq!(report.exits_with(1).json()["status"], "failed");
    assert_eq!(report.json()["turns"], 1, "{}", report.stdout);
    assert_eq!(running.end().0, 1);
}

#[test]
fn interrupt_stops_waiting_for_another_process() {
    let home = Home::new();
    let mut running = BackgroundRun::start(&home, Script::new().reply(fault(Fault::Hang)), &[]);
    running.wait_for("called");
    let mut command = home.command(&["run", "-c", "hurry"]);
    let waits = command.spawn().unwrap();
    std::thread::sleep(Duration::from_secs(1));
    let pid = rustix::process::Pid::from_raw(waits.id() as i32).unwrap();
    rustix::process::kill_process(pid, Signal::INT).unwrap();
    let waited = CommandResult::of(waits.wait_with_output().unwrap()).named(&command);
    let mut console = Console::new(&home);
    console.add(
        waited.exits_with(130).stderr_contains(&format!("Stop it with: brigade cancel {}", running.session)),
    );
    insta::assert_snapshot!(console.text());
    home.brigade(&["sessions", "list"]).exits_with(0).stdout_contains("running");
    running.signal(Signal::INT);
    assert_eq!(running.end().0, 130);
}

#[test]
fn resume_of_a_killed_run_repeats_no_call() {
    let home = Home::new();
    let script = Script::new()
        .agent(
            "lead",
            [
                call("shell", json!({ "command": "echo once >> count" })).delegate("Half", "do"),
                reply("{result:1}"),
            ],
        )
        .agent(
            "Half",
            [
                call("shell", json!({ "command": "echo child >> count" })),
                fault(Fault::Hang).attempt(1),
                reply("finished"),
            ],
        );
    let mut running = BackgroundRun::start(&home, script, &["--mode", "auto"]);
    let id = running.session.clone();
    let (mut is_hanging, mut has_written) = (false, false);
    running.read_until(|line| {
        is_hanging |= line["type"] == "called" && line["agent"] == "Half" && line["turn"] == 2;
        has_written |= line["type"] == "tool_ended" && line["agent"] == "lead";
        is_hanging && has_written
    });
    running.signal(Signal::KILL);
    assert_eq!(running.end().0, 1009);
    let resumed = home.brigade(&["resume", &id, "--output-format", "stream-json"]);
    let lines = resumed.exits_with(0).lines();
    assert_eq!(lines.last().unwrap()["result"], "[Half]: finished");
    let life: Vec<&str> = lines
        .iter()
        .filter(|line| line.get("id").is_some())
        .map(|line| line["type"].as_str().unwrap())
        .collect();
    assert_eq!((life.first(), life.last()), (Some(&"subagent_start"), Some(&"subagent_complete")));
    let mut count: Vec<String> = text(home.work().join("count")).lines().map(str::to_owned).collect();
    count.sort();
    assert_eq!(count, ["child", "once"]);
    assert!(lines.last().unwrap()["usage"]["in_doubt_tokens"].as_u64().unwrap() > 0);
    assert_eq!(home.brigade(&["resume", &id]).exits_with(0).stdout, "[Half]: finished\n");
}
