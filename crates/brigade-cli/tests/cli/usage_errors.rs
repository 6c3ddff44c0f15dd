//! Mistakes of new users: every error names the object, the cause and the fix.

use brigade_testing::Script;

use crate::cli::console::Console;
use crate::cli::support::{CommandResult, Home};

#[track_caller]
fn add_refused(console: &mut Console, home: &Home, arguments: &[&str], code: i32) {
    let done = home.brigade(arguments);
    console.add(done.exits_with(code));
    assert!(done.stdout.is_empty(), "{}", done.stdout);
    assert!(!done.stderr.contains("panicked"), "{}", done.stderr);
}

#[test]
fn unknown_command_hints_at_run_or_the_nearest_command() {
    let home = Home::new();
    let mut console = Console::new(&home);
    add_refused(&mut console, &home, &["do x"], 2);
    add_refused(&mut console, &home, &["fix", "the", "bug"], 2);
    add_refused(&mut console, &home, &["rnu", "--help"], 2);
    add_refused(&mut console, &home, &["sesions", "list"], 2);
    add_refused(&mut console, &home, &["sessions", "shwo"], 2);
    add_refused(&mut console, &home, &["run", "--budget-uds", "1"], 2);
    insta::assert_snapshot!(console.text());
}

#[test]
fn help_for_an_unknown_command_names_the_nearest() {
    let home = Home::new();
    let mut console = Console::new(&home);
    add_refused(&mut console, &home, &["help", "foo"], 2);
    add_refused(&mut console, &home, &["help", "rnu"], 2);
    let done = home.brigade(&["help", "foo"]);
    assert!(!done.stderr.contains("brigade run"), "{}", done.stderr);
    insta::assert_snapshot!(console.text());
}

#[test]
fn negative_limits_are_refused_with_the_reason() {
    let home = Home::new();
    let mut console = Console::new(&home);
    for flag in ["--budget-usd", "--budget-tokens", "--max-agents", "--max-turns", "--timeout"] {
        add_refused(&mut console, &home, &["run", flag, "-1", "x"], 2);
        let done = home.brigade(&["run", flag, "-1", "x"]);
        assert!(!done.stderr.contains("'-- -1'"), "{}", done.stderr);
    }
    insta::assert_snapshot!(console.text());
}

#[test]
fn missing_store_is_created_with_a_note_or_not_at_all() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let model = home.script(Script::new().reply("x"));
    let file = home.work().join("other.db");
    for command in [
        &["resume", "last"][..],
        &["resume"],
        &["tell", "last", "more"],
        &["cancel", "last"],
        &["answer", "last", "yes"],
        &["sessions", "rm", "last"],
    ] {
        add_refused(&mut console, &home, &[&["--store", "other.db"], command].concat(), 2);
        assert!(!file.exists(), "{command:?} made a store");
    }
    let listed = home.brigade(&["sessions", "list", "--store", "other.db"]);
    console.add(listed.exits_with(0));
    assert!(!file.exists(), "looking made a store");
    console.add(home.brigade(&["run", "--model", &model, "--store", "other.db", "x"]).exits_with(0));
    let again = home.brigade(&["run", "--model", &model, "--store", "other.db", "x"]);
    assert!(!again.exits_with(0).stderr.contains("Created"), "{}", again.stderr);
    let usual = home.brigade(&["run", "--model", &model, "x"]);
    assert!(
        !usual.exits_with(0).stderr.contains("Created"),
        "the usual place needs no word: {}",
        usual.stderr
    );
    insta::assert_snapshot!(console.text());
}

#[test]
fn run_without_a_model_says_how_to_get_one() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let done = home.brigade(&["run", "count the files"]);
    console.add(done.exits_with(2));
    assert_eq!(done.stderr.lines().count(), 3, "{}", done.stderr);
    let mut command = home.command(&["run", "count the files"]);
    let done = CommandResult::run(command.env("GROQ_API_KEY", "sesame"));
    console.add(done.exits_with(2));
    assert!(!done.stderr.contains("sesame"), "{}", done.stderr);
    let long = "x ".repeat(200);
    let done = home.brigade(&["run", &long]);
    assert!(!done.exits_with(2).stderr.contains(&long), "a long task is not repeated");
    insta::assert_snapshot!(console.text());
}

