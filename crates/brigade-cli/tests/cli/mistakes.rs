//! What newcomers type wrong: every refusal names the thing, the cause and the cure.

use crate::support::{Done, Home};

#[track_caller]
fn refused(home: &Home, arguments: &[&str], code: i32, words: &[&str]) {
    let done = home.brigade(arguments);
    done.exits(code);
    for word in words {
        done.says(word);
    }
    assert!(done.stdout.is_empty(), "{}", done.stdout);
    assert!(!done.stderr.contains("panicked"), "{}", done.stderr);
}

#[test]
fn words_that_are_no_command_are_a_task_or_a_slip() {
    let home = Home::new();
    refused(&home, &["do x"], 2, &["unrecognized subcommand 'do x'", "brigade run 'do x'"]);
    refused(&home, &["fix", "the", "bug"], 2, &["brigade run 'fix the bug'"]);
    refused(&home, &["rnu", "--help"], 2, &["Perhaps you mean: brigade run"]);
    refused(&home, &["sesions", "list"], 2, &["sessions"]);
    refused(&home, &["sessions", "shwo"], 2, &["'show'"]);
    refused(&home, &["run", "--budget-uds", "1"], 2, &["'--budget-usd'"]);
}

#[test]
fn help_for_a_word_that_is_no_command_names_the_nearest() {
    let home = Home::new();
    refused(&home, &["help", "foo"], 2, &["unrecognized subcommand 'foo'", "brigade help"]);
    refused(&home, &["help", "rnu"], 2, &["Perhaps you mean: brigade help run"]);
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
        refused(&home, &["run", flag, "-1", "x"], 2, &[flag, words]);
        let done = home.brigade(&["run", flag, "-1", "x"]);
        assert!(!done.stderr.contains("'-- -1'"), "{}", done.stderr);
    }
}

#[test]
fn a_store_that_does_not_exist_is_created_aloud_or_not_at_all() {
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
        refused(&home, &[&["--store", "other.db"], command].concat(), 2, &words);
        assert!(!file.exists(), "{command:?} made a store");
    }
    let listed = home.brigade(&["sessions", "list", "--store", "other.db"]);
    listed.exits(0).says(&format!("warning: the session store {named} does not exist"));
    assert!(!file.exists(), "looking made a store");
    let created = format!("Created a new session store: {named}");
    home.brigade(&["run", "--model", &model, "--store", "other.db", "x"]).exits(0).says(&created);
    let again = home.brigade(&["run", "--model", &model, "--store", "other.db", "x"]);
    assert!(!again.exits(0).stderr.contains("Created"), "{}", again.stderr);
    let usual = home.brigade(&["run", "--model", &model, "x"]);
    assert!(!usual.exits(0).stderr.contains("Created"), "the usual place needs no word: {}", usual.stderr);
}

#[test]
fn without_a_model_three_lines_say_how_to_get_one() {
    let home = Home::new();
    let done = home.brigade(&["run", "count the files"]);
    done.exits(2).says("no model is set").says("ANTHROPIC_API_KEY").says("brigade run --model anthropic/");
    done.says("ollama pull qwen3").says("--model ollama/qwen3 'count the files'").says("brigade init");
    done.says("brigade demo");
    assert_eq!(done.stderr.lines().count(), 3, "{}", done.stderr);
    let mut command = home.command(&["run", "count the files"]);
    let done = Done::of(command.env("GROQ_API_KEY", "sesame").output().unwrap());
    let first = done.exits(2).stderr.lines().next().unwrap().to_owned();
    assert!(first.contains("GROQ_API_KEY is set") && first.contains("brigade run --model groq/"), "{first}");
    assert!(!done.stderr.contains("sesame"), "{}", done.stderr);
    let long = "x ".repeat(200);
    let done = home.brigade(&["run", &long]);
    assert!(!done.exits(2).stderr.contains(&long), "a long task is not repeated");
}

#[test]
fn models_that_are_not_there_name_the_one_that_may_be_meant() {
    let home = Home::new();
    let run = |model: &str, words: &[&str]| refused(&home, &["run", "--model", model, "x"], 2, words);
    run(
        "antropic/claude-sonnet-5",
        &["'antropic/claude-sonnet-5'", "Perhaps you mean anthropic/claude-sonnet-5"],
    );
    run("claude-sonnet-5", &["Perhaps you mean anthropic/claude-sonnet-5", "brigade models"]);
    run("ollama", &["Perhaps you mean ollama/qwen3"]);
    run(
        "anthropic/claude-sonnet-5",
        &["ANTHROPIC_API_KEY is not set", "export ANTHROPIC_API_KEY=", "brigade demo"],
    );
    run("whatever", &["there is no model 'whatever'", "Write PROVIDER/MODEL"]);
    run("script:plan.toml", &["plan.toml cannot be read"]);
    refused(&home, &["models", "antropic"], 2, &["the nearest is 'anthropic'"]);
    let far = home.brigade(&["models", "foo"]);
    far.exits(2).says("there is no provider 'foo'");
    assert!(!far.stderr.contains("nearest"), "{}", far.stderr);
}

