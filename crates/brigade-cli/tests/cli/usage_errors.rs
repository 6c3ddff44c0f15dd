//! Mistakes of new users: every error names the object, the cause and the fix.

use crate::support::{CommandResult, Home};

#[track_caller]
fn assert_refused(home: &Home, arguments: &[&str], code: i32, words: &[&str]) {
    let done = home.brigade(arguments);
    done.exits_with(code);
    for word in words {
        done.stderr_contains(word);
    }
    assert!(done.stdout.is_empty(), "{}", done.stdout);
    assert!(!done.stderr.contains("panicked"), "{}", done.stderr);
}

#[test]
fn unknown_command_hints_at_run_or_the_nearest_command() {
    let home = Home::new();
    assert_refused(&home, &["do x"], 2, &["unrecognized subcommand 'do x'", "brigade run 'do x'"]);
    assert_refused(&home, &["fix", "the", "bug"], 2, &["brigade run 'fix the bug'"]);
    assert_refused(&home, &["rnu", "--help"], 2, &["Did you mean: brigade run"]);
    assert_refused(&home, &["sesions", "list"], 2, &["sessions"]);
    assert_refused(&home, &["sessions", "shwo"], 2, &["'show'"]);
    assert_refused(&home, &["run", "--budget-uds", "1"], 2, &["'--budget-usd'"]);
}

#[test]
fn help_for_an_unknown_command_names_the_nearest() {
    let home = Home::new();
    assert_refused(&home, &["help", "foo"], 2, &["unrecognized subcommand 'foo'", "brigade help"]);
    assert_refused(&home, &["help", "rnu"], 2, &["Did you mean: brigade help run"]);
    let done = home.brigade(&["help", "foo"]);
    assert!(!done.stderr.contains("brigade run"), "{}", done.stderr);
}

#[test]
fn negative_limits_are_refused_with_the_reason() {
    let home = Home::new();
    for (flag, words) in [
        ("--budget-usd", "'-1' is not an amount of dollars"),
        ("--budget-tokens", "'-1' is not a whole number"),
        ("--max-agents", "'-1' is not a whole number"),
        ("--max-turns", "-1 is not in 1"),
        ("--timeout", "'-1' is not a duration"),
    ] {
        assert_refused(&home, &["run", flag, "-1", "x"], 2, &[flag, words]);
        let done = home.brigade(&["run", flag, "-1", "x"]);
        assert!(!done.stderr.contains("'-- -1'"), "{}", done.stderr);
    }
}

#[test]
fn missing_store_is_created_with_a_note_or_not_at_all() {
    let home = Home::new();
    let model = home.script("[[reply]]\ntext = 'x'");
    let file = home.work().join("other.db");
    let named = file.to_str().unwrap();
    for command in [
        &["resume", "last"][..],
        &["resume"],
        &["tell", "last", "more"],
        &["cancel", "last"],
        &["answer", "last", "yes"],
        &["sessions", "rm", "last"],
    ] {
        let words = [&format!("cannot open the session store {named}: it does not exist"), "Check --store"];
        assert_refused(&home, &[&["--store", "other.db"], command].concat(), 2, &words);
        assert!(!file.exists(), "{command:?} made a store");
    }
    let listed = home.brigade(&["sessions", "list", "--store", "other.db"]);
    listed.exits_with(0).stderr_contains(&format!("warning: the session store {named} does not exist"));
    assert!(!file.exists(), "looking made a store");
    let created = format!("Created a new session store: {named}");
    home.brigade(&["run", "--model", &model, "--store", "other.db", "x"])
        .exits_with(0)
        .stderr_contains(&created);
    let again = home.brigade(&["run", "--model", &model, "--store", "other.db", "x"]);
    assert!(!again.exits_with(0).stderr.contains("Created"), "{}", again.stderr);
    let usual = home.brigade(&["run", "--model", &model, "x"]);
    assert!(
        !usual.exits_with(0).stderr.contains("Created"),
        "the usual place needs no word: {}",
        usual.stderr
    );
}

#[test]
fn run_without_a_model_says_how_to_get_one() {
    let home = Home::new();
    let done = home.brigade(&["run", "count the files"]);
    done.exits_with(2)
        .stderr_contains("no model is set")
        .stderr_contains("ANTHROPIC_API_KEY")
        .stderr_contains("brigade run --model anthropic/");
    done.stderr_contains("ollama pull qwen3")
        .stderr_contains("--model ollama/qwen3 'count the files'")
        .stderr_contains("brigade init");
    done.stderr_contains("brigade demo");
    assert_eq!(done.stderr.lines().count(), 3, "{}", done.stderr);
    let mut command = home.command(&["run", "count the files"]);
    let done = CommandResult::of(command.env("GROQ_API_KEY", "sesame").output().unwrap());
    let first = done.exits_with(2).stderr.lines().next().unwrap().to_owned();
    assert!(first.contains("GROQ_API_KEY is set") && first.contains("brigade run --model groq/"), "{first}");
    assert!(!done.stderr.contains("sesame"), "{}", done.stderr);
    let long = "x ".repeat(200);
    let done = home.brigade(&["run", &long]);
    assert!(!done.exits_with(2).stderr.contains(&long), "a long task is not repeated");
}

