//! Secrets reach neither the model, nor the log, nor any output.

use brigade_testing::{HttpResponse, HttpServer, Script, call, delegate, reply};
use serde_json::json;

use crate::cli::mcp;
use crate::cli::support::{CommandResult, Home, text};

/// Keys of known shapes, assembled here so that this file contains none.
fn keys() -> Vec<(&'static str, String)> {
    let random = "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC2eF4hJ6kL8nP0rS2uV4xY6aB8dE0gH1jK3mN5pQ7sT9vW1yZ3bC5eF7hJ9kL1";
    let key = |prefix: &str, length: usize| format!("{prefix}{}", &random[..length]);
    let line = &random[..64];
    let pem = format!("-----BEGIN {0} KEY-----\n{line}\n{line}\n-----END {0} KEY-----", "PRIVATE");
    vec![
        ("GitHub token", key("ghp_", 36)),
        ("Anthropic key", key("sk-ant-api03-", 80)),
        ("Google API key", key("AIza", 35)),
        ("AWS access key", key("AKIA", 16).to_uppercase()),
        ("Slack token", format!("xoxb-123456789012-{}", &random[..24])),
        ("npm token", key("npm_", 36)),
        ("PyPI token", key("pypi-AgEIcHlwaS5vcmc", 70)),
        ("GitLab token", key("glpat-", 20)),
        ("Hugging Face token", key("hf_", 34)),
        ("Stripe key", key("sk_live_", 24)),
        ("JSON Web Token", format!("{}{}.eyJ{}.{}", "eyJ", &random[..17], &random[..30], &random[..43])),
        ("credential", format!("Authorization: Bearer {}", &random[..32])),
        ("password", format!("postgres://me:{}@db/app", &random[..24])),
        ("private key", pem),
    ]
}

/// What must not occur: the random part of every key.
fn random_parts() -> Vec<String> {
    let words = |key: &String| {
        let word = key.split([' ', ':', '@', '\n']).max_by_key(|word| word.len()).unwrap();
        word[word.len() / 2..].to_owned()
    };
    keys().iter().map(|(_, key)| words(key)).collect()
}

fn key_file() -> String {
    keys().iter().map(|(label, key)| format!("{label} = {key}\n")).collect()
}

#[track_caller]
fn assert_clean(what: &str, text: &str) {
    for part in random_parts() {
        assert!(!text.contains(&part), "{what} contains `{part}`: {text}");
    }
}

/// Checks the stored bytes, and the session in every form in which it can be printed.
#[track_caller]
fn assert_stored_without_keys(home: &Home) {
    for file in home.files() {
        assert_clean(&file.display().to_string(), &String::from_utf8_lossy(&std::fs::read(&file).unwrap()));
    }
    assert_printed_without_keys(home);
    let export = home.brigade(&["sessions", "export", "last", "-o", "-"]);
    assert_clean("the export", &export.exits_with(0).stdout);
}

#[track_caller]
fn assert_printed_without_keys(home: &Home) {
    for arguments in [
        &["show", "last", "--full"][..],
        &["show", "last", "--output-format", "json"],
        &["tree", "last"],
        &["tree", "last", "--output-format", "json"],
        &["export", "last", "--format", "md", "-o", "-"],
        &["export", "last", "--format", "html", "-o", "-"],
        &["list"],
        &["list", "--output-format", "json"],
    ] {
        let printed = home.brigade(&[&["sessions"], arguments].concat());
        printed.exits_with(0);
        assert_clean(&arguments.join(" "), &(printed.stdout.clone() + &printed.stderr));
    }
}

#[test]
fn keys_in_results_are_redacted_everywhere() {
    let home = Home::new();
    home.write("work/keys.txt", &key_file());
    for tool in [
        call("read_file", json!({ "path": "keys.txt" })),
        call("shell", json!({ "command": "cat keys.txt" })),
        call("shell", json!({ "command": "cat keys.txt >&2; exit 3" })),
        call("grep", json!({ "pattern": ".", "path": "." })),
    ] {
        let script = Script::new().turns([tool, reply("{results}")]);
        let done = home.run(script, &["--mode", "auto", "--output-format", "stream-json", "-v"]);
        done.exits_with(0);
        assert_clean("the output", &(done.stdout.clone() + &done.stderr));
        for (label, _) in keys() {
            done.stdout_contains(&format!("[redacted: {label}]"));
        }
        assert_stored_without_keys(&home);
    }
}

