//! `brigade chat` without a terminal: messages from standard input, one per line.

use brigade_testing::{Fault, Purpose, Script, call, delegate, fault, reply};
use serde_json::{Value, json};

use crate::cli::console::Console;
use crate::cli::support::{CommandResult, Home, text};

fn echo() -> Script {
    Script::new().turns([reply("first: {heard}"), reply("turn {turn}: {heard}")])
}

fn chat(home: &Home, arguments: &[&str], input: &str) -> CommandResult {
    home.with_input(&[&["chat"], arguments].concat(), input)
}

/// Session in the resume hint of the last lines.
fn session(done: &CommandResult) -> String {
    let line = done.stderr.lines().find_map(|line| line.strip_prefix("Resume: brigade chat -r "));
    line.unwrap_or_else(|| panic!("{}", done.stderr)).split(' ').next().unwrap().to_owned()
}

fn agent_file(home: &Home, id: &str, model: &str) {
    std::fs::create_dir_all(home.home().join("agents").join(id)).unwrap();
    home.write(
        &format!("home/agents/{id}/AGENT.md"),
        &format!(
            "---\nname: {id}\ndescription: Does the work of {id}\nmodel: \"{model}\"\n---\nYou are {id}.\n"
        ),
    );
}

#[test]
fn stdin_lines_are_messages_of_one_session() {
    let home = Home::new();
    let model = home.script(echo());
    let done = chat(&home, &["--model", &model], "hello\n\n  \nand more\r\n//slash\n");
    assert_eq!(done.exits_with(0).stdout, "first: hello\nturn 2: and more\nturn 3: /slash\n");
    let shown = home.brigade(&["sessions", "list", "--output-format", "json"]).json();
    assert_eq!(shown.as_array().unwrap().len(), 1);
    assert_eq!(shown[0]["session_id"], session(&done).as_str());
}

#[test]
fn s09_dispatched_agent_continues_in_its_own_session() {
    let home = Home::new();
    let model = home.script(
        Script::new()
            .agent(
                "pickle",
                [
                    call("subagent_dispatch", json!({ "agent_id": "reviewer", "task": "look at app.txt" })),
                    reply("{result:0}"),
                ],
            )
            .agent(
                "reviewer",
                [
                    call("read_file", json!({ "path": "app.txt" })),
                    reply("It says: {result:0}"),
                    reply("As {role} I heard: {heard}"),
                ],
            ),
    );
    agent_file(&home, "pickle", &model);
    agent_file(&home, "reviewer", &model);
    home.write("work/app.txt", "one line");
    let done = chat(&home, &["-a", "pickle"], "have the reviewer look at a file\n");
    let result: Value = serde_json::from_str(done.exits_with(0).stdout.trim()).unwrap();
    let keys: Vec<&String> = result.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["result", "session_id"]);
    assert!(result["result"].as_str().unwrap().contains("one line"), "{result}");
    let child = result["session_id"].as_str().unwrap();
    home.brigade(&["sessions", "list"]).exits_with(0).stdout_contains(child).stdout_contains("reviewer");
    let on = chat(&home, &["-r", child], "are you sure?\n");
    assert_eq!(on.exits_with(0).stdout, "As reviewer I heard: are you sure?\n");
    assert_eq!(session(&on), child);
    // The last session of the folder is its newest root session.
    let last = chat(&home, &["-c"], "/help\n");
    assert_eq!(session(last.exits_with(0)), session(&done));
}

#[test]
fn chat_continue_takes_the_last_session_of_the_folder() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let model = home.script(echo());
    std::fs::create_dir(home.work().join("other")).unwrap();
    console.add(chat(&home, &["-c"], "x\n").exits_with(2));
    let one = chat(&home, &["--model", &model], "one\n");
    let two = chat(&home, &["--model", &model], "two\n");
    chat(&home, &["--model", &model, "--cwd", "other"], "three\n").exits_with(0);
    let on = chat(&home, &["-c"], "more\n");
    assert_eq!(on.exits_with(0).stdout, "turn 2: more\n");
    assert_eq!(session(&on), session(&two));
    let back = chat(&home, &["-r", &session(&one)], "back\n");
    assert_eq!(back.exits_with(0).stdout, "turn 2: back\n");
    assert_eq!(session(chat(&home, &["-c"], "").exits_with(0)), session(&one), "it was used last");
    insta::assert_snapshot!(console.text());
}

#[test]
fn errors_are_printed_and_the_chat_continues() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let model = home.script(Script::new().turns([fault(Fault::Refused), reply("better: {heard}")]));
    let input = format!("hello\n/mdoel x\n/model nosuch/thing\n/model {model}\n/model\nhello\nagain\n");
    let done = chat(&home, &[], &input);
    console.add(done.exits_with(0));
    done.stdout_contains(&format!("Model: {model}."));
    assert!(done.stdout.ends_with("better: again\n"), "{}", done.stdout);
    console.add(chat(&home, &["-a", "nobody"], "x\n").exits_with(2));
    chat(&home, &["-r", "nonsense"], "x\n").exits_with(2);
    chat(&home, &["-r", &"a".repeat(26)], "x\n").exits_with(2);
    console.add(chat(&home, &["-c", "-a", "lead"], "x\n").exits_with(2));
    insta::assert_snapshot!(console.text());
}

