//! `brigade init`: the generated configuration.

use std::os::unix::fs::PermissionsExt;

use brigade_testing::{HttpResponse, HttpServer};

use crate::cli::console::Console;
use crate::cli::support::{CommandResult, Home, text};

/// Server with these models, and its address.
fn server(models: &str) -> String {
    let list = models.split_whitespace().map(|model| format!("{{\"id\":\"{model}\"}}")).collect::<Vec<_>>();
    let body = format!("{{\"data\":[{}]}}", list.join(","));
    HttpServer::always(HttpResponse::new("200 OK", body)).url("/v1")
}

/// Runs a command without the model servers of the machine that runs the tests.
fn brigade(home: &Home, arguments: &[&str], variables: &[(&str, &str)]) -> CommandResult {
    let mut command = home.command(arguments);
    for name in ["OLLAMA", "LMSTUDIO", "LLAMACPP", "VLLM"] {
        command.env(format!("BRIGADE_PROVIDERS__{name}__BASE_URL"), "http://127.0.0.1:9/v1");
    }
    CommandResult::run(command.envs(variables.iter().copied()))
}

/// Line numbers of the commented-out settings.
fn examples(config: &str) -> Vec<usize> {
    let is_example = |line: &str| line.starts_with('#') && !line.starts_with("# ");
    config.lines().enumerate().filter(|(_, line)| is_example(line)).map(|(at, _)| at).collect()
}

/// File with some of its settings uncommented. A file with a model contains that key twice.
fn switched_on(config: &str, wanted: &[usize]) -> String {
    let line = |(at, line): (usize, &str)| match wanted.contains(&at) {
        true => line.strip_prefix('#').unwrap().to_owned(),
        false => line.to_owned(),
    };
    config.lines().enumerate().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn init_with_flags_asks_nothing() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let done = brigade(&home, &["init", "--model", "ollama/qwen3", "--mode", "plan"], &[]);
    let file = home.home().join("config.toml");
    assert_eq!(done.exits_with(0).stdout.trim_end(), file.to_str().unwrap());
    console.add(&done);
    assert!(!done.stderr.contains("key"), "{}", done.stderr);
    let shown = home.brigade(&["config", "show", "--output-format", "json"]).exits_with(0).json();
    assert_eq!(shown["config"]["model"], "ollama/qwen3");
    assert_eq!(shown["config"]["permissions"]["mode"], "plan");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let left: Vec<_> = std::fs::read_dir(home.home()).unwrap().collect();
    assert_eq!(left.len(), 1, "no temporary file stays");
    insta::assert_snapshot!(console.text());
}

#[test]
fn every_commented_setting_of_the_template_is_valid() {
    for arguments in [&["init", "--yes", "--model", "ollama/qwen3"][..], &["init", "--project"]] {
        let home = Home::new();
        brigade(&home, arguments, &[]).exits_with(0);
        let is_project = arguments.contains(&"--project");
        let file = if is_project {
            home.work().join(".brigade/config.toml")
        } else {
            home.home().join("config.toml")
        };
        let config = text(&file);
        let examples = examples(&config);
        assert!(examples.len() > 12, "{config}");
        let check = |wanted: &[usize]| {
            let changed = switched_on(&config, wanted);
            std::fs::write(&file, &changed).unwrap();
            if is_project {
                home.brigade(&["trust", "--yes"]).exits_with(0);
            }
            // Rules and search engines are validated when the tools are created.
            let done = home.brigade(&["tools", "list"]);
            assert_eq!(done.code, 0, "{}\n{changed}", done.stderr);
            assert!(!done.stderr.contains("ignored"), "{}", done.stderr);
            home.brigade(&["config", "show", "--output-format", "json"]).exits_with(0).json()
        };
        for example in &examples {
            check(&[*example]);
        }
        let shown = check(&examples);
        assert_eq!(shown["config"]["swarm"]["roles"]["researcher"]["tools"][0], "grep");
        assert_eq!(shown["config"]["budget"]["usd"], "unlimited");
    }
}

#[test]
fn init_yes_takes_the_first_usable_model() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let keys = [("GROQ_API_KEY", "sesame"), ("ANTHROPIC_API_KEY", "sesame")];
    let done = brigade(&home, &["init"], &keys);
    console.add(done.exits_with(0));
    let file = text(home.home().join("config.toml"));
    assert!(file.contains("\nmodel = \"anthropic/") && file.contains("\nmode = \"edit\""), "{file}");
    assert!(!format!("{file}{}{}", done.stdout, done.stderr).contains("sesame"));

    let home = Home::new();
    console.enter(&home);
    let local = server("qwen3:8b another");
    let done = brigade(&home, &["init", "--yes"], &[("BRIGADE_PROVIDERS__VLLM__BASE_URL", &local)]);
    console.add(done.exits_with(0));
    insta::assert_snapshot!(console.text());
}

