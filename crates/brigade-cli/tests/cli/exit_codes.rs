//! Exit codes of all ways in which a command can end.

use crate::support::{CommandResult, Home};

const HELLO: &str = "[[reply]]\ntext = 'hello'";
const ENDLESS: &str = "[[reply]]\npurpose = 'grace'\ntext = 'this far'\n\
                       [[reply]]\ntext = 'on'\n[[reply.call]]\ntool = 'echo'\narguments = { text = '{turn}' }";

#[test]
fn done_is_0_and_prints_only_the_result() {
    let home = Home::new();
    let done = home.run(HELLO, &[]);
    assert_eq!(done.exits_with(0).stdout, "hello\n");
    done.stderr_contains("lead").stderr_contains("brigade sessions show ");
}

#[test]
fn task_is_read_from_stdin() {
    let home = Home::new();
    let model = home.script("[[reply]]\ntext = '{task}'");
    for arguments in [vec!["run", "--model", &model], vec!["run", "--model", &model, "-"]] {
        let done = home.with_input(&arguments, "from a pipe");
        assert!(done.exits_with(0).stdout.contains("from a pipe"));
    }
}

#[test]
fn failed_is_1_and_prints_the_cause() {
    let home = Home::new();
    home.run("[[reply]]\nfault = 'refused'", &[])
        .exits_with(1)
        .stderr_contains("the scripted model refuses")
        .stderr_contains("brigade resume ");
    home.run("[[reply]]\nagent = 'nobody'\ntext = 'x'", &[])
        .exits_with(1)
        .stderr_contains("the script has no reply for lead at turn 1");
}

#[test]
fn incomplete_is_3_with_partial_result_and_raising_flag() {
    let home = Home::new();
    let done = home.run(ENDLESS, &["--max-turns", "3"]);
    done.exits_with(3)
        .stdout_contains("this far")
        .stderr_contains("Stopped at the turn limit of 3.")
        .stderr_contains("--max-turns 6");
    let id = done.stderr.split_whitespace().find(|word| word.len() == 26).unwrap().to_owned();
    home.brigade(&["resume", &id, "--max-turns", "4"]).exits_with(3).stderr_contains("--max-turns 8");
    home.run(ENDLESS, &["--budget-tokens", "20000", "--max-turns", "5000"])
        .exits_with(3)
        .stderr_contains("--budget-tokens 40000");
    let priced = format!("[price]\ninput = 100.0\noutput = 100.0\n{ENDLESS}");
    home.run(&priced, &["--budget-usd", "1.5", "--max-turns", "5000"])
        .exits_with(3)
        .stderr_contains("--budget-usd 3");
    home.run("[[reply]]\npurpose = 'grace'\ntext='late'\n[[reply]]\nfault = 'hang'", &["--timeout", "300ms"])
        .exits_with(3)
        .stderr_contains("Stopped at the time limit of 300ms.")
        .stderr_contains("--timeout 10s");
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
    let priced = "[price]\ninput = 10.0\noutput = 20.0\n\
                  [[reply]]\nturn = 1\n[[reply.call]]\ntool = 'echo'\narguments = { text = 'x' }\n\
                  [[reply]]\ntext = 'finished'\n";
    for (limit, reason) in [
        (
            ["--budget-tokens", "5k"],
            "Stopped at the token limit of 5000: 0 used; the next call could use up to ",
        ),
        (
            ["--budget-usd", "$0.02"],
            "Stopped at the cost limit of $0.02: $0.00 spent; the next call could cost up to $0.0",
        ),
        (["--max-turns", "1"], "Stopped at the turn limit of 1."),
    ] {
        let stopped = home.run(priced, &limit);
        stopped.exits_with(3).stderr_contains(reason);
        let done = continue_as_told(&home, &stopped);
        assert_eq!(done.exits_with(0).stdout, "finished\n", "{limit:?}");
    }
    let report = home.report(priced, &["--budget-tokens", "5000"]);
    assert_eq!(
        (&report["turns"], &report["cost_usd"], &report["result"]),
        (&0.into(), &0.0.into(), &"".into())
    );
}

#[test]
fn repeated_calls_stop_the_run() {
    let home = Home::new();
    let script = "[[reply]]\npurpose = 'grace'\ntext = 'stuck'\n[[reply]]\n[[reply.call]]\ntool = 'echo'\n\
                  arguments = { text = 'x' }\n";
    let stopped = home.run(script, &["--set", "limits.loop_limit=4"]);
    stopped
        .exits_with(3)
        .stdout_contains("stuck")
        .stderr_contains("made the same calls with the same results")
        .stderr_contains("Resume: ");
    home.run(script, &["--set", "limits.loop_limit=0", "--max-turns", "12"])
        .exits_with(3)
        .stderr_contains("turn limit of 12");
    assert_eq!(home.report(script, &[])["limit"], "loop");
}