#[test]
fn exit_code_is_the_status_of_the_last_round() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let model = home.script(
        Script::new()
            .reply(reply("as far as I came").purpose(Purpose::Grace))
            .turns([call("echo", json!({ "text": "x" })), reply("done")]),
    );
    let cut = chat(&home, &["--model", &model, "--max-turns", "1"], "go\n");
    console.add(cut.exits_with(3));
    let on = chat(&home, &["-c", "--max-turns", "1"], "go on\n");
    assert_eq!(on.exits_with(0).stdout, "done\n", "each round has limits of its own");
    let failed = home.script(Script::new().reply(fault(Fault::Refused)));
    console.add(chat(&home, &["--model", &failed], "go\n").exits_with(1));
    insta::assert_snapshot!(console.text());
}

#[test]
fn slash_commands_work_without_a_model() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let model = home.script(
        Script::new().agent("lead", [delegate("Worker", "x").delegate("Worker", "y").turn(1)]).reply("ok"),
    );
    let done = chat(
        &home,
        &["--model", &model],
        "/tree\ngo\n/tree\n/cost\n/agents\n/mode\n/mode plan\n/resume\n/help\n/tell Worker x\n/quit\nnever\n",
    );
    done.exits_with(0)
        .stdout_contains("No messages yet.")
        .stdout_contains("├─ Worker")
        .stdout_contains("total")
        .stdout_contains("Mode: edit.");
    done.stdout_contains("Mode: plan (from the next round).").stderr_contains("no agents are running");
    console.add(chat(&home, &["--model", &model], "/help\n").exits_with(0));
    done.stdout_contains(&session(&done));
    let sums = done.stdout.lines().find(|line| line.starts_with("Worker ")).unwrap();
    assert_eq!(sums.split_whitespace().nth(1), Some("2"), "{sums}");
    assert!(!done.stdout.contains("never"), "{}", done.stdout);
    insta::assert_snapshot!(console.text());
}

#[test]
fn mode_change_applies_from_the_next_round() {
    let home = Home::new();
    let model = home.script(Script::new().turns([
        reply("hello"),
        call("write_file", json!({ "path": "x", "content": "x" })),
        reply("{result:0}"),
    ]));
    chat(&home, &["--model", &model, "--mode", "edit"], "hi\n/mode plan\nwrite\n").exits_with(0);
    assert_eq!(text(home.work().join("x")), "");
    chat(&home, &["--model", &model, "--mode", "plan"], "hi\n/mode edit\nwrite\n").exits_with(0);
    assert_eq!(text(home.work().join("x")), "x");
}

#[test]
fn json_format_prints_one_object_per_round() {
    let home = Home::new();
    let model = home.script(echo());
    let done = chat(&home, &["--model", &model, "--output-format", "json"], "one\ntwo\n");
    let lines = done.exits_with(0).lines();
    assert_eq!(lines.len(), 2);
    assert_eq!((&lines[0]["result"], &lines[1]["result"]), (&"first: one".into(), &"turn 2: two".into()));
    assert_eq!(lines[0]["session_id"], lines[1]["session_id"]);
}

#[test]
fn line_mode_attaches_files_and_sends_exclamation_lines() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let model = home.script(Script::new().reply("{heard}"));
    home.write("work/notes.txt", "Tea needs hot water.");
    let done = chat(&home, &["--model", &model], "sum up @notes.txt\n!touch made\nask @alice\n");
    console.add(done.exits_with(0));
    assert_eq!(
        done.stdout,
        "sum up @notes.txt\n\nFile notes.txt:\n```\nTea needs hot water.\n```\n!touch made\nask @alice\n"
    );
    assert!(!home.work().join("made").exists(), "a program that writes messages runs no commands");
    let denied = chat(
        &home,
        &["--model", &model, "--set", "permissions.deny=[\"read_file(notes.txt)\"]"],
        "sum up @notes.txt\n",
    );
    console.add(denied.exits_with(0));
    assert!(!denied.stdout.contains("hot water"), "{}", denied.stdout);
    insta::assert_snapshot!(console.text());
}

#[test]
fn line_mode_supports_undo_clear_and_compact() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let model = home.script(Script::new().reply(reply("They talked.").purpose(Purpose::Compaction)).turns([
        call("write_file", json!({ "path": "x", "content": "x" })).task("write"),
        reply("turn {turn}: {heard}"),
    ]));
    let input = "/undo\nwrite\n/undo\nmore\n/undo\n/compact\nagain\n/clear\nfresh\n/compact\n";
    let done = chat(&home, &["--model", &model], input);
    console.add(done.exits_with(0));
    let shown: Vec<&str> = done.stdout.lines().filter(|line| !line.is_empty()).collect();
    assert_eq!(
        shown[..6],
        [
            "turn 2: write",
            "removed x, which was created in the round",
            "turn 3: more",
            "I undid the latest edits to: x",
            "The last round edited no files. Changes by commands are not undone.",
            "turn 5: again",
        ]
    );
    assert!(shown[6].starts_with("Started a new session. Resume the last one: /resume "), "{shown:?}");
    assert_eq!(shown[7..], ["turn 1: fresh"]);
    assert!(!home.work().join("x").exists());
    let list = home.brigade(&["sessions", "list", "--output-format", "json"]).json();
    assert_eq!(list.as_array().unwrap().len(), 2);
    insta::assert_snapshot!(console.text());
}

#[test]
fn text_before_a_tool_call_is_printed_without_a_terminal() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let script = Script::new().turns([
        reply("Let me see.\n\nI look at **the notes**.").call("echo", json!({ "text": "x" })),
        reply("Done. All of it."),
    ]);
    let done = home.run(script, &[]);
    console.add(done.exits_with(0));
    assert!(!done.stderr.contains("All of it"), "the result is no thought: {}", done.stderr);
    insta::assert_snapshot!(console.text());
}
