//! Stopping, telling, going on.

use std::time::Duration;

use rustix::process::Signal;

use crate::support::{Done, Home, Running, text};

/// A child that has something to say and then hangs.
const HANGING: &str = r#"
[[reply]]
agent = "lead"
turn = 1
text = "I begin."
[[reply.call]]
tool = "delegate"
arguments = { role = "Sleeper", task = "sleep" }
[[reply]]
agent = "Sleeper"
turn = 1
text = "half of it"
[[reply.call]]
tool = "echo"
arguments = { text = "x" }
[[reply]]
agent = "Sleeper"
turn = 2
fault = "hang"
"#;

fn until_it_hangs(home: &Home) -> Running {
    let mut running = Running::start(home, HANGING, &[]);
    while running.wait_for("called")["turn"] != 2 {}
    running
}

#[test]
fn an_interrupt_cancels_with_what_there_is() {
    for signal in [Signal::INT, Signal::TERM] {
        let home = Home::new();
        let running = until_it_hangs(&home);
        let id = running.session.clone();
        running.signal(signal);
        let (code, lines, time) = running.end();
        assert_eq!(code, 130);
        assert!(time < Duration::from_secs(2), "{time:?}");
        let report = lines.last().unwrap();
        assert_eq!(report["status"], "cancelled");
        assert_eq!(report["agents"][1]["status"], "cancelled");
        assert_eq!(report["result"], "I begin.");
        home.brigade(&["cancel", &id]).exits(0).says("already ended");
        home.brigade(&["sessions", "show", &id]).exits(0).prints("cancelled by the person");
    }
}

#[test]
fn interrupt_while_the_model_answers_prints_the_partial_text() {
    let home = Home::new();
    let script = "[[reply]]\ntext = 'one two three four'\nchunks = 4\nchunk_delay_ms = 2000\n";
    let mut running = Running::start(&home, script, &[]);
    let first = running.wait_for("delta")["text"].as_str().unwrap().to_owned();
    let id = running.session.clone();
    running.signal(Signal::INT);
    let (code, lines, _) = running.end();
    assert_eq!(code, 130);
    let report = lines.last().unwrap();
    assert_eq!((report["status"].as_str(), report["result"].as_str()), (Some("cancelled"), Some(&*first)));
    let shown = home.brigade(&["sessions", "show", &id]);
    assert_eq!(shown.exits(0).stdout.matches(&first).count(), 1, "{}", shown.stdout);
}

#[test]
fn an_interrupt_of_a_pipeline_says_how_to_continue() {
    let home = Home::new();
    let model = home.script("[[reply]]\ntext = 'one two three four'\nchunks = 4\nchunk_delay_ms = 2000\n");
    for format in ["text", "json"] {
        let arguments = ["run", "--model", &model, "--output-format", format, "the task"];
        let mut child = home.command(&arguments).spawn().unwrap();
        // The reader gets the same signal, and is gone when the result is written.
        drop(child.stdout.take());
        std::thread::sleep(Duration::from_secs(1));
        let pid = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
        rustix::process::kill_process(pid, Signal::INT).unwrap();
        let done = Done::of(child.wait_with_output().unwrap());
        done.exits(141).says("cancelled by").says("To continue:").says("brigade resume ");
    }
}

#[test]
fn a_second_interrupt_leaves_at_once() {
    let home = Home::new();
    let running = until_it_hangs(&home);
    running.signal(Signal::INT);
    running.signal(Signal::TERM);
    let (code, _, time) = running.end();
    assert_eq!(code, 130);
    assert!(time < Duration::from_secs(2), "{time:?}");
}

#[test]
fn another_process_cancels() {
    let home = Home::new();
    let running = until_it_hangs(&home);
    home.brigade(&["cancel", &running.session]).exits(0).says("cancelled");
    let (code, _, time) = running.end();
    assert_eq!(code, 130);
    assert!(time < Duration::from_secs(2), "{time:?}");
}

#[test]
fn a_session_that_nobody_runs_is_cancelled_on_the_spot() {
    let home = Home::new();
    let running = until_it_hangs(&home);
    let id = running.session.clone();
    running.signal(Signal::KILL);
    assert_eq!(running.end().0, 1009);
    home.brigade(&["sessions", "list"]).exits(0).prints("interrupted");
    home.brigade(&["cancel", &id]).exits(0).says("is now cancelled");
    home.brigade(&["sessions", "list"]).exits(0).prints("cancelled");
}

#[test]
fn what_is_told_after_the_end_is_answered() {
    let home = Home::new();
    let report = home.report("[[reply]]\nturn = 1\ntext = 'first'\n[[reply]]\ntext = 'second: {heard}'", &[]);
    let id = report["session_id"].as_str().unwrap();
    let told = home.brigade(&["tell", id, "and", "now?"]);
    assert!(told.exits(0).stdout.starts_with("second: "), "{}", told.stdout);
    told.prints("and now?");
    let again = home.brigade(&["resume", id]);
    assert_eq!(again.exits(0).stdout, told.stdout);
    home.brigade(&["tell", id, " "]).exits(2);
}

