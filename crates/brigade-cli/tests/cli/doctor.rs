//! `brigade doctor`: findings and fixes.

use brigade_testing::{HttpResponse, HttpServer, Script};
use serde_json::Value;

use crate::cli::console::Console;
use crate::cli::support::{CommandResult, Home};

fn hello() -> Script {
    Script::new().reply("hello")
}

/// Server that responds to every request with this status and body, and its address.
fn server(status: &str, body: &str) -> String {
    HttpServer::always(HttpResponse::new(status, body)).url("/v1")
}

/// Runs `doctor` without the servers of the machine that runs the tests.
fn doctor(home: &Home, arguments: &[&str], variables: &[(&str, &str)]) -> CommandResult {
    let mut command = home.command(&[&["doctor"], arguments].concat());
    for name in ["OLLAMA", "LMSTUDIO", "LLAMACPP", "VLLM"] {
        command.env(format!("BRIGADE_PROVIDERS__{name}__BASE_URL"), "http://127.0.0.1:9/v1");
    }
    CommandResult::run(command.envs(variables.iter().copied()))
}

fn report(home: &Home, arguments: &[&str], variables: &[(&str, &str)]) -> Value {
    doctor(home, &[&["--output-format", "json"], arguments].concat(), variables).json()
}

/// Findings of a section, as `level: text / fix`.
fn section(report: &Value, name: &str) -> Vec<String> {
    let sections = report["sections"].as_array().unwrap();
    let section = sections.iter().find(|section| section["name"] == name).unwrap();
    let line = |finding: &Value| {
        let text = |key: &str| finding[key].as_str().unwrap_or_default().to_owned();
        format!("{}: {} / {}", text("level"), text("what"), text("cure"))
    };
    section["findings"].as_array().unwrap().iter().map(line).collect()
}

/// Adds the findings of these sections.
fn add_findings(console: &mut Console, report: &Value, names: &[&str]) {
    for name in names {
        let found = section(report, name);
        let lines = found.iter().filter(|line| !is_of_this_machine(line));
        let lines = lines.map(|line| line.trim_end_matches(" / ")).collect::<Vec<_>>();
        console.add_text(&format!("brigade doctor, {name}"), &lines.join("\n"));
    }
}

/// Whether a line depends on the machine or on the variables that `doctor` above sets.
fn is_of_this_machine(line: &str) -> bool {
    let words =
        ["free on the disk", "a test command ran", "Landlock: ", " brigade 0.", "BRIGADE_PROVIDERS__"];
    words.iter().any(|words| line.contains(words))
}

fn without_machine(done: &CommandResult) -> CommandResult {
    let lines = done.stdout.lines().filter(|line| !is_of_this_machine(line)).collect::<Vec<_>>();
    CommandResult {
        command: done.command.clone(),
        code: done.code,
        stdout: lines.join("\n"),
        stderr: done.stderr.clone(),
    }
}

#[track_caller]
fn assert_finding(report: &Value, name: &str, words: &[&str]) {
    let lines = section(report, name);
    assert!(
        lines.iter().any(|line| words.iter().all(|word| line.contains(word))),
        "no {words:?} in {lines:#?}"
    );
}

#[test]
fn unknown_tools_in_a_preset_are_warned_about() {
    let home = Home::new();
    home.write(
        "home/config.toml",
        r#"
        [swarm.roles.researcher]
        tools = ["web_search", "Read", "reed_file", "mcp__files__list", "mcp__nobody__*"]
        lend = ["teleport"]
        [mcpServers.files]
        url = "http://127.0.0.1:9/mcp"
        "#,
    );
    let expected = [
        "swarm.roles.researcher.tools: unknown tool 'reed_file'. Did you mean 'read_file'?",
        "swarm.roles.researcher.tools: unknown tool 'mcp__nobody__*'",
        "swarm.roles.researcher.lend: unknown tool 'teleport'",
    ];
    let done = home.run(hello(), &[]);
    let warned: Vec<&str> =
        done.exits_with(0).stderr.lines().filter(|line| line.contains("unknown tool")).collect();
    assert_eq!(warned, expected.map(|warning| format!("warning: {warning}")));
    let report = report(&home, &["--offline"], &[]);
    for warning in expected {
        assert_finding(&report, "tools", &["warn: ", warning, "Correct the name"]);
    }
    assert_eq!(section(&report, "tools").iter().filter(|line| line.starts_with("warn")).count(), 3);
}

#[test]
fn fresh_home_has_no_problems_and_nothing_is_written() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let done = doctor(&home, &[], &[]);
    console.add(&without_machine(done.exits_with(0).stdout_contains("a test command ran in ")));
    assert!(std::fs::read_dir(home.home()).unwrap().next().is_none(), "nothing is written");
    insta::assert_snapshot!(console.text());
}

