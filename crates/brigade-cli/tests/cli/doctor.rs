//! `brigade doctor`: findings and fixes.

use std::io::{Read, Write};

use serde_json::Value;

use crate::support::{CommandResult, Home};

const HELLO: &str = "[[reply]]\ntext = 'hello'";

/// Server that responds to every request with this status and body, and its address.
fn server(status: &'static str, body: &'static str) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/v1", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 4096]);
            let head =
                format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
            let _ = stream.write_all(format!("{head}{body}").as_bytes());
        }
    });
    address
}

/// Runs `doctor` without the servers of the machine that runs the tests.
fn doctor(home: &Home, arguments: &[&str], variables: &[(&str, &str)]) -> CommandResult {
    let mut command = home.command(&[&["doctor"], arguments].concat());
    for name in ["OLLAMA", "LMSTUDIO", "LLAMACPP", "VLLM"] {
        command.env(format!("BRIGADE_PROVIDERS__{name}__BASE_URL"), "http://127.0.0.1:9/v1");
    }
    CommandResult::of(command.envs(variables.iter().copied()).output().unwrap())
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
    let done = home.run(HELLO, &[]);
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
    let done = doctor(&home, &[], &[]);
    done.exits_with(0)
        .stdout_contains("config.toml does not exist. Create it with: brigade init")
        .stdout_contains("will be created by the first run");
    done.stdout_contains("a command ran under its guard")
        .stdout_contains("are not sandboxed")
        .stdout_contains("no problems");
    done.stdout_contains("warn     no model is set").stdout_contains("brigade init");
    assert!(std::fs::read_dir(home.home()).unwrap().next().is_none(), "nothing is written");
}

#[test]
fn healthy_setup_is_reported_as_ok() {
    let home = Home::new();
    let model = home.script(HELLO);
    home.write("home/config.toml", &format!("model = '{model}'\n"));
    home.brigade(&["run", "x"]).exits_with(0);
    let report = report(&home, &["--offline"], &[]);
    assert_eq!((&report["problems"], &report["type"]), (&0.into(), &"doctor".into()), "{report:#}");
    assert_finding(&report, "config", &["ok: ", "config.toml"]);
    assert_finding(&report, "model", &["ok: script:"]);
    assert_finding(&report, "store", &["ok: ", "sessions.db: format 2", "intact"]);
    assert_finding(&report, "store", &["free on the disk of"]);
    assert_finding(&report, "guard", &["ok: "]);
    assert_finding(&report, "sandbox", &["Landlock: ", "seccomp: ", "user namespaces: ", "cgroups: "]);
    assert_finding(&report, "tools", &["ok: mode edit, no rules"]);
    assert_finding(&report, "version", &["brigade 0."]);
}

#[test]
fn broken_config_is_a_problem_and_other_checks_run() {
    let home = Home::new();
    for (config, words) in [
        ("[broken", "config.toml"),
        ("swarm.max_dept = 2", "nearest known key is `swarm.max_depth`"),
        ("providers.x.kind = 'openai'", "providers.x: `base_url` is missing"),
        ("model = 'script:/nowhere.toml'", "cannot read the script /nowhere.toml"),
    ] {
        home.write("home/config.toml", config);
        let done = doctor(&home, &["--offline"], &[]);
        done.exits_with(1)
            .stdout_contains("problem  ")
            .stdout_contains(words)
            .stdout_contains("1 problem,")
            .stdout_contains("under its guard");
    }
    home.write("home/config.toml", "model = 'groq/x'");
    let report = report(&home, &["--offline", "--set", "nonsense=1"], &[("BRIGADE_SWARM__ENABELD", "true")]);
    assert_finding(&report, "config", &["ok: ", "config.toml"]);
    assert_finding(&report, "config", &["problem: BRIGADE_SWARM__ENABELD", "swarm.enabled"]);
    assert_finding(&report, "config", &["problem: --set nonsense"]);
    assert_finding(&report, "model", &["problem: groq/x"]);
    assert_finding(&report, "providers", &["problem: groq: GROQ_API_KEY is not set / export GROQ_API_KEY="]);
}

#[test]
fn keys_are_detected_and_never_printed() {
    let home = Home::new();
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
    assert_finding(&report, "model", &["ok: work/large"]);
    assert_finding(
        &report,
        "model",
        &["warn: work/small is not in the model list of work", "brigade models work"],
    );
    assert_finding(&report, "model", &["problem: ollama/x is currently not available"]);
    assert_finding(&report, "model", &["problem: nobody/x: unknown provider 'nobody'"]);
    assert_finding(&report, "providers", &["ok: work"]);
    assert_finding(&report, "providers", &["warn: other"]);
    assert_finding(
        &report,
        "providers",
        &["problem: ollama: no response from http://127.0.0.1:9/v1 / Start it"],
    );
    assert_finding(&report, "providers", &["note: without a key: ", "anthropic (ANTHROPIC_API_KEY)"]);
    let text = doctor(&home, &[], &[("WORK_KEY", "sesame-key")]);
    for shown in [&done.stdout, &done.stderr, &text.stdout, &text.stderr] {
        assert!(!shown.contains("sesame"), "{shown}");
    }
}

