//! `brigade acp` with acpx, a client that others wrote. Every line goes over a wire in between, and all that we sent on it
//! has to fit the schema of the protocol.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use brigade_outer_tests::{AcpSchema, Done, Line, Place, Side, Wire, acpx, methods, processes_with};
use serde_json::Value;

const WRITES: &str = "[[reply]]\nturn = 1\ntext = 'I write.'\n[[reply.call]]\ntool = 'write_file'\n\
    arguments = { path = 'note.txt', content = 'hello' }\n[[reply]]\ntext = 'It is done: {results}'\n";

/// A place whose model is a script.
fn place(script: &str) -> Place {
    let place = Place::new("");
    std::fs::write(place.path("script.toml"), script).unwrap();
    let config = format!("model = 'script:{}'\n", place.path("script.toml").display());
    std::fs::write(place.path("home/config.toml"), config).unwrap();
    place
}

/// acpx with these flags, about to give us a task.
fn client(place: &Place, flags: &[&str]) -> Command {
    let ours = place.command(&["acp"]);
    let wire = Wire::new(&place.path("wire"));
    let mut words = vec!["/usr/bin/env".to_owned(), "-i".to_owned()];
    let pairs = ours.get_envs().filter_map(|(key, value)| Some((key.to_str()?, value?.to_str()?)));
    words.extend(pairs.map(|(key, value)| format!("{key}={value}")));
    let program = [ours.get_program().to_str().unwrap().to_owned()];
    words.extend(program.into_iter().chain(ours.get_args().map(|word| word.to_str().unwrap().to_owned())));
    let words = wire.around(&words.iter().map(String::as_str).collect::<Vec<_>>());
    std::fs::create_dir_all(place.path("acpx")).unwrap();
    let mut command = acpx(&place.path("acpx"));
    command.args(flags).args(["--format", "json", "--timeout", "60", "--agent", &words.join(" ")]);
    command.args(["exec", "go on"]).current_dir(place.path("work"));
    command
}

fn run(place: &Place, flags: &[&str]) -> Done {
    place.finish(place.start(&mut client(place, flags)))
}

/// What was said, once it is sure that all that we sent is right.
fn judged(place: &Place) -> Vec<Line> {
    let mut said = Wire::new(&place.path("wire")).said();
    assert_eq!(said.len(), 1, "{said:?}");
    let said = said.remove(0);
    assert_eq!(AcpSchema::load().complaints(&said, Side::Agent), Vec::<String>::new());
    said
}

/// How the prompt ended.
fn stop_reason(said: &[Line]) -> String {
    let ours = said.iter().filter(|line| line.from == Side::Agent).map(Line::message);
    let reasons: Vec<Value> = ours.map(|message| message["result"]["stopReason"].clone()).collect();
    reasons.iter().find_map(Value::as_str).unwrap_or_default().to_owned()
}

/// All that was said to the person.
fn words(said: &[Line]) -> String {
    let updates = said.iter().map(Line::message).map(|message| message["params"]["update"].clone());
    let chunks = updates.filter(|update| update["sessionUpdate"] == "agent_message_chunk");
    chunks.filter_map(|chunk| Some(chunk["content"]["text"].as_str()?.to_owned())).collect()
}

fn nothing_is_left(place: &Place) {
    let wire = place.path("wire").display().to_string();
    wait_until("everything ended", || processes_with(&wire).is_empty());
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(30), "not so: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_task_is_done_and_what_needs_leave_gets_it() {
    let place = place(WRITES);
    let done = run(&place, &["--approve-all"]);
    assert_eq!(done.code, 0, "{done:?}");
    let said = judged(&place);
    assert_eq!(stop_reason(&said), "end_turn");
    assert!(words(&said).contains("It is done"), "{said:?}");
    assert!(methods(&said, Side::Agent).contains(&"session/request_permission".to_owned()), "{said:?}");
    assert_eq!(std::fs::read_to_string(place.path("work/note.txt")).unwrap(), "hello");
    nothing_is_left(&place);
}

#[test]
fn what_is_refused_is_not_done_and_the_agent_hears_of_it() {
    let place = place(WRITES);
    let done = run(&place, &["--deny-all"]);
    // Its own code for a permission that was denied.
    assert_eq!(done.code, 5, "{done:?}");
    let said = judged(&place);
    assert_eq!(stop_reason(&said), "end_turn");
    assert!(words(&said).contains("not allowed"), "{said:?}");
    assert!(!place.path("work/note.txt").exists());
    nothing_is_left(&place);
}

#[test]
fn a_child_that_delegates_can_be_followed() {
    let place = place(
        "[[reply]]\nagent = 'lead'\nturn = 1\n[[reply.call]]\ntool = 'delegate'\n\
         arguments = { role = 'Helper', task = 'say it' }\n[[reply]]\nagent = 'lead'\ntext = 'Heard: {results}'\n\
         [[reply]]\ntext = 'I am the helper.'\n",
    );
    let done = run(&place, &["--approve-all"]);
    assert_eq!(done.code, 0, "{done:?}");
    let said = judged(&place);
    assert!(words(&said).contains("Heard:") && words(&said).contains("I am the helper."), "{said:?}");
    let calls: Vec<Value> = said.iter().map(Line::message).collect();
    let of_helper = |message: &Value| message["params"]["update"].to_string().contains("Helper");
    assert!(calls.iter().any(of_helper), "{said:?}");
    nothing_is_left(&place);
}

#[test]
fn a_cancel_ends_what_runs() {
    let place = place(
        "[[reply]]\nturn = 1\n[[reply.call]]\ntool = 'shell'\narguments = { command = 'sleep 471' }\n\
         [[reply]]\ntext = 'never'\n",
    );
    let child: Child = place.start(client(&place, &["--approve-all"]).stdin(Stdio::null()));
    let sleeping = || processes_with("sleep\u{0}471").len();
    wait_until("the command runs", || sleeping() > 0);
    let id = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
    place.finish(child);
    let said = judged(&place);
    assert_eq!(stop_reason(&said), "cancelled");
    assert!(methods(&said, Side::Client).contains(&"session/cancel".to_owned()));
    wait_until("the command ended", || sleeping() == 0);
    nothing_is_left(&place);
}