#[test]
fn init_without_a_usable_model_writes_nothing_and_lists_needs() {
    let home = Home::new();
    let mut console = Console::new(&home);
    for arguments in [&["init"][..], &["init", "--yes"], &["init", "--mode", "edit"]] {
        let done = brigade(&home, arguments, &[]);
        console.add(done.exits_with(2));
        assert!(std::fs::read_dir(home.home()).unwrap().next().is_none(), "nothing is written");
    }
    // The second run replaces nothing that is in the way.
    console.add(brigade(&home, &["init", "--yes"], &[("GROQ_API_KEY", "sesame")]).exits_with(0));
    insta::assert_snapshot!(console.text());
}

#[test]
fn init_names_the_missing_key() {
    let home = Home::new();
    let done = brigade(&home, &["init", "--model", "groq/x", "--yes", "--output-format", "json"], &[]);
    let report = done.exits_with(0).json();
    assert_eq!((&report["model"], &report["mode"]), (&"groq/x".into(), &"edit".into()));
    assert_eq!(report["next"], "brigade run \"What is in this directory?\"");
    let home = Home::new();
    let mut console = Console::new(&home);
    console.add(brigade(&home, &["init", "--model", "groq/x", "--yes"], &[]).exits_with(0));
    insta::assert_snapshot!(console.text());
}

#[test]
fn init_keeps_an_existing_config_without_force() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let file = home.write("home/config.toml", "# mine\n[broken");
    let done = brigade(&home, &["init", "--yes"], &[]);
    console.add(done.exits_with(2));
    assert_eq!(text(&file), "# mine\n[broken");
    let none = brigade(&home, &["init", "--yes", "--force"], &[]);
    console.add(none.exits_with(2));
    assert_eq!(text(&file), "# mine\n[broken", "without a model it stays too");
    let model = ["init", "--yes", "--model", "ollama/qwen3", "--force"];
    console.add(brigade(&home, &model, &[]).exits_with(0));
    assert_eq!(text(home.home().join("config.toml.bak")), "# mine\n[broken");
    home.brigade(&["config", "show"]).exits_with(0);

    let home = Home::new();
    console.enter(&home);
    home.write("home/config.json", "{}");
    console.add(brigade(&home, &["init", "--yes"], &[]).exits_with(2));
    console.add(brigade(&home, &model, &[]).exits_with(0));
    home.brigade(&["config", "show"]).exits_with(0);
    insta::assert_snapshot!(console.text());
}

#[test]
fn init_refuses_an_unknown_model_before_writing() {
    let home = Home::new();
    let mut console = Console::new(&home);
    for model in ["claude", "antropic/claude", "ollama/", "script:nowhere.toml"] {
        console.add(brigade(&home, &["init", "--yes", "--model", model], &[]).exits_with(2));
    }
    console.add(brigade(&home, &["init", "--yes", "--mode", "yolo"], &[]).exits_with(2));
    assert!(std::fs::read_dir(home.home()).unwrap().next().is_none(), "nothing is written");
    home.write("work/s.toml", "[[reply]]\ntext = 'hello'");
    brigade(&home, &["init", "--yes", "--model", "script:s.toml"], &[]).exits_with(0);
    let elsewhere = home.command(&["run", "x"]).current_dir("/").output().unwrap();
    assert_eq!(CommandResult::of(elsewhere).exits_with(0).stdout, "hello\n");
    insta::assert_snapshot!(console.text());
}

#[test]
fn init_project_writes_a_project_config_that_needs_trust() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let done = brigade(&home, &["init", "--project", "--mode", "plan"], &[("ANTHROPIC_API_KEY", "sesame")]);
    console.add(done.exits_with(0));
    let config = text(home.work().join(".brigade/config.toml"));
    assert!(config.contains("\n#model = ") && !config.contains("[providers]"), "{config}");
    home.brigade(&["trust", "--yes"]).exits_with(0);
    let shown = home.brigade(&["config", "show", "--output-format", "json"]).exits_with(0).json();
    assert_eq!(shown["config"]["permissions"]["mode"], "plan");
    console.add(brigade(&home, &["init", "--project"], &[]).exits_with(2));
    let own = home.work();
    let done = brigade(&home, &["init", "--project", "--force"], &[("HOME", own.to_str().unwrap())]);
    console.add(done.exits_with(2));
    insta::assert_snapshot!(console.text());
}

#[test]
fn init_names_a_home_that_cannot_be_written() {
    let home = Home::new();
    let mut console = Console::new(&home);
    home.write("work/file", "");
    let inside = home.work().join("file/home");
    let model = ["init", "--yes", "--model", "ollama/qwen3"];
    let done = brigade(&home, &model, &[("BRIGADE_HOME", inside.to_str().unwrap())]);
    console.add(done.exits_with(1));
    insta::assert_snapshot!(console.text());
}