#[test]
fn folders_and_ids_that_are_not_there_say_where_to_look() {
    let home = Home::new();
    let model = home.script("[[reply]]\ntext = 'x'");
    home.write("work/file", "");
    for folder in ["/nowhere", "file"] {
        refused(&home, &["run", "--model", &model, "--cwd", folder, "x"], 2, &[folder, "--cwd"]);
    }
    for command in [&["resume"][..], &["sessions", "show"], &["cancel"]] {
        let with = |id: &'static str| [command, &[id]].concat();
        refused(&home, &with("abc"), 2, &["'abc' is not a session id", "brigade sessions list"]);
        refused(
            &home,
            &with("aaaaaaaaaaaaaaaaaaaaaaaaaa"),
            2,
            &["there is no session", "brigade sessions list"],
        );
    }
    refused(&home, &["agents", "show", "nobody"], 2, &["nobody", "brigade agents list"]);
    refused(
        &home,
        &["run", "--model", &model, "--agent", "nobody", "x"],
        2,
        &["nobody", "brigade agents list"],
    );
}

#[test]
fn places_that_cannot_be_written_name_another_way() {
    let home = Home::new();
    let model = home.script("[[reply]]\ntext = 'x'");
    std::fs::create_dir(home.work().join("folder")).unwrap();
    refused(
        &home,
        &["run", "--model", &model, "--store", "folder", "x"],
        1,
        &["folder", "directory", "--store"],
    );
    refused(&home, &["sessions", "list", "--store", "folder"], 1, &["folder", "--store"]);
    home.write("work/file", "");
    let mut command = home.command(&["run", "--model", &model, "x"]);
    let done = Done::of(command.env("BRIGADE_HOME", home.work().join("file")).output().unwrap());
    done.exits(1).says("file/sessions.db cannot be written").says("--store");
}

/// Root may write everywhere, so this says something only for other people.
#[test]
fn a_home_without_the_right_to_write_is_named() {
    use std::os::unix::fs::PermissionsExt;
    let home = Home::new();
    let model = home.script("[[reply]]\ntext = 'x'");
    std::fs::set_permissions(home.home(), std::fs::Permissions::from_mode(0o500)).unwrap();
    if std::fs::write(home.home().join("probe"), "").is_ok() {
        return;
    }
    refused(&home, &["run", "--model", &model, "x"], 1, &["sessions.db cannot be written", "--store"]);
    let init = ["init", "--yes", "--model", "ollama/qwen3"];
    refused(&home, &init, 1, &["config.toml cannot be written", "BRIGADE_HOME"]);
    home.brigade(&["doctor", "--offline"])
        .exits(1)
        .prints("sessions.db cannot be made")
        .prints("--store PATH");
}

#[test]
fn configs_that_are_wrong_name_file_key_and_cure() {
    let home = Home::new();
    let file = home.write("home/config.toml", "[limits]\nlead_turn = 3\n");
    refused(&home, &["run", "x"], 2, &[file.to_str().unwrap(), "`limits.lead_turn`", "`limits.lead_turns`"]);
    home.write("home/config.toml", "model = ollama/qwen3\n");
    refused(&home, &["run", "x"], 2, &[file.to_str().unwrap(), "line 1"]);
    home.write("home/config.toml", "permissions.mode = 'yolo'\n");
    refused(&home, &["run", "x"], 2, &["`permissions.mode` has to be one of plan, ask, edit, auto"]);
}

#[test]
fn the_parser_suggests_what_is_nearest() {
    let home = Home::new();
    let flag = home.brigade(&["run", "--modle", "x", "hi"]);
    flag.exits(2).says("a similar argument exists: '--model'");
    assert!(!flag.stderr.contains("--mode "), "{}", flag.stderr);
    for word in ["version", "status"] {
        let done = home.brigade(&[word]);
        assert!(!done.exits(2).stderr.contains("similar"), "{}", done.stderr);
    }
    home.brigade(&["sesions"]).exits(2).says("a similar subcommand exists: 'sessions'");
    home.brigade(&["sessions", "shwo"]).exits(2).says("a similar subcommand exists: 'show'");
}