#[test]
fn usage_is_2() {
    let home = Home::new();
    let model = home.script(HELLO);
    let unknown = "a".repeat(26);
    let wrong: [(&[&str], &str); 19] = [
        (&["run", "--model", &model, "  "], "no task is given"),
        (&["run", "--model", &model], "no task is given"),
        (&["run", "the task"], "brigade demo"),
        (&["run", "--model", "script:/nowhere/s.toml", "x"], "/nowhere/s.toml"),
        (&["run", "--model", "anthropic/claude", "x"], "anthropic/claude"),
        (&["run", "--model", &model, "--agent", "coder", "x"], "coder"),
        (&["run", "--model", &model, "--mode", "yolo", "x"], "plan"),
        (&["run", "--model", &model, "--timeout", "soon", "x"], "duration"),
        (&["run", "--model", &model, "--budget-usd", "1e3", "x"], "dollars"),
        (&["run", "--model", &model, "--max-turns", "0", "x"], "0"),
        (&["run", "--model", &model, "--cwd", "/nowhere", "x"], "/nowhere"),
        (&["run", "--model", &model, "--nonsense", "x"], "--nonsense"),
        (&["resume", "not-an-id"], "is not a session id"),
        (&["resume", &unknown], "does not exist. List all sessions"),
        (&["tell", &unknown, "hi"], "does not exist. List all sessions"),
        (&["cancel", &unknown], "does not exist. List all sessions"),
        (&["sessions", "show", &unknown], "does not exist. List all sessions"),
        (&["sessions", "rm", &unknown], "does not exist. List all sessions"),
        (&["sessions", "import", "/nowhere/x"], "/nowhere/x"),
    ];
    for (arguments, words) in wrong {
        home.brigade(arguments).exits_with(2).stderr_contains(words);
    }
    let no_script = home.script("nonsense");
    home.brigade(&["run", "--model", &no_script, "x"]).exits_with(2).stderr_contains("script");
}

#[test]
fn help_prints_examples_and_creates_no_files() {
    let home = Home::new();
    home.brigade(&["--help"])
        .exits_with(0)
        .stdout_contains("Examples:")
        .stdout_contains("Exit codes:")
        .stdout_contains("brigade demo");
    home.brigade(&["--version"]).exits_with(0).stdout_contains("brigade ");
    home.brigade(&[]).exits_with(2);
    assert!(std::fs::read_dir(home.home()).unwrap().next().is_none(), "nothing is written");
}

#[test]
fn run_continues_after_failed_tool_calls() {
    let home = Home::new();
    home.write("work/a.txt", "content");
    let done = home.run(
        r#"
        [[reply]]
        turn = 1
        [[reply.call]]
        tool = "read_file"
        raw = '{"path":"a.txt","path":"b.txt"}'
        [[reply.call]]
        tool = "no_such_tool"
        [[reply.call]]
        tool = "read_file"
        arguments = { file = "a.txt" }
        [[reply.call]]
        tool = "read_file"
        raw = 'not json'
        [[reply]]
        turn = 2
        text = "{results}"
        "#,
        &[],
    );
    done.exits_with(0)
        .stdout_contains("path")
        .stdout_contains("no_such_tool")
        .stdout_contains("Invalid arguments for");
    assert!(!done.stdout.contains("content"), "{}", done.stdout);
}

#[test]
fn unusable_store_is_1() {
    let home = Home::new();
    home.run(HELLO, &["--store", "/proc/nowhere/s.db"]).exits_with(1).stderr_contains("/proc/nowhere");
    let store = home.work().join("new.db");
    let store = store.to_str().unwrap();
    home.run(HELLO, &["--store", store]).exits_with(0);
    // The format version of the store is at a fixed position in the file.
    let mut bytes = std::fs::read(store).unwrap();
    bytes[60..64].copy_from_slice(&9_999u32.to_be_bytes());
    std::fs::write(store, bytes).unwrap();
    home.run(HELLO, &["--store", store]).exits_with(1).stderr_contains("Upgrade Brigade");
    home.write("work/broken.db", &"this is no store ".repeat(100));
    home.run(HELLO, &["--store", "broken.db"]).exits_with(1).stderr_contains("broken.db");
}

#[test]
fn store_address_with_an_unknown_scheme_is_2() {
    let home = Home::new();
    let refusal = "brigade: store = \"postgres://db/brigade\" is not supported. Use \"sqlite\" or a path\n";
    for args in [["--store", "postgres://db/brigade"], ["--set", "store=postgres://db/brigade"]] {
        let done = home.run(HELLO, &args);
        done.exits_with(2);
        assert_eq!(done.stderr, refusal);
    }
}

#[test]
fn closed_stdout_exits_like_sigpipe() {
    let home = Home::new();
    let model = home.script(HELLO);
    let mut child = home.command(&["run", "--model", &model, "x"]).spawn().unwrap();
    drop(child.stdout.take());
    let done = crate::support::CommandResult::of(child.wait_with_output().unwrap());
    assert!(!done.stderr.contains("panic"), "{}", done.stderr);
    assert_eq!(done.code, 141);
    done.stderr_contains("brigade sessions show ");
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let done = home.command(&["run", "--model", &model, "x"]).stdout(full).output().unwrap();
    crate::support::CommandResult::of(done)
        .exits_with(1)
        .stderr_contains("cannot write to standard output")
        .stderr_contains("brigade sessions show ");
}