#[test]
fn a_provider_that_fails_gets_one_piece_of_advice() {
    let home = Home::new();
    let address = server("404 Not Found", "<!DOCTYPE html>\n<html><body><h1>nginx</h1></body></html>");
    let config = format!("model = 'work/x'\n[providers.work]\nkind = 'openai'\nbase_url = '{address}'\n");
    home.write("home/config.toml", &config);
    let report = report(&home, &[], &[]);
    let found = section(&report, "providers");
    let line = found.iter().find(|line| line.starts_with("problem: work")).unwrap();
    assert!(line.contains("work answered 404 Not Found. Check "), "{line}");
    assert!(line.ends_with(&format!("/ Its address is {address}")), "{line}");
    assert!(!line.contains("html") && !line.contains("network"), "{line}");
}

#[test]
fn offline_contacts_no_remote_server() {
    let home = Home::new();
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
    assert_finding(&offline, "providers", &["ok: far", "not queried (--offline)"]);
    assert_finding(&offline, "providers", &["ok: shut", "not queried (--offline)"]);
    assert_finding(&offline, "model", &["ok: shut/x"]);
    let online = report(&home, &[], &[]);
    assert_finding(&online, "providers", &["ok: far", "it responds"]);
    assert_finding(&online, "providers", &["problem: shut", "401", "Check the provider's API key"]);
    assert_finding(&online, "model", &["ok: far/x"]);
    assert_finding(&online, "model", &["problem: shut/x is currently not available"]);
}

#[test]
fn unusable_store_finding_says_what_to_do() {
    let home = Home::new();
    let store = |path: &str| report(&home, &["--offline", "--store", path], &[]);
    assert_finding(&store("."), "store", &["problem: ", "is a folder", "--store PATH"]);
    home.write("work/broken.db", &"this is no store ".repeat(100));
    assert_finding(&store("broken.db"), "store", &["problem: ", "broken.db", "--store"]);
    home.write("work/file", "");
    assert_finding(&store("file/sessions.db"), "store", &["problem: ", "file", "--store PATH"]);
    assert_finding(&store("new/folder/s.db"), "store", &["ok: ", "will be created by the first run"]);
    assert!(!home.work().join("new").exists(), "a look makes no store");
    home.run(HELLO, &["--store", "newer.db"]).exits_with(0);
    let newer = home.work().join("newer.db");
    let mut bytes = std::fs::read(&newer).unwrap();
    bytes[60..64].copy_from_slice(&9_999u32.to_be_bytes());
    std::fs::write(&newer, bytes).unwrap();
    assert_finding(&store("newer.db"), "store", &["problem: ", "9999", "newer version of brigade"]);
}

#[test]
fn damaged_store_is_a_problem() {
    let home = Home::new();
    for _ in 0..3 {
        home.run(HELLO, &["--store", "damaged.db"]).exits_with(0);
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
    std::fs::create_dir_all(home.work().join(".brigade/agents/bad")).unwrap();
    std::fs::create_dir_all(home.home().join("skills/odd")).unwrap();
    home.write("work/.brigade/agents/bad/AGENT.md", "no front matter\n");
    home.write("home/skills/odd/SKILL.md", "---\nnonsense\n");
    home.write("home/config.toml", "[permissions]\ndeny = ['shel(git push)']\n[web]\nsearch = 'brave'\n");
    let before = report(&home, &["--offline"], &[]);
    assert_finding(&before, "config", &["warn: ", "not trusted", "brigade trust "]);
    assert_finding(&before, "agents", &["ok: the built-in lead"]);
    assert_finding(&before, "skills", &["warn: ", "odd"]);
    assert_finding(
        &before,
        "tools",
        &["problem: permissions.deny: unknown tool in the rule `shel(git push)`"],
    );
    assert_finding(&before, "tools", &["problem: web.search needs a key, but BRAVE_API_KEY is not set"]);
    home.brigade(&["trust", "--yes"]).exits_with(0);
    let after = report(&home, &["--offline"], &[]);
    assert_finding(&after, "agents", &["problem: ", "bad", "brigade agents lint"]);
    home.write("work/.brigade/config.toml", "");
    assert_finding(&report(&home, &["--offline"], &[]), "config", &["warn: ", "have changed"]);
    home.write("work/.brigade/config.toml", "store = 'x'");
    home.write("home/trusted.json", "{");
    assert_finding(
        &report(&home, &["--offline"], &[]),
        "config",
        &["problem: ", "cannot parse ", "trusted.json: "],
    );
}