#[test]
fn keys_in_results_of_sub_agents_servers_and_pages_are_redacted() {
    let page =
        HttpServer::always(HttpResponse::with_headers("200 OK", "Content-Type: text/plain\r\n", key_file()));
    let home = Home::new();
    home.write("work/keys.txt", &key_file());
    home.write("home/config.json", &mcp::servers(&home, json!({})));
    let fetched = call("web_fetch", json!({ "url": page.url("/") }));
    let scripts = [
        Script::new()
            .agent("lead", [delegate("Reader", "read the file"), reply("{results}")])
            .agent("Reader", [call("read_file", json!({ "path": "keys.txt" })), reply("{results}")]),
        Script::new().turns([fetched, reply("{results}")]),
    ];
    for script in scripts {
        let arguments =
            ["--mode", "auto", "--set", "web.allow_loopback=true", "--output-format", "stream-json"];
        let done = home.run(script, &arguments);
        done.exits_with(0)
            .stdout_contains("[redacted: GitHub token]")
            .stdout_contains("[redacted: private key]");
        assert_clean("the output", &(done.stdout.clone() + &done.stderr));
        assert_stored_without_keys(&home);
    }
    // The arguments of a call are recorded as they are, but not shown. What the server returns is redacted.
    let script =
        Script::new().turns([call("mcp__fix__echo", json!({ "text": key_file() })), reply("{results}")]);
    let done = home.run(script, &["--mode", "auto", "--output-format", "stream-json", "-v"]);
    done.exits_with(0).stdout_contains("[redacted: GitHub token]");
    assert_clean("the output", &(done.stdout.clone() + &done.stderr));
    assert_printed_without_keys(&home);
}

#[test]
fn keys_in_memories_are_redacted_when_they_are_found() {
    let home = Home::new();
    let put = call("memory_put", json!({ "key": "keys", "text": key_file() }));
    home.run(Script::new().turns([put, reply("done")]), &["--mode", "auto"]).exits_with(0);
    let search =
        Script::new().turns([call("memory_search", json!({ "query": "GitHub" })), reply("{results}")]);
    let done = home.run(search, &["--mode", "auto"]);
    assert_clean("the output", &(done.stdout.clone() + &done.stderr));
    assert_printed_without_keys(&home);
}

#[test]
fn keys_that_a_model_writes_are_redacted_while_they_arrive() {
    let home = Home::new();
    let text = key_file();
    for chunks in [1, 40] {
        let script = Script::new().turns([reply(&text).chunks(chunks).chunk_delay_ms(20)]);
        let done = home.run(script, &["--output-format", "stream-json"]);
        done.exits_with(0).stdout_contains("[redacted: GitHub token]").stdout_contains("\"delta\"");
        let deltas: String = done
            .lines()
            .iter()
            .filter_map(|line| line["text"].as_str().filter(|_| line["type"] == "delta"))
            .collect();
        assert_clean("the deltas", &deltas);
        assert_clean("the output", &(done.stdout.clone() + &done.stderr));
        assert_stored_without_keys(&home);
    }
}

const TOKEN: &str = "canary+token/of-the-user.7";

fn run_with_token(home: &Home, script: Script) -> CommandResult {
    let model = home.script(script);
    let arguments = ["run", "--model", &model, "--mode", "auto", "--output-format", "stream-json", "-v", "x"];
    CommandResult::run(home.command(&arguments).env("DEPLOY_TOKEN", TOKEN))
}

#[test]
fn configured_secret_is_redacted_in_results() {
    let home = Home::new();
    home.write("work/notes.txt", &format!("deploy with {TOKEN}.\n"));
    let script = Script::new().turns([
        call("read_file", json!({ "path": "notes.txt" })),
        call("shell", json!({ "command": "cat notes.txt; base64 -w0 notes.txt | tr -d x" })),
        reply("{results}"),
    ]);
    let done = run_with_token(&home, script);
    done.exits_with(0).stdout_contains("deploy with [redacted: configured secret].");
    assert!(!done.stdout.contains(TOKEN) && !done.stderr.contains(TOKEN), "{}", done.stdout);
    for file in home.files() {
        assert!(
            !String::from_utf8_lossy(&std::fs::read(&file).unwrap()).contains(TOKEN),
            "{}",
            file.display()
        );
    }
}

