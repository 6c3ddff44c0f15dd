//! Exit codes of all ways in which a command can end.

use brigade_testing::{Fault, Purpose, Reply, Script, call, fault, reply};
use serde_json::json;

use crate::cli::console::Console;
use crate::cli::support::{CommandResult, Home};

fn hello() -> Script {
    Script::new().reply("hello")
}

fn endless() -> Script {
    Script::new()
        .reply(reply("this far").purpose(Purpose::Grace))
        .reply(reply("on").call("echo", json!({ "text": "{turn}" })))
}

#[test]
fn done_is_0_and_prints_only_the_result() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let done = home.run(hello(), &[]);
    assert_eq!(done.exits_with(0).stdout, "hello\n");
    console.add(&done);
    insta::assert_snapshot!(console.text());
}

#[test]
fn task_is_read_from_stdin() {
    let home = Home::new();
    let model = home.script(Script::new().reply("{task}"));
    for arguments in [vec!["run", "--model", &model], vec!["run", "--model", &model, "-"]] {
        let done = home.with_input(&arguments, "from a pipe");
        assert!(done.exits_with(0).stdout.contains("from a pipe"));
    }
}

#[test]
fn failed_is_1_and_prints_the_cause() {
    let home = Home::new();
    let mut console = Console::new(&home);
    console.add(home.run(Script::new().reply(fault(Fault::Refused)), &[]).exits_with(1));
    console.add(home.run(Script::new().agent("nobody", [reply("x")]), &[]).exits_with(1));
    insta::assert_snapshot!(console.text());
}

#[test]
fn incomplete_is_3_with_partial_result_and_raising_flag() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let done = home.run(endless(), &["--max-turns", "3"]);
    console.add(done.exits_with(3));
    let id = done.stderr.split_whitespace().find(|word| word.len() == 26).unwrap().to_owned();
    console.add(home.brigade(&["resume", &id, "--max-turns", "4"]).exits_with(3));
    // The number of turns depends on estimates, so that these are not in the snapshot.
    home.run(endless(), &["--budget-tokens", "20000", "--max-turns", "5000"])
        .exits_with(3)
        .stderr_contains("--budget-tokens 40000");
    home.run(endless().price(100.0, 100.0), &["--budget-usd", "1.5", "--max-turns", "5000"])
        .exits_with(3)
        .stderr_contains("--budget-usd 3");
    console.add(
        home.run(
            Script::new().reply(reply("late").purpose(Purpose::Grace)).reply(fault(Fault::Hang)),
            &["--timeout", "300ms"],
        )
        .exits_with(3),
    );
    insta::assert_snapshot!(console.text());
}

/// Runs the resume command that a stopped run printed.
fn continue_as_told(home: &Home, stopped: &CommandResult) -> CommandResult {
    let line = stopped.stderr.lines().find(|line| line.starts_with("Resume:")).unwrap();
    let words: Vec<&str> = line.split_once("brigade ").unwrap().1.split_whitespace().collect();
    home.brigade(&words)
}

#[test]
fn stopped_run_prints_usage_and_a_resume_command_that_works() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let priced =
        Script::new().price(10.0, 20.0).turns([call("echo", json!({ "text": "x" })), reply("finished")]);
    for limit in [["--budget-tokens", "5k"], ["--budget-usd", "$0.02"], ["--max-turns", "1"]] {
        let stopped = home.run(&priced, &limit);
        console.add(stopped.exits_with(3));
        let done = continue_as_told(&home, &stopped);
        assert_eq!(done.exits_with(0).stdout, "finished\n", "{limit:?}");
    }
    let report = home.report(&priced, &["--budget-tokens", "5000"]);
    assert_eq!(
        (&report["turns"], &report["cost_usd"], &report["result"]),
        (&0.into(), &0.0.into(), &"".into())
    );
    insta::assert_snapshot!(console.text());
}

#[test]
fn repeated_calls_stop_the_run() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let script = Script::new()
        .reply(reply("stuck").purpose(Purpose::Grace))
        .reply(call("echo", json!({ "text": "x" })));
    let stopped = home.run(&script, &["--set", "limits.loop_limit=4"]);
    console.add(stopped.exits_with(3));
    console.add(home.run(&script, &["--set", "limits.loop_limit=0", "--max-turns", "12"]).exits_with(3));
    assert_eq!(home.report(&script, &[])["limit"], "loop");
    insta::assert_snapshot!(console.text());
}