#[test]
fn healthy_setup_is_reported_as_ok() {
    let home = Home::new();
    let model = home.script(hello());
    home.write("home/config.toml", &format!("model = '{model}'\n"));
    home.brigade(&["run", "x"]).exits_with(0);
    let report = report(&home, &["--offline"], &[]);
    assert_eq!((&report["problems"], &report["type"]), (&0.into(), &"doctor".into()), "{report:#}");
    assert_finding(&report, "config", &["ok: ", "config.toml"]);
    assert_finding(&report, "model", &["ok: script:"]);
    assert_finding(&report, "store", &["ok: ", "sessions.db: format 3", "intact"]);
    assert_finding(&report, "store", &["free on the disk of"]);
    assert_finding(&report, "guard", &["ok: "]);
    assert_finding(&report, "sandbox", &["Landlock: ", "seccomp: ", "user namespaces: ", "cgroups: "]);
    assert_finding(&report, "tools", &["ok: mode edit, no rules"]);
    assert_finding(&report, "version", &["brigade 0."]);
}

#[test]
fn broken_config_is_a_problem_and_other_checks_run() {
    let home = Home::new();
    let mut console = Console::new(&home);
    for config in
        ["[broken", "swarm.max_dept = 2", "providers.x.kind = 'openai'", "model = 'script:/nowhere.toml'"]
    {
        home.write("home/config.toml", config);
        let done = doctor(&home, &["--offline"], &[]);
        done.exits_with(1)
            .stdout_contains("problem  ")
            .stdout_contains("1 problem,")
            .stdout_contains("a test command ran in ");
        add_findings(&mut console, &report(&home, &["--offline"], &[]), &["config"]);
    }
    home.write("home/config.toml", "model = 'groq/x'");
    let report = report(&home, &["--offline", "--set", "nonsense=1"], &[("BRIGADE_SWARM__ENABELD", "true")]);
    add_findings(&mut console, &report, &["config", "model", "providers"]);
    insta::assert_snapshot!(console.text());
}

#[test]
fn keys_are_detected_and_never_printed() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let good = server("200 OK", "{\"data\":[{\"id\":\"large\"}]}");
    let bad = server("401 Unauthorized", "{\"error\":{\"message\":\"key sesame-key is wrong\"}}");
    home.write(
        "home/config.toml",
        &format!(
            "model = 'work/large'\nfallbacks = ['work/small', 'ollama/x', 'nobody/x']\n[providers]\n\
             work = {{ kind = 'openai', base_url = '{good}', api_key_env = 'WORK_KEY' }}\n\
             other = {{ kind = 'openai', base_url = '{bad}', api_key_env = 'WORK_KEY' }}\n"
        ),
    );
    let done = doctor(&home, &["--output-format", "json"], &[("WORK_KEY", "sesame-key")]);
    let report = done.exits_with(1).json();
    add_findings(&mut console, &report, &["model", "providers"]);
    let text = doctor(&home, &[], &[("WORK_KEY", "sesame-key")]);
    for shown in [&done.stdout, &done.stderr, &text.stdout, &text.stderr] {
        assert!(!shown.contains("sesame"), "{shown}");
    }
    insta::assert_snapshot!(console.text());
}

#[test]
fn broken_setting_finding_names_the_fix_for_its_source() {
    let home = Home::new();
    home.write("home/config.toml", "limits.lead_turns = 'x'\n");
    let report = report(&home, &["--set", "swarm.max_depth=x"], &[("BRIGADE_LIMITS__CHILD_TURNS", "x")]);
    let found = section(&report, "config");
    let fix = |source: &str| {
        let line = found.iter().find(|line| line.starts_with("problem: ") && line.contains(source)).unwrap();
        line.rsplit(" / ").next().unwrap().to_owned()
    };
    assert_eq!(fix("config.toml"), "Fix this file; the rest of this report ignores it");
    assert_eq!(fix("BRIGADE_LIMITS"), "Correct or unset this variable; the rest of this report ignores it");
    assert_eq!(fix("--set"), "Correct or omit this flag; the rest of this report ignores it");
}