#[test]
fn call_with_a_configured_secret_in_its_arguments_is_refused() {
    let home = Home::new();
    let calls = [
        call("write_file", json!({ "path": "out.txt", "content": format!("key {TOKEN}") })),
        call("shell", json!({ "command": format!("echo {TOKEN} > out.txt") })),
        delegate("Sender", &format!("send {TOKEN}")),
        reply("")
            .raw_call("write_file", &format!(r#"{{"path":"out.txt","content":"\u0063{}"}}"#, &TOKEN[1..])),
    ];
    for call in calls {
        let done = run_with_token(&home, Script::new().turns([call, reply(&format!("{{results}} {TOKEN}"))]));
        done.exits_with(0).stdout_contains("refused: its arguments contain a configured secret");
        assert!(!home.work().join("out.txt").exists());
        assert!(!done.stdout.contains(TOKEN) && !done.stderr.contains(TOKEN), "{}", done.stdout);
        for file in home.files() {
            let bytes = std::fs::read(&file).unwrap();
            assert!(!String::from_utf8_lossy(&bytes).contains(TOKEN), "{}", file.display());
        }
    }
    // Without the secret in the environment, the same call runs.
    let script = Script::new()
        .turns([call("shell", json!({ "command": format!("echo {TOKEN} > out.txt") })), reply("done")]);
    home.run(script, &["--mode", "auto"]).exits_with(0);
    assert_eq!(text(home.work().join("out.txt")), format!("{TOKEN}\n"));
}

#[test]
fn edit_never_writes_the_text_that_replaces_a_secret() {
    let home = Home::new();
    let key = &keys()[0].1;
    let before = format!("name = old\ntoken = {key}\n");
    home.write("work/config.ini", &before);
    let read = || call("read_file", json!({ "path": "config.ini" }));
    let marker = "[redacted: GitHub token]";
    let refused = [
        call(
            "write_file",
            json!({ "path": "config.ini", "content": format!("name = new\ntoken = {marker}\n") }),
        ),
        call("write_file", json!({ "path": "new.ini", "content": marker })),
        call(
            "edit_file",
            json!({ "path": "config.ini", "old": "name = old", "new": format!("name = {marker}") }),
        ),
    ];
    for edit in refused {
        let done = home.run(Script::new().turns([read(), edit, reply("{results}")]), &["--mode", "edit"]);
        done.exits_with(0).stdout_contains("in place of a secret that you cannot see. Nothing was written.");
        assert_eq!(text(home.work().join("config.ini")), before);
        assert!(!home.work().join("new.ini").exists());
    }
    let edit = call(
        "edit_file",
        json!({ "path": "config.ini", "old": format!("token = {marker}"), "new": "token =" }),
    );
    let done = home.run(Script::new().turns([read(), edit, reply("{results}")]), &["--mode", "edit"]);
    done.exits_with(0).stdout_contains("Replace the text around it.");
    assert_eq!(text(home.work().join("config.ini")), before);
    // An edit of the text around it works, because the file was seen as it is.
    let edit = call("edit_file", json!({ "path": "config.ini", "old": "name = old", "new": "name = new" }));
    let done = home.run(Script::new().turns([read(), edit, reply("{results}")]), &["--mode", "edit"]);
    done.exits_with(0);
    assert_eq!(text(home.work().join("config.ini")), before.replace("old", "new"));
    assert_clean("the output", &done.stdout);
    // A file that documents the text can still be edited.
    home.write("work/docs.md", &format!("{marker} hides a token.\n"));
    let edit = call("edit_file", json!({ "path": "docs.md", "old": "hides", "new": "replaces" }));
    let read = call("read_file", json!({ "path": "docs.md" }));
    home.run(Script::new().turns([read, edit, reply("done")]), &["--mode", "edit"]).exits_with(0);
    assert_eq!(text(home.work().join("docs.md")), format!("{marker} replaces a token.\n"));
}

#[test]
fn key_in_a_usage_error_is_redacted() {
    let home = Home::new();
    let key = &keys()[0].1;
    let done = home.brigade(&["sessions", "show", key]);
    assert!(done.code == 1 || done.code == 2, "{}", done.code);
    assert_clean("the error", &(done.stdout.clone() + &done.stderr));
}