#[test]
fn unknown_model_error_suggests_the_nearest() {
    let home = Home::new();
    let mut console = Console::new(&home);
    for model in [
        "antropic/claude-sonnet-5",
        "claude-sonnet-5",
        "ollama",
        "anthropic/claude-sonnet-5",
        "whatever",
        "script:plan.toml",
    ] {
        add_refused(&mut console, &home, &["run", "--model", model, "x"], 2);
    }
    add_refused(&mut console, &home, &["models", "antropic"], 2);
    let far = home.brigade(&["models", "foo"]);
    console.add(far.exits_with(2));
    assert!(!far.stderr.contains("nearest"), "{}", far.stderr);
    insta::assert_snapshot!(console.text());
}

#[test]
fn missing_folder_or_id_error_says_where_to_look() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let model = home.script(Script::new().reply("x"));
    home.write("work/file", "");
    for folder in ["/nowhere", "file"] {
        add_refused(&mut console, &home, &["run", "--model", &model, "--cwd", folder, "x"], 2);
    }
    for command in [&["resume"][..], &["sessions", "show"], &["cancel"]] {
        let with = |id: &'static str| [command, &[id]].concat();
        add_refused(&mut console, &home, &with("abc"), 2);
        add_refused(&mut console, &home, &with("aaaaaaaaaaaaaaaaaaaaaaaaaa"), 2);
    }
    add_refused(&mut console, &home, &["agents", "show", "nobody"], 2);
    add_refused(&mut console, &home, &["run", "--model", &model, "--agent", "nobody", "x"], 2);
    insta::assert_snapshot!(console.text());
}

#[test]
fn unwritable_path_error_names_an_alternative() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let model = home.script(Script::new().reply("x"));
    std::fs::create_dir(home.work().join("folder")).unwrap();
    add_refused(&mut console, &home, &["run", "--model", &model, "--store", "folder", "x"], 1);
    add_refused(&mut console, &home, &["sessions", "list", "--store", "folder"], 1);
    home.write("work/file", "");
    let mut command = home.command(&["run", "--model", &model, "x"]);
    let done = CommandResult::run(command.env("BRIGADE_HOME", home.work().join("file")));
    console.add(done.exits_with(1));
    insta::assert_snapshot!(console.text());
}

/// Root may write everywhere, so this test checks something only for other users.
#[test]
fn unwritable_home_is_named() {
    use std::os::unix::fs::PermissionsExt;
    let home = Home::new();
    let model = home.script(Script::new().reply("x"));
    std::fs::set_permissions(home.home(), std::fs::Permissions::from_mode(0o500)).unwrap();
    if std::fs::write(home.home().join("probe"), "").is_ok() {
        return;
    }
    home.brigade(&["run", "--model", &model, "x"])
        .exits_with(1)
        .stderr_contains("cannot write to ")
        .stderr_contains("/sessions.db: ")
        .stderr_contains("--store");
    home.brigade(&["init", "--yes", "--model", "ollama/qwen3"])
        .exits_with(1)
        .stderr_contains("cannot write ")
        .stderr_contains("config.toml: ")
        .stderr_contains("BRIGADE_HOME");
    home.brigade(&["doctor", "--offline"])
        .exits_with(1)
        .stdout_contains("cannot create ")
        .stdout_contains("/sessions.db: cannot write to ")
        .stdout_contains("--store PATH");
}

#[test]
fn invalid_config_error_names_file_key_and_fix() {
    let home = Home::new();
    let mut console = Console::new(&home);
    home.write("home/config.toml", "[limits]\nlead_turn = 3\n");
    add_refused(&mut console, &home, &["run", "x"], 2);
    home.write("home/config.toml", "model = ollama/qwen3\n");
    add_refused(&mut console, &home, &["run", "x"], 2);
    home.write("home/config.toml", "permissions.mode = 'yolo'\n");
    add_refused(&mut console, &home, &["run", "x"], 2);
    insta::assert_snapshot!(console.text());
}

#[test]
fn parser_suggests_what_is_nearest() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let flag = home.brigade(&["run", "--modle", "x", "hi"]);
    console.add(flag.exits_with(2));
    assert!(!flag.stderr.contains("--mode "), "{}", flag.stderr);
    for word in ["version", "status"] {
        let done = home.brigade(&[word]);
        assert!(!done.exits_with(2).stderr.contains("similar"), "{}", done.stderr);
    }
    console.add(home.brigade(&["sesions"]).exits_with(2));
    console.add(home.brigade(&["sessions", "shwo"]).exits_with(2));
    insta::assert_snapshot!(console.text());
}