#[test]
fn provider_that_fails_gets_one_piece_of_advice() {
    let home = Home::new();
    let address = server("404 Not Found", "<!DOCTYPE html>\n<html><body><h1>nginx</h1></body></html>");
    let config = format!("model = 'work/x'\n[providers.work]\nkind = 'openai'\nbase_url = '{address}'\n");
    home.write("home/config.toml", &config);
    let report = report(&home, &[], &[]);
    let found = section(&report, "providers");
    let line = found.iter().find(|line| line.starts_with("problem: work")).unwrap();
    assert!(line.contains("work returned 404 Not Found. Check "), "{line}");
    assert!(line.ends_with(&format!("/ Its URL is {address}")), "{line}");
    assert!(!line.contains("html") && !line.contains("network"), "{line}");
}

#[test]
fn offline_contacts_no_remote_server() {
    let home = Home::new();
    let mut console = Console::new(&home);
    // For the command this address is another machine; the kernel routes it back to this one.
    let elsewhere = |status, body| server(status, body).replace("127.0.0.1", "0.0.0.0");
    let good = elsewhere("200 OK", "{\"data\":[{\"id\":\"x\"}]}");
    let bad = elsewhere("401 Unauthorized", "{}");
    home.write(
        "home/config.toml",
        &format!(
            "model = 'far/x'\nfallbacks = ['shut/x']\n[providers]\n\
             far = {{ kind = 'openai', base_url = '{good}' }}\nshut = {{ kind = 'openai', base_url = '{bad}' }}\n"
        ),
    );
    let offline = report(&home, &["--offline"], &[]);
    add_findings(&mut console, &offline, &["providers", "model"]);
    let online = report(&home, &[], &[]);
    add_findings(&mut console, &online, &["providers", "model"]);
    insta::assert_snapshot!(console.text());
}

#[test]
fn unusable_store_finding_says_what_to_do() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let store = |path: &str| report(&home, &["--offline", "--store", path], &[]);
    add_findings(&mut console, &store("."), &["store"]);
    home.write("work/broken.db", &"this is no store ".repeat(100));
    add_findings(&mut console, &store("broken.db"), &["store"]);
    home.write("work/file", "");
    add_findings(&mut console, &store("file/sessions.db"), &["store"]);
    add_findings(&mut console, &store("new/folder/s.db"), &["store"]);
    assert!(!home.work().join("new").exists(), "a look makes no store");
    home.run(hello(), &["--store", "newer.db"]).exits_with(0);
    let newer = home.work().join("newer.db");
    let mut bytes = std::fs::read(&newer).unwrap();
    bytes[60..64].copy_from_slice(&9_999u32.to_be_bytes());
    std::fs::write(&newer, bytes).unwrap();
    add_findings(&mut console, &store("newer.db"), &["store"]);
    insta::assert_snapshot!(console.text());
}

#[test]
fn damaged_store_is_a_problem() {
    let home = Home::new();
    for _ in 0..3 {
        home.run(hello(), &["--store", "damaged.db"]).exits_with(0);
    }
    let store = home.work().join("damaged.db");
    let look = || report(&home, &["--offline", "--store", "damaged.db"], &[]);
    assert_finding(&look(), "store", &["ok: ", "damaged.db", "intact"]);
    let mut bytes = std::fs::read(&store).unwrap();
    let half = bytes.len() / 2;
    bytes[half..].fill(7);
    std::fs::write(&store, bytes).unwrap();
    let damaged = look();
    assert_finding(
        &damaged,
        "store",
        &["problem: ", "damaged.db is damaged: ", "brigade sessions export ID"],
    );
    assert!(damaged["problems"].as_u64() > Some(0), "{damaged:#}");
}

#[test]
fn projects_agents_skills_and_rules_are_checked() {
    let home = Home::new();
    let mut console = Console::new(&home);
    std::fs::create_dir_all(home.work().join(".brigade/agents/bad")).unwrap();
    std::fs::create_dir_all(home.home().join("skills/odd")).unwrap();
    home.write("work/.brigade/agents/bad/AGENT.md", "no front matter\n");
    home.write("home/skills/odd/SKILL.md", "---\nnonsense\n");
    home.write("home/config.toml", "[permissions]\ndeny = ['shel(git push)']\n[web]\nsearch = 'brave'\n");
    let before = report(&home, &["--offline"], &[]);
    add_findings(&mut console, &before, &["config", "agents", "skills", "tools"]);
    home.brigade(&["trust", "--yes"]).exits_with(0);
    let after = report(&home, &["--offline"], &[]);
    add_findings(&mut console, &after, &["agents"]);
    home.write("work/.brigade/config.toml", "");
    add_findings(&mut console, &report(&home, &["--offline"], &[]), &["config"]);
    home.write("work/.brigade/config.toml", "store = 'x'");
    home.write("home/trusted.json", "{");
    add_findings(&mut console, &report(&home, &["--offline"], &[]), &["config"]);
    insta::assert_snapshot!(console.text());
}