#[test]
fn a_failed_round_prints_no_answer_of_an_earlier_one() {
    let home = Home::new();
    let script = "[[reply]]\nturn = 1\ntext = 'the first answer'\n[[reply]]\nfault = 'refused'\n";
    let report = home.report(script, &[]);
    let id = report["session_id"].as_str().unwrap();
    let failed = home.brigade(&["tell", id, "and now?"]);
    assert_eq!(failed.exits(1).stdout, "");
    let failed = home.brigade(&["resume", id, "--output-format", "json"]).exits(1).json();
    assert_eq!((&failed["status"], &failed["result"]), (&"failed".into(), &"".into()), "{failed}");
}

#[test]
fn a_session_keeps_its_agent() {
    let home = Home::new();
    let report = home.report("[[reply]]\ntext = 'done'\n", &[]);
    let id = report["session_id"].as_str().unwrap();
    for command in [&["resume", id, "-a", "other"][..], &["tell", id, "-a", "other", "more"]] {
        home.brigade(command).exits(2).says("cannot change the agent of a session");
    }
    let shown = home.brigade(&["sessions", "show", id]).exits(0).stdout.clone();
    assert!(!shown.contains("more"), "nothing was told: {shown}");
}

#[test]
fn what_is_told_while_it_runs_is_heard() {
    let home = Home::new();
    let script = "[[reply]]\nturn = 1\ndelay_ms = 800\n[[reply.call]]\ntool = 'echo'\narguments = { text = 'x' }\n\
                  [[reply]]\ntext = 'heard: {heard}'";
    let mut running = Running::start(&home, script, &[]);
    running.wait_for("called");
    home.brigade(&["tell", &running.session, "hurry"]).exits(0).says("is running");
    let (code, lines, _) = running.end();
    assert_eq!(code, 0);
    assert!(lines.last().unwrap()["result"].as_str().unwrap().contains("hurry"), "{lines:?}");
}

#[test]
fn a_message_for_a_session_that_another_process_runs_is_followed_to_the_result() {
    let home = Home::new();
    let script = "[[reply]]\nturn = 1\ndelay_ms = 1500\n[[reply.call]]\ntool = 'echo'\narguments = { text = 'x' }\n\
                  [[reply]]\ntext = 'heard: {heard}'";
    let mut running = Running::start(&home, script, &[]);
    running.wait_for("called");
    let followed = home.brigade(&["run", "-c", "hurry"]);
    assert_eq!(followed.exits(0).stdout, "heard: hurry\n");
    followed.says("another process").says("brigade sessions show ");
    let (code, lines, _) = running.end();
    assert_eq!(code, 0);
    assert_eq!(lines.last().unwrap()["result"], "heard: hurry");
}

#[test]
fn the_failure_of_a_session_that_another_process_runs_is_reported_and_not_tried_again() {
    let home = Home::new();
    let script = "[[reply]]\nturn = 1\ndelay_ms = 1500\n[[reply.call]]\ntool = 'echo'\narguments = { text = 'x' }\n\
                  [[reply]]\nfault = 'refused'";
    let mut running = Running::start(&home, script, &[]);
    running.wait_for("called");
    let report = home.brigade(&["run", "-r", &running.session, "hurry", "--output-format", "json"]);
    assert_eq!(report.exits(1).json()["status"], "failed");
    assert_eq!(report.json()["turns"], 1, "{}", report.stdout);
    assert_eq!(running.end().0, 1);
}

#[test]
fn an_interrupt_stops_waiting_for_a_session_that_another_process_runs() {
    let home = Home::new();
    let mut running = Running::start(&home, "[[reply]]\nfault = 'hang'", &[]);
    running.wait_for("called");
    let waits = home.command(&["run", "-c", "hurry"]).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(1));
    let pid = rustix::process::Pid::from_raw(waits.id() as i32).unwrap();
    rustix::process::kill_process(pid, Signal::INT).unwrap();
    let waited = Done::of(waits.wait_with_output().unwrap());
    waited.exits(130).says(&format!("To stop it: brigade cancel {}", running.session));
    home.brigade(&["sessions", "list"]).exits(0).prints("running");
    running.signal(Signal::INT);
    assert_eq!(running.end().0, 130);
}

#[test]
fn a_killed_run_goes_on_and_does_nothing_twice() {
    let home = Home::new();
    let script = r#"
    [[reply]]
    agent = "lead"
    turn = 1
    [[reply.call]]
    tool = "shell"
    arguments = { command = "echo once >> count" }
    [[reply.call]]
    tool = "delegate"
    arguments = { role = "Half", task = "do" }
    [[reply]]
    agent = "lead"
    text = "{result:1}"
    [[reply]]
    agent = "Half"
    turn = 1
    [[reply.call]]
    tool = "shell"
    arguments = { command = "echo child >> count" }
    [[reply]]
    agent = "Half"
    turn = 2
    attempt = 1
    fault = "hang"
    [[reply]]
    agent = "Half"
    text = "finished"
    "#;
    let mut running = Running::start(&home, script, &["--mode", "auto"]);
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
    let lines = resumed.exits(0).lines();
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
    assert_eq!(home.brigade(&["resume", &id]).exits(0).stdout, "[Half]: finished\n");
}