#[test]
fn usage_is_2() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let model = home.script(hello());
    let unknown = "a".repeat(26);
    let wrong: [&[&str]; 19] = [
        &["run", "--model", &model, "  "],
        &["run", "--model", &model],
        &["run", "the task"],
        &["run", "--model", "script:/nowhere/s.toml", "x"],
        &["run", "--model", "anthropic/claude", "x"],
        &["run", "--model", &model, "--agent", "coder", "x"],
        &["run", "--model", &model, "--mode", "yolo", "x"],
        &["run", "--model", &model, "--timeout", "soon", "x"],
        &["run", "--model", &model, "--budget-usd", "1e3", "x"],
        &["run", "--model", &model, "--max-turns", "0", "x"],
        &["run", "--model", &model, "--cwd", "/nowhere", "x"],
        &["run", "--model", &model, "--nonsense", "x"],
        &["resume", "not-an-id"],
        &["resume", &unknown],
        &["tell", &unknown, "hi"],
        &["cancel", &unknown],
        &["sessions", "show", &unknown],
        &["sessions", "rm", &unknown],
        &["sessions", "import", "/nowhere/x"],
    ];
    for arguments in wrong {
        console.add(home.brigade(arguments).exits_with(2));
    }
    let no_script = home.script("nonsense");
    console.add(home.brigade(&["run", "--model", &no_script, "x"]).exits_with(2));
    insta::assert_snapshot!(console.text());
}

#[test]
fn help_prints_examples_and_creates_no_files() {
    let home = Home::new();
    let mut console = Console::new(&home);
    console.add(home.brigade(&["--help"]).exits_with(0));
    home.brigade(&["--version"]).exits_with(0).stdout_contains("brigade ");
    home.brigade(&[]).exits_with(2);
    assert!(std::fs::read_dir(home.home()).unwrap().next().is_none(), "nothing is written");
    insta::assert_snapshot!(console.text());
}

#[test]
fn run_continues_after_failed_tool_calls() {
    let home = Home::new();
    let mut console = Console::new(&home);
    home.write("work/a.txt", "content");
    let done = home.run(
        Script::new().turns([
            Reply::default()
                .raw_call("read_file", r#"{"path":"a.txt","path":"b.txt"}"#)
                .call("no_such_tool", json!({}))
                .call("read_file", json!({ "file": "a.txt" }))
                .raw_call("read_file", "not json"),
            reply("{results}").turn(2),
        ]),
        &[],
    );
    console.add(done.exits_with(0));
    assert!(!done.stdout.contains("content"), "{}", done.stdout);
    insta::assert_snapshot!(console.text());
}

#[test]
fn unusable_store_is_1() {
    let home = Home::new();
    let mut console = Console::new(&home);
    console.add(home.run(hello(), &["--store", "/proc/nowhere/s.db"]).exits_with(1));
    let store = home.work().join("new.db");
    let store = store.to_str().unwrap();
    home.run(hello(), &["--store", store]).exits_with(0);
    // The format version of the store is at a fixed position in the file.
    let mut bytes = std::fs::read(store).unwrap();
    bytes[60..64].copy_from_slice(&9_999u32.to_be_bytes());
    std::fs::write(store, bytes).unwrap();
    console.add(home.run(hello(), &["--store", store]).exits_with(1));
    home.write("work/broken.db", &"this is no store ".repeat(100));
    console.add(home.run(hello(), &["--store", "broken.db"]).exits_with(1));
    insta::assert_snapshot!(console.text());
}

#[test]
fn store_address_with_an_unknown_scheme_is_2() {
    let home = Home::new();
    let refusal = "brigade: a store with a postgres:// address is not supported. Use the path of a file.\n";
    for args in [["--store", "postgres://db/brigade"], ["--set", "store=postgres://db/brigade"]] {
        let done = home.run(hello(), &args);
        done.exits_with(2);
        assert_eq!(done.stderr, refusal);
    }
}

#[test]
fn closed_stdout_exits_like_sigpipe() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let model = home.script(hello());
    let mut command = home.command(&["run", "--model", &model, "x"]);
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    let done = CommandResult::of(child.wait_with_output().unwrap()).named(&command);
    assert!(!done.stderr.contains("panic"), "{}", done.stderr);
    assert_eq!(done.code, 141);
    console.add(&done);
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let done = CommandResult::run(home.command(&["run", "--model", &model, "x"]).stdout(full));
    console.add(done.exits_with(1));
    insta::assert_snapshot!(console.text());
}