#[test]
fn unknown_model_error_suggests_the_nearest() {
    let home = Home::new();
    let run = |model: &str, words: &[&str]| assert_refused(&home, &["run", "--model", model, "x"], 2, words);
    run(
        "antropic/claude-sonnet-5",
        &["'antropic/claude-sonnet-5'", "Did you mean anthropic/claude-sonnet-5"],
    );
    run("claude-sonnet-5", &["Did you mean anthropic/claude-sonnet-5", "brigade models"]);
    run("ollama", &["Did you mean ollama/qwen3"]);
    run(
        "anthropic/claude-sonnet-5",
        &["ANTHROPIC_API_KEY is not set", "export ANTHROPIC_API_KEY=", "brigade demo"],
    );
    run("whatever", &["unknown model 'whatever'", "Use PROVIDER/MODEL"]);
    run("script:plan.toml", &["plan.toml: No such file"]);
    assert_refused(&home, &["models", "antropic"], 2, &["Did you mean 'anthropic'?"]);
    let far = home.brigade(&["models", "foo"]);
    far.exits_with(2).stderr_contains("unknown provider 'foo'");
    assert!(!far.stderr.contains("nearest"), "{}", far.stderr);
}

#[test]
fn missing_folder_or_id_error_says_where_to_look() {
    let home = Home::new();
    let model = home.script("[[reply]]\ntext = 'x'");
    home.write("work/file", "");
    for folder in ["/nowhere", "file"] {
        assert_refused(&home, &["run", "--model", &model, "--cwd", folder, "x"], 2, &[folder, "--cwd"]);
    }
    for command in [&["resume"][..], &["sessions", "show"], &["cancel"]] {
        let with = |id: &'static str| [command, &[id]].concat();
        assert_refused(&home, &with("abc"), 2, &["'abc' is not a session id", "brigade sessions list"]);
        assert_refused(
            &home,
            &with("aaaaaaaaaaaaaaaaaaaaaaaaaa"),
            2,
            &["does not exist. List all sessions", "brigade sessions list"],
        );
    }
    assert_refused(&home, &["agents", "show", "nobody"], 2, &["nobody", "brigade agents list"]);
    assert_refused(
        &home,
        &["run", "--model", &model, "--agent", "nobody", "x"],
        2,
        &["nobody", "brigade agents list"],
    );
}

#[test]
fn unwritable_path_error_names_an_alternative() {
    let home = Home::new();
    let model = home.script("[[reply]]\ntext = 'x'");
    std::fs::create_dir(home.work().join("folder")).unwrap();
    assert_refused(
        &home,
        &["run", "--model", &model, "--store", "folder", "x"],
        1,
        &["folder", "directory", "--store"],
    );
    assert_refused(&home, &["sessions", "list", "--store", "folder"], 1, &["folder", "--store"]);
    home.write("work/file", "");
    let mut command = home.command(&["run", "--model", &model, "x"]);
    let done = CommandResult::of(command.env("BRIGADE_HOME", home.work().join("file")).output().unwrap());
    done.exits_with(1)
        .stderr_contains("cannot write to ")
        .stderr_contains("file/sessions.db: ")
        .stderr_contains("--store");
}

/// Root may write everywhere, so this test checks something only for other users.
#[test]
fn unwritable_home_is_named() {
    use std::os::unix::fs::PermissionsExt;
    let home = Home::new();
    let model = home.script("[[reply]]\ntext = 'x'");
    std::fs::set_permissions(home.home(), std::fs::Permissions::from_mode(0o500)).unwrap();
    if std::fs::write(home.home().join("probe"), "").is_ok() {
        return;
    }
    assert_refused(
        &home,
        &["run", "--model", &model, "x"],
        1,
        &["cannot write to ", "/sessions.db: ", "--store"],
    );
    let init = ["init", "--yes", "--model", "ollama/qwen3"];
    assert_refused(&home, &init, 1, &["cannot write ", "config.toml: ", "BRIGADE_HOME"]);
    home.brigade(&["doctor", "--offline"])
        .exits_with(1)
        .stdout_contains("cannot create ")
        .stdout_contains("/sessions.db: cannot write to ")
        .stdout_contains("--store PATH");
}

#[test]
fn invalid_config_error_names_file_key_and_fix() {
    let home = Home::new();
    let file = home.write("home/config.toml", "[limits]\nlead_turn = 3\n");
    assert_refused(
        &home,
        &["run", "x"],
        2,
        &[file.to_str().unwrap(), "`limits.lead_turn`", "`limits.lead_turns`"],
    );
    home.write("home/config.toml", "model = ollama/qwen3\n");
    assert_refused(&home, &["run", "x"], 2, &[file.to_str().unwrap(), "line 1"]);
    home.write("home/config.toml", "permissions.mode = 'yolo'\n");
    assert_refused(&home, &["run", "x"], 2, &["`permissions.mode` must be one of plan, ask, edit, auto"]);
}

#[test]
fn the_parser_suggests_what_is_nearest() {
    let home = Home::new();
    let flag = home.brigade(&["run", "--modle", "x", "hi"]);
    flag.exits_with(2).stderr_contains("a similar argument exists: '--model'");
    assert!(!flag.stderr.contains("--mode "), "{}", flag.stderr);
    for word in ["version", "status"] {
        let done = home.brigade(&[word]);
        assert!(!done.exits_with(2).stderr.contains("similar"), "{}", done.stderr);
    }
    home.brigade(&["sesions"]).exits_with(2).stderr_contains("a similar subcommand exists: 'sessions'");
    home.brigade(&["sessions", "shwo"]).exits_with(2).stderr_contains("a similar subcommand exists: 'show'");
}
