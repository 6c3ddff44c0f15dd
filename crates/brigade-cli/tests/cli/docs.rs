//! Checks that the documentation matches the command: transcripts, configuration examples and scripts.

mod guide;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use brigade_testing::{Script, call, reply};
use serde_json::json;

use crate::cli::redaction::redacted;
use crate::cli::support::{CommandResult, Home, text};

pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_path_buf()
}

pub(crate) fn page(name: &str) -> String {
    text(repository().join(name))
}

/// Fenced block that follows a marker.
#[track_caller]
fn block<'a>(page: &'a str, marker: &str) -> &'a str {
    let (_, after) = page.split_once(marker).unwrap_or_else(|| panic!("no `{marker}`"));
    let (_, fence) = after.split_once("```").unwrap();
    let (_, inner) = fence.split_once('\n').unwrap();
    inner.split_once("```").unwrap().0
}

/// Text without ids and times, which differ from run to run.
fn normalized(text: &str) -> String {
    let text = redacted(text);
    let mut parts = text.split("duration_ms\":");
    let mut normalized = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        normalized.push_str("duration_ms\":0");
        normalized.push_str(part.trim_start_matches(|c: char| c.is_ascii_digit()));
    }
    normalized
}

/// Runs the commands of a page in a folder.
fn run_shell(home: &Home, folder: &Path, commands: &str) -> CommandResult {
    let binary = Path::new(env!("CARGO_BIN_EXE_brigade")).parent().unwrap();
    let mut path = vec![binary.to_path_buf()];
    path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap()));
    let mut shell = Command::new("sh");
    shell.args(["-e", "-c", commands]).env_clear().env("PATH", std::env::join_paths(path).unwrap());
    shell.env("BRIGADE_HOME", home.home()).env("TMPDIR", home.work()).current_dir(folder);
    CommandResult::of(shell.stdin(Stdio::null()).output().unwrap())
}

#[track_caller]
fn check_transcript(face: &str) {
    let page = page(&format!("docs/faces/{face}.md"));
    let commands = block(&page, "<!-- command -->");
    assert!(commands.contains(&format!("script:docs/faces/{face}.toml")), "{commands}");
    let done = run_shell(&Home::new(), &repository(), commands);
    assert_eq!(normalized(&done.exits_with(0).stdout), normalized(block(&page, "<!-- stdout -->")));
    for line in block(&page, "<!-- stderr -->").lines() {
        assert!(done.stderr.lines().any(|printed| printed == line), "no `{line}` in {}", done.stderr);
    }
}

#[test]
fn delegate_page_transcript_matches_the_command() {
    check_transcript("delegate");
}

#[test]
fn subagent_page_transcript_matches_the_command() {
    check_transcript("subagent");
}

#[test]
fn dispatch_page_transcript_matches_the_command() {
    check_transcript("dispatch");
}

#[test]
fn spawn_page_transcript_matches_the_command() {
    check_transcript("spawn");
}

#[test]
fn normalized_replaces_only_ids_and_times() {
    let id = "cxdmhl5svbtuvabctwszfzy52x";
    assert_eq!(normalized(&format!("{{\"session_id\":\"{id}.1-0\"}}\n")), "{\"session_id\":\"ID.1-0\"}\n");
    assert_eq!(
        normalized("{\"total_duration_ms\":36,\"tokens\":60}"),
        "{\"total_duration_ms\":0,\"tokens\":60}"
    );
    assert_eq!(normalized("an ordinary line."), "an ordinary line.");
}

/// The configuration sections on the pages show the defaults.
#[test]
fn config_sections_of_the_pages_are_the_defaults() {
    for face in ["delegate", "subagent", "dispatch", "spawn"] {
        let page = page(&format!("docs/faces/{face}.md"));
        let home = Home::new();
        home.write("home/config.toml", block(&page, "## Configuration"));
        let with = home.brigade(&["tools", "list", "--output-format", "json"]).exits_with(0).json();
        let bare = Home::new();
        bare.write("home/config.toml", &format!("[delegation]\nfaces = ['delegate', '{face}']\n"));
        let mut without = bare.brigade(&["tools", "list", "--output-format", "json"]).exits_with(0).json();
        if face == "delegate" {
            // The page defines a role, which the tool then lists.
            let all = without.as_array_mut().unwrap();
            let tool = all.iter_mut().find(|tool| tool["name"] == "delegate").unwrap();
            let described = tool["description"].as_str().unwrap();
            let prepared = "Predefined roles: researcher. Any other role works too,";
            tool["description"] = described.replace("Use any role,", prepared).into();
        }
        assert_eq!(with, without, "{face}");
    }
}

fn as_tenant(home: &Home, tenant: &Path, arguments: &[&str]) -> CommandResult {
    let mut command = home.command(arguments);
    CommandResult::run(command.env("BRIGADE_HOME", tenant).env("HOME", tenant))
}

fn add_tenant(home: &Home, name: &str) -> CommandResult {
    let mut script = Command::new(repository().join("scripts/add-tenant.sh"));
    script.arg(name).env_clear().env("PATH", std::env::var_os("PATH").unwrap());
    script.env("TENANTS", "tenants").current_dir(home.work());
    CommandResult::of(script.stdin(Stdio::null()).output().unwrap())
}

fn tenant(home: &Home, name: &str) -> PathBuf {
    PathBuf::from(add_tenant(home, name).exits_with(0).stdout.trim_end())
}

#[test]
fn add_tenant_writes_a_private_home_that_loads() {
    use std::os::unix::fs::PermissionsExt;
    let home = Home::new();
    let acme = tenant(&home, "acme");
    assert!(acme.is_absolute() && acme.ends_with("tenants/acme"));
    let rights = |file: &Path| std::fs::metadata(file).unwrap().permissions().mode() & 0o777;
    assert_eq!((rights(&acme), rights(&acme.join("config.toml"))), (0o700, 0o600));
    let shown = as_tenant(&home, &acme, &["config", "show", "--output-format", "json"]).exits_with(0).json();
    let roles = &shown["config"]["swarm"]["roles"];
    assert_eq!(
        (&roles["writer"]["locked"], &roles["researcher"]["tools"][0]),
        (&true.into(), &"web_search".into())
    );
    assert_eq!(shown["config"]["budget"]["agents"], 20);
    as_tenant(&home, &acme, &["tools", "list"]).exits_with(0).stdout_contains("delegate");
    assert_eq!(
        text(acme.join("config.toml")),
        block(&page("docs/MULTI-TENANT.md"), "## Swarm configuration")
    );
}

#[test]
fn add_tenant_refuses_bad_names_and_existing_homes() {
    let home = Home::new();
    let acme = tenant(&home, "acme");
    std::fs::write(acme.join("config.toml"), "# mine\n").unwrap();
    add_tenant(&home, "acme").exits_with(2).stderr_contains("already exists");
    assert_eq!(text(acme.join("config.toml")), "# mine\n");
    std::os::unix::fs::symlink("nowhere", acme.with_file_name("link")).unwrap();
    add_tenant(&home, "link").exits_with(2).stderr_contains("already exists");
    for name in ["", ".", "..", "../up", "a/b", "-x", "A", "a b", "a\nb", "\u{e4}", &"a".repeat(65)] {
        add_tenant(&home, name).exits_with(2).stderr_contains("use 1 to 64");
    }
    add_tenant(&home, &"a".repeat(64)).exits_with(0);
    assert_eq!(std::fs::read_dir(home.work().join("tenants")).unwrap().count(), 3);
}

#[test]
fn example_config_loads() {
    let home = Home::new();
    home.write("home/config.json", &page("config.example.json"));
    let shown = home.brigade(&["config", "show", "--output-format", "json"]).exits_with(0).json();
    let roles = &shown["config"]["swarm"]["roles"];
    let tools = |role: &str| roles[role]["tools"].to_string();
    assert_eq!(tools("researcher"), r#"["web_search","web_fetch","memory_search","memory_get"]"#);
    assert_eq!(tools("writer"), r#"["read_file","write_file","edit_file","memory_search"]"#);
    let tools = home.brigade(&["tools", "list", "--output-format", "json"]).exits_with(0).stdout.clone();
    assert!(tools.contains("Predefined roles: researcher, writer."), "{tools}");

    let home = Home::new();
    home.write("home/config.toml", block(&page("docs/MULTI-TENANT.md"), "## Swarm configuration"));
    home.brigade(&["config", "show"]).exits_with(0).stdout_contains("max_concurrent = 3  # from /");
    home.brigade(&["tools", "list"]).exits_with(0).stdout_contains("delegate");
}

fn remember() -> Script {
    Script::new().turns([
        call("memory_put", json!({ "key": "secret", "text": "the word is sesame" })),
        reply("{results}"),
    ])
}

fn recall() -> Script {
    Script::new().turns([
        call("memory_search", json!({ "query": "sesame word" }))
            .call("memory_get", json!({ "key": "secret" })),
        reply("{results}"),
    ])
}

#[test]
fn s05_tenants_share_no_sessions() {
    let home = Home::new();
    let tenants = [tenant(&home, "acme"), tenant(&home, "umbrella")];
    let run = |tenant: &Path, script: Script| {
        let model = home.script(script);
        let arguments = ["run", "--model", &model, "--mode", "auto", "--output-format", "json", "the task"];
        as_tenant(&home, tenant, &arguments).exits_with(0).json()
    };
    let first = run(&tenants[0], remember())["session_id"].as_str().unwrap().to_owned();
    assert!(run(&tenants[0], recall())["result"].as_str().unwrap().contains("the word is sesame"));
    let other = run(&tenants[1], recall());
    assert!(!other["result"].as_str().unwrap().contains("the word is sesame"), "{other}");
    let second = other["session_id"].as_str().unwrap();
    for (tenant, own, foreign) in [(&tenants[0], first.as_str(), second), (&tenants[1], second, &first)] {
        let list = as_tenant(&home, tenant, &["sessions", "list"]);
        list.exits_with(0).stdout_contains(own);
        assert!(!list.stdout.contains(foreign), "{}", list.stdout);
        as_tenant(&home, tenant, &["sessions", "show", own]).exits_with(0);
        for command in [vec!["sessions", "show"], vec!["sessions", "export"], vec!["resume"], vec!["cancel"]]
        {
            let done = as_tenant(&home, tenant, &[command, vec![foreign]].concat());
            assert_ne!(done.code, 0, "{}", done.stdout);
            done.stderr_contains("does not exist. List all sessions");
        }
    }
}
